/** A choice of the person who looks, which the browser keeps for all visits. It is no part of an address: a link must not change it. */
export interface Kept<Choice extends string> {
  readonly current: () => Choice;
  /** Takes the choice after the current one. */
  readonly next: () => void;
  readonly subscribe: (listener: () => void) => () => void;
}

/** The first choice is the one of those who never chose, and where the browser keeps nothing. */
export function keptChoice<Choice extends string>(name: string, choices: readonly [Choice, ...Choice[]]): Kept<Choice> {
  const key = `gpuvitals.${name}`;
  const changed = `gpuvitals:${name}`;
  const current = () => {
    try {
      const text = window.localStorage.getItem(key);
      return choices.find((choice) => choice === text) ?? choices[0];
    } catch {
      return choices[0];
    }
  };
  return {
    current,
    next: () => {
      try {
        window.localStorage.setItem(key, choices[(choices.indexOf(current()) + 1) % choices.length] ?? choices[0]);
      } catch {
        return;
      }
      window.dispatchEvent(new Event(changed));
    },
    subscribe: (listener) => {
      window.addEventListener(changed, listener);
      return () => window.removeEventListener(changed, listener);
    },
  };
}
