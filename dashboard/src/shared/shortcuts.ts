import { useEffect, useRef } from "react";

/** What a key does; the keys are `KeyboardEvent.key`. */
export type Shortcuts = Readonly<Record<string, (event: KeyboardEvent) => void>>;

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

/** Keys for the whole page while the component is shown. They rest while someone types or a dialog is open. */
export function useShortcuts(shortcuts: Shortcuts): void {
  const held = useRef(shortcuts);
  useEffect(() => {
    held.current = shortcuts;
  });
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (isTyping(event.target) || document.querySelector("dialog[open]") !== null) return;
      const act = held.current[event.key];
      if (act === undefined) return;
      event.preventDefault();
      act(event);
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);
}
