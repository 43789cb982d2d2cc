import { useSyncExternalStore } from "react";

/** Since when the API has not answered, in ms since 1970; `null` while it answers. */
let silentSince: number | null = null;
const listeners = new Set<() => void>();

function set(value: number | null): void {
  if (value === silentSince) return;
  silentSince = value;
  for (const listener of listeners) listener();
}

export function answered(): void {
  set(null);
}

export function unanswered(): void {
  set(silentSince ?? Date.now());
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useUnreachableSince(): number | null {
  return useSyncExternalStore(subscribe, () => silentSince);
}
