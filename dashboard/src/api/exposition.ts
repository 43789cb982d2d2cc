// The text in which Prometheus reads figures, as far as this page needs it.

/** A sample: its labels as they are written, and its value. */
export interface FigureSample {
  readonly labels: string;
  readonly value: number;
}

/** Samples by name. */
export type FigureSet = ReadonlyMap<string, readonly FigureSample[]>;

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;

export function parseFigures(text: string): FigureSet {
  const figures = new Map<string, FigureSample[]>();
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = LINE.exec(line) ?? [];
    if (name === undefined || value === undefined) continue;
    const samples = figures.get(name) ?? [];
    samples.push({ labels, value: Number(value) });
    figures.set(name, samples);
  }
  return figures;
}

/** All samples of a name together; `null` if there are none. */
export function total(figures: FigureSet, name: string): number | null {
  const samples = figures.get(name);
  return samples === undefined ? null : samples.reduce((sum, sample) => sum + sample.value, 0);
}

/** How many samples of a histogram are at most as large as each bound, over all of its labels; the bounds ascend. */
export function bucketsOf(figures: FigureSet, name: string): readonly (readonly [number, number])[] {
  const counts = new Map<number, number>();
  for (const { labels, value } of figures.get(`${name}_bucket`) ?? []) {
    const text = /(?:^|,)le="([^"]+)"/.exec(labels)?.[1];
    if (text === undefined) continue;
    const bound = text === "+Inf" ? Infinity : Number(text);
    counts.set(bound, (counts.get(bound) ?? 0) + value);
  }
  return [...counts].sort(([a], [b]) => a - b);
}

/**
 * The quantile of what a histogram took in between two readings, interpolated within its bucket; `null` if that was nothing, or if
 * the histogram began anew.
 */
export function quantileBetween(before: FigureSet, after: FigureSet, name: string, share: number): number | null {
  const earlier = new Map(bucketsOf(before, name));
  const grown = bucketsOf(after, name).map(([bound, count]) => [bound, count - (earlier.get(bound) ?? 0)] as const);
  const all = grown.at(-1)?.[1] ?? 0;
  if (all <= 0 || grown.some(([, count]) => count < 0)) return null;
  const wanted = all * share;
  let [low, below] = [0, 0];
  for (const [bound, count] of grown) {
    if (count >= wanted && count > below) {
      // Beyond the last bound nothing is known but that.
      if (bound === Infinity) return low;
      return low + ((bound - low) * (wanted - below)) / (count - below);
    }
    [low, below] = [bound, count];
  }
  return null;
}
