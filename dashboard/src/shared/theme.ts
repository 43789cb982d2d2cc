import { useSyncExternalStore } from "react";
import { keptChoice } from "./kept";

/** What was chosen; `system` follows the operating system. */
export type ThemeChoice = "system" | "light" | "dark";
export type Theme = "light" | "dark";

const choice = keptChoice<ThemeChoice>("theme", ["system", "light", "dark"]);

function systemIsDark(): MediaQueryList {
  return window.matchMedia("(prefers-color-scheme: dark)");
}

function resolved(): Theme {
  const chosen = choice.current();
  if (chosen !== "system") return chosen;
  return systemIsDark().matches ? "dark" : "light";
}

/** Puts the theme on the document; called once before the first paint and after each change. */
export function applyTheme(): void {
  document.documentElement.dataset.theme = resolved();
}

export const nextTheme = choice.next;

function subscribe(listener: () => void): () => void {
  const system = systemIsDark();
  const changed = () => {
    applyTheme();
    listener();
  };
  const leave = choice.subscribe(changed);
  system.addEventListener("change", changed);
  return () => {
    leave();
    system.removeEventListener("change", changed);
  };
}

export function useTheme(): { choice: ThemeChoice; theme: Theme } {
  return { choice: useSyncExternalStore(subscribe, choice.current), theme: useSyncExternalStore(subscribe, resolved) };
}
