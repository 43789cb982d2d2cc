import { address, count, text } from "../../shared/address";

/** Of which topic the dead letters are shown, from which id on. */
export const QUEUE = address("/queue", { dead: text(), from: count(0) });
