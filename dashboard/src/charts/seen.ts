import { useEffect, useState, type RefObject } from "react";

/** How near to the screen a chart is drawn, so that it is there when it comes into view. */
const NEAR_SCREEN = "200px";

/** Whether an element is on the screen or near to it. */
export function useIsSeen(element: RefObject<HTMLElement | null>): boolean {
  const [isSeen, setIsSeen] = useState(false);
  useEffect(() => {
    if (element.current === null) return;
    const watcher = new IntersectionObserver((entries) => setIsSeen(entries.at(-1)?.isIntersecting === true), { rootMargin: NEAR_SCREEN });
    watcher.observe(element.current);
    return () => watcher.disconnect();
  }, [element]);
  return isSeen;
}
