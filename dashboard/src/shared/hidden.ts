import { useSyncExternalStore } from "react";

function subscribe(tell: () => void): () => void {
  document.addEventListener("visibilitychange", tell);
  return () => document.removeEventListener("visibilitychange", tell);
}

/** Whether somebody may see the page: its tab is in front. */
export function useIsShown(): boolean {
  return useSyncExternalStore(subscribe, () => !document.hidden);
}
