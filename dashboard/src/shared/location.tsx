import type { AnchorHTMLAttributes, MouseEvent } from "react";
import { useSyncExternalStore } from "react";

/** Where the page is. All page state lives here, so that a link shows another person the same view. */
export interface Place {
  readonly pathname: string;
  readonly search: string;
}

const MOVED = "gpuvitals:moved";

/** Calls whenever the address changes. */
export function subscribe(listener: () => void): () => void {
  window.addEventListener("popstate", listener);
  window.addEventListener(MOVED, listener);
  return () => {
    window.removeEventListener("popstate", listener);
    window.removeEventListener(MOVED, listener);
  };
}

function current(): string {
  return window.location.pathname + window.location.search;
}

export function usePlace(): Place {
  const here = useSyncExternalStore(subscribe, current);
  const question = here.indexOf("?");
  return question < 0
    ? { pathname: here, search: "" }
    : { pathname: here.slice(0, question), search: here.slice(question + 1) };
}

/** The parameter that all addresses share and that stays when the page moves: as of when the fleet is shown. */
export const AS_OF = "at";

function kept(): string | null {
  return new URLSearchParams(window.location.search).get(AS_OF);
}

/** A path with what stays of the address. */
function keeping(path: string): string {
  const said = kept();
  if (said === null) return path;
  const [pathname = "", search = ""] = path.split("?");
  const params = new URLSearchParams(search);
  params.set(AS_OF, params.get(AS_OF) ?? said);
  return `${pathname}?${params}`;
}

/** Goes to a path of this page; `replace` for changes that do not deserve a step in the history. */
export function goTo(path: string, options: { replace?: boolean } = {}): void {
  moveTo(keeping(path), options);
}

/** As `goTo`; nothing of the address before stays. */
export function moveTo(path: string, options: { replace?: boolean } = {}): void {
  if (path === current()) return;
  if (options.replace === true) window.history.replaceState(null, "", path);
  else window.history.pushState(null, "", path);
  window.dispatchEvent(new Event(MOVED));
}

type LinkProps = Omit<AnchorHTMLAttributes<HTMLAnchorElement>, "href"> & { to: string };

/** An ordinary link that does not reload the page; modified clicks stay the browser's. */
export function Link({ to, onClick, ...rest }: LinkProps) {
  // A row that says the same as of another instant is not drawn again; where its links lead is another place all the same.
  useSyncExternalStore(subscribe, kept);
  const follow = (event: MouseEvent<HTMLAnchorElement>) => {
    onClick?.(event);
    const modified = event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
    if (event.defaultPrevented || modified || event.button !== 0) return;
    event.preventDefault();
    goTo(to);
    window.scrollTo(0, 0);
  };
  return <a {...rest} href={keeping(to)} onClick={follow} />;
}
