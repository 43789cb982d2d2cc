import { useSyncExternalStore } from "react";
import { keptChoice } from "./kept";

const choice = keptChoice("zone", ["local", "UTC"]);

/** Whether times are shown in UTC instead of the zone of the person who looks. */
export function isUtc(): boolean {
  return choice.current() === "UTC";
}

export const nextZone = choice.next;

/** Renders again when another zone is chosen. */
export function useZone(): string {
  return useSyncExternalStore(choice.subscribe, zoneName);
}

/** The zone in which times are shown, by name. */
export function zoneName(): string {
  return isUtc() ? "UTC" : localName();
}

/** Whether the two zones differ: in UTC there is nothing to choose. */
export function hasZones(): boolean {
  return localName() !== "UTC";
}

function localName(): string {
  const name = (Intl.DateTimeFormat().resolvedOptions() as { readonly timeZone?: string }).timeZone ?? "";
  if (name === "Etc/UTC" || name === "UTC") return "UTC";
  return name === "" || name === "Etc/Unknown" ? "your zone" : name;
}
