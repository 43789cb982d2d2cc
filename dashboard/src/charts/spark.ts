/** An SVG path through the values of a small box; `null` lifts the pen. The box is `width` x `height`, y grows downwards. */
export function sparkPath(
  values: readonly (number | null | undefined)[],
  width: number,
  height: number,
  range: readonly [number, number],
): string {
  const [low, high] = range;
  const scale = high > low ? (height - 2) / (high - low) : 0;
  const stride = values.length > 1 ? width / (values.length - 1) : 0;
  let path = "";
  let drawn = false;
  values.forEach((value, place) => {
    if (value === undefined) return;
    if (value === null) {
      drawn = false;
      return;
    }
    const x = (place * stride).toFixed(1);
    const y = (height - 1 - (Math.min(high, Math.max(low, value)) - low) * scale).toFixed(1);
    // A value alone gets a stroke of its own, or it could not be seen.
    path += drawn ? `L${x} ${y}` : `M${x} ${y}h0.01`;
    drawn = true;
  });
  return path;
}

/** The area between two courses, wherever both are known. */
export function bandPath(
  lows: readonly (number | null)[],
  highs: readonly (number | null)[],
  width: number,
  height: number,
  range: readonly [number, number],
): string {
  const [low, high] = range;
  const scale = high > low ? (height - 2) / (high - low) : 0;
  const stride = lows.length > 1 ? width / (lows.length - 1) : 0;
  const point = (place: number, value: number) => `${(place * stride).toFixed(1)} ${(height - 1 - (value - low) * scale).toFixed(1)}`;
  let path = "";
  let there: string[] = [];
  let back: string[] = [];
  const close = () => {
    if (there.length > 1) path += `M${there.join("L")}L${back.reverse().join("L")}Z`;
    there = [];
    back = [];
  };
  lows.forEach((value, place) => {
    const top = highs[place] ?? null;
    if (value === null || top === null) close();
    else {
      there.push(point(place, top));
      back.push(point(place, value));
    }
  });
  close();
  return path;
}

/** The range of a sparkline: fixed for shares, else the values' own with a floor under flat lines. */
export function sparkRange(values: readonly (number | null | undefined)[], fixed: readonly [number, number] | null): [number, number] {
  if (fixed !== null) return [fixed[0], fixed[1]];
  const held = values.filter((value) => typeof value === "number");
  if (held.length === 0) return [0, 1];
  const low = Math.min(...held);
  const high = Math.max(...held);
  const least = Math.max(Math.abs(high) * 0.1, 1);
  return high - low >= least ? [low, high] : [low - least / 2, high + least / 2];
}
