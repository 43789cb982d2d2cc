import { useSyncExternalStore } from "react";
import { AS_OF, moveTo, subscribe } from "./location";

/** Of a recording, whose page opens as of its end: the present all the same. */
const NOW = "now";
/** As addresses hold instants. What else `Date.parse` makes of a text depends on the browser: to some of them "9" is a month. */
const WRITTEN = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?$/i;

function said(): string | null {
  return new URLSearchParams(window.location.search).get(AS_OF);
}

function instantIn(text: string): number | null {
  const at = WRITTEN.test(text) ? Date.parse(text) : NaN;
  return Number.isNaN(at) ? null : at;
}

/** Whether the address says as of when, and be it now. What it says without being understood says nothing. */
export function isInstantSaid(): boolean {
  const text = said();
  return text === NOW || instantIn(text ?? "") !== null;
}

/** What the address says instead of an instant; null: nothing, or it is understood. */
function misunderstood(): string | null {
  const text = said() ?? "";
  return text === "" || isInstantSaid() ? null : text;
}

/** The instant as of which the fleet is shown, in milliseconds since 1970; null: now. */
export function chosenInstant(): number | null {
  return instantIn(said() ?? "");
}

/** Renders again when another instant is chosen. */
export function useInstant(): number | null {
  return useSyncExternalStore(subscribe, chosenInstant);
}

/** As `misunderstood`, and renders again when the address says something else. */
export function useMisunderstoodInstant(): string | null {
  return useSyncExternalStore(subscribe, misunderstood);
}

/** The present of the page: the chosen instant, or now. */
export function present(): number {
  return chosenInstant() ?? Date.now();
}

/** Shows the fleet as of an instant; `now`: as of now, though it is a recording; null: nothing is said. No step in the history. */
export function chooseInstant(at: number | typeof NOW | null): void {
  const params = new URLSearchParams(window.location.search);
  if (at === null) params.delete(AS_OF);
  else params.set(AS_OF, at === NOW ? NOW : new Date(at).toISOString().replace(".000Z", "Z"));
  moveTo(window.location.pathname + (params.size === 0 ? "" : `?${params}`), { replace: true });
}
