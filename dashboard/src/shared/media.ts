import { useSyncExternalStore } from "react";

/** Whether a media query holds. Layouts that differ in markup (table or cards) ask here; the rest is CSS. */
export function useMedia(query: string): boolean {
  return useSyncExternalStore(
    (listener) => {
      const media = window.matchMedia(query);
      media.addEventListener("change", listener);
      return () => media.removeEventListener("change", listener);
    },
    () => window.matchMedia(query).matches,
  );
}
