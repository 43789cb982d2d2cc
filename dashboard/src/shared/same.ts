import { replaceEqualDeep } from "@tanstack/react-query";
import { useState } from "react";

/** A value that is made anew again and again: its parts that say the same as before are those of before, so that what is drawn of them is not drawn again. */
export function useShared<T>(made: T): T {
  const [held, setHeld] = useState(made);
  const shared = replaceEqualDeep(held, made);
  if (shared !== held) setHeld(shared);
  return shared;
}
