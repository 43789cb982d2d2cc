// Strips of time: who had something, or what it did, as stretches from one instant to another.

/** The same from an instant to another. */
export interface Stretch {
  readonly start: number;
  readonly end: number;
  readonly what: string;
}

/** A line of a strip. */
export interface StripLine {
  readonly id: string;
  readonly name: string;
  /** Where its name leads; null: nowhere. */
  readonly path: string | null;
  /** In their order; between two of them nothing is known. */
  readonly stretches: readonly Stretch[];
}

/** Joins steps in which the same holds. In a step without a word nothing is known. */
export function stretchesOf(times: readonly number[], stepMs: number, what: (step: number) => string | null): Stretch[] {
  const stretches: Stretch[] = [];
  times.forEach((start, step) => {
    const word = what(step);
    if (word === null) return;
    const last = stretches.at(-1);
    if (last?.what === word && last.end >= start) stretches[stretches.length - 1] = { ...last, end: start + stepMs };
    else stretches.push({ start, end: start + stepMs, what: word });
  });
  return stretches;
}

/** What there is in some lines, each once, in the order in which it comes first. */
export function wordsIn(lines: readonly StripLine[]): string[] {
  const all = lines.flatMap(({ stretches }) => stretches);
  return [...new Set([...all].sort((one, other) => one.start - other.start).map(({ what }) => what))];
}

/** Colours that can be told apart; the last one is of all others. */
const COLOURS = 6;

/** A colour for each word; `plain` have none of the colours of lines. */
export function coloursOf(words: readonly string[], plain: Readonly<Record<string, string>>): ReadonlyMap<string, string> {
  // Not by the object itself: a job may be called as one of its methods.
  const known = new Map(Object.entries(plain));
  const coloured = words.filter((word) => !known.has(word));
  return new Map([...known, ...coloured.map((word, place) => [word, `var(--line-${Math.min(place + 1, COLOURS)})`] as const)]);
}
