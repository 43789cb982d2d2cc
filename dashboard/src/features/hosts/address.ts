import { address, pageNumber, sortBy, text, type StateOf } from "../../shared/address";

export const COLUMNS = ["host", "findings", "gpus", "free", "model", "cpu", "memory", "last_seen"] as const;
export type Column = (typeof COLUMNS)[number];

/** What the list of hosts shows; without an order the most trouble first. */
export const HOSTS = address("/hosts", { search: text(), sort: sortBy(COLUMNS), page: pageNumber() });
export type HostsState = StateOf<typeof HOSTS>;
