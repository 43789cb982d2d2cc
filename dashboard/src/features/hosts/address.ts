import { address, pageNumber, sortBy, text } from "../../shared/address";

/** What the list of hosts shows; without an order the most trouble first. */
export const HOSTS = address("/hosts", { search: text(), sort: sortBy(), page: pageNumber() });
