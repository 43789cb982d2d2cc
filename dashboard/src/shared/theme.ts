import { useSyncExternalStore } from "react";

/** What was chosen; `system` follows the operating system. */
export type ThemeChoice = "system" | "light" | "dark";
export type Theme = "light" | "dark";

const KEY = "gpuvitals.theme";
const CHANGED = "gpuvitals:theme";
const NEXT: Readonly<Record<ThemeChoice, ThemeChoice>> = { system: "light", light: "dark", dark: "system" };

function systemIsDark(): MediaQueryList {
  return window.matchMedia("(prefers-color-scheme: dark)");
}

function stored(): ThemeChoice {
  try {
    const text = window.localStorage.getItem(KEY);
    return text === "light" || text === "dark" ? text : "system";
  } catch {
    return "system"; // storage is forbidden here: the system's choice is a good one
  }
}

function resolve(choice: ThemeChoice): Theme {
  if (choice !== "system") return choice;
  return systemIsDark().matches ? "dark" : "light";
}

/** Puts the theme on the document; called once before the first paint and after each change. */
export function applyTheme(): void {
  document.documentElement.dataset.theme = resolve(stored());
}

export function nextTheme(): void {
  try {
    window.localStorage.setItem(KEY, NEXT[stored()]);
  } catch {
    return;
  }
  applyTheme();
  window.dispatchEvent(new Event(CHANGED));
}

function subscribe(listener: () => void): () => void {
  const system = systemIsDark();
  const changed = () => {
    applyTheme();
    listener();
  };
  window.addEventListener(CHANGED, listener);
  system.addEventListener("change", changed);
  return () => {
    window.removeEventListener(CHANGED, listener);
    system.removeEventListener("change", changed);
  };
}

export function useTheme(): { choice: ThemeChoice; theme: Theme } {
  const choice = useSyncExternalStore(subscribe, stored);
  const theme = useSyncExternalStore(subscribe, () => resolve(stored()));
  return { choice, theme };
}
