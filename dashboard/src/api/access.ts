import { useSyncExternalStore } from "react";

// A token that a person has given to this page. It lives as long as the page and goes only into a header: nothing stores it, and
// no address holds it. A browser that asks its user for a login by itself needs none here.

let token = "";
/** Whether the last answer asked for a token. */
let asked = false;
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Takes a token for all requests from now on; an empty one takes it back. */
export function setToken(text: string): void {
  token = text.trim();
}

export function authorization(): string | null {
  return token === "" ? null : `Bearer ${token}`;
}

/** Notes whether a service wants a token before it says anything. */
export function noteAccess(wants: boolean): void {
  if (wants === asked) return;
  asked = wants;
  for (const listener of listeners) listener();
}

export function useTokenAsked(): boolean {
  return useSyncExternalStore(subscribe, () => asked);
}
