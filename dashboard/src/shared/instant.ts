import { useSyncExternalStore } from "react";
import { AS_OF, moveTo, subscribe } from "./location";

/** Of a recording, whose page opens as of its end: the present all the same. */
const NOW = "now";

function said(): string | null {
  return new URLSearchParams(window.location.search).get(AS_OF);
}

/** Whether the address says as of when, and be it now. */
export function isInstantSaid(): boolean {
  return said() !== null;
}

/** The instant as of which the fleet is shown, in milliseconds since 1970; null: now. */
export function chosenInstant(): number | null {
  const at = Date.parse(said() ?? "");
  return Number.isNaN(at) ? null : at;
}

/** Renders again when another instant is chosen. */
export function useInstant(): number | null {
  return useSyncExternalStore(subscribe, chosenInstant);
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
