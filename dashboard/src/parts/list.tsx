import { ChevronLeft, ChevronRight, Search, X } from "lucide-react";
import { useEffect, useRef, useState, type KeyboardEvent, type RefObject } from "react";
import { goTo } from "../shared/location";
import { useShortcuts } from "../shared/shortcuts";

// What every list of the page has: a search, pages, and keys that walk it.

const TYPING_PAUSE_MS = 200;

interface SearchFieldProps {
  readonly label: string;
  readonly placeholder: string;
  /** What the address says; it changes also without typing, by a link or the back button. */
  readonly searched: string;
  readonly onChange: (text: string) => void;
  /** What Enter does, if it does not wait for the pause. */
  readonly onEnter?: (text: string) => void;
  /** What Escape does beside leaving the field. */
  readonly onEscape?: () => void;
  /** The field, for those who lead to it: a key. */
  readonly field?: RefObject<HTMLInputElement | null>;
  readonly className?: string;
}

/** Asks when the typing pauses, not at each letter. */
export function SearchField({ label, placeholder, searched, onChange, onEnter, onEscape, field, className = "w-full sm:w-72" }: SearchFieldProps) {
  const [text, setText] = useState(searched);
  const [followed, setFollowed] = useState(searched);
  if (followed !== searched) {
    setFollowed(searched);
    if (searched !== text.trim()) setText(searched);
  }
  const pause = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(pause.current), []);
  const type = (next: string) => {
    setText(next);
    clearTimeout(pause.current);
    pause.current = setTimeout(() => onChange(next.trim()), TYPING_PAUSE_MS);
  };
  const press = (event: KeyboardEvent<HTMLInputElement>) => {
    if (event.key === "Escape") {
      event.currentTarget.blur();
      onEscape?.();
    }
    if (event.key !== "Enter" || onEnter === undefined) return;
    clearTimeout(pause.current);
    onEnter(text.trim());
  };
  return (
    <label className={`relative ${className}`}>
      <span className="sr-only">{label}</span>
      <Search size={14} className="pointer-events-none absolute top-1/2 left-2.5 -translate-y-1/2 text-faint" aria-hidden />
      <input
        ref={field}
        type="search"
        className="field w-full pl-8!"
        placeholder={placeholder}
        autoComplete="off"
        spellCheck={false}
        value={text}
        onChange={(event) => type(event.target.value)}
        onKeyDown={press}
      />
      {text === "" && field !== undefined && <kbd aria-hidden className="key absolute top-1/2 right-2 hidden -translate-y-1/2 text-faint sm:block">/</kbd>}
    </label>
  );
}

interface SelectProps {
  readonly label: string;
  /** What is chosen; empty is all. */
  readonly value: string;
  readonly all: string;
  /** Value and words of each choice. */
  readonly options: readonly (readonly [string, string])[];
  readonly onChange: (value: string) => void;
  readonly className?: string;
}

/** A choice among values; one in the address that is no longer there can still be seen, and left. */
export function Select({ label, value, all, options, onChange, className = "sm:w-48" }: SelectProps) {
  const listed = value === "" || options.some(([option]) => option === value);
  return (
    <label className="min-w-0 flex-1 basis-[40%] sm:flex-none sm:basis-auto">
      <span className="sr-only">{label}</span>
      <select className={`field w-full max-w-full ${className}`} value={value} onChange={(event) => onChange(event.target.value)}>
        <option value="">{all}</option>
        {!listed && <option value={value}>{value}</option>}
        {options.map(([option, words]) => (
          <option key={option} value={option}>
            {words}
          </option>
        ))}
      </select>
    </label>
  );
}

export function ClearFilters({ onClick }: { readonly onClick: () => void }) {
  return (
    <button type="button" className="button quiet" onClick={onClick}>
      <X size={13} aria-hidden /> Clear filters
    </button>
  );
}

/** Counted from 1. */
interface Paging {
  readonly page: number;
  readonly hasNext: boolean;
  readonly pathOf: (page: number) => string;
}

/** j and k walk the rows by moving the focus from link to link (`data-row`), so that Enter is simply the browser's. */
export function useListKeys({ page, hasNext, pathOf }: Paging): void {
  const step = (by: number) => {
    const links = [...document.querySelectorAll<HTMLAnchorElement>("a[data-row]")];
    const at = links.findIndex((link) => link === document.activeElement);
    const next = at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + by));
    links[next]?.focus();
    links[next]?.scrollIntoView({ block: "nearest" });
  };
  const turn = (by: number) => {
    if (by > 0 ? hasNext : page > 1) goTo(pathOf(page + by));
  };
  useShortcuts({
    j: () => step(1),
    k: () => step(-1),
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    "]": () => turn(1),
    "[": () => turn(-1),
  });
}

interface PagesProps extends Paging {
  readonly size: number;
  readonly total: number;
}

export function Pages({ page, hasNext, pathOf, size, total }: PagesProps) {
  if (total <= size && page === 1) return null;
  const first = (page - 1) * size + 1;
  const last = Math.min(total, page * size);
  const to = (other: number) => {
    goTo(pathOf(other));
    window.scrollTo(0, 0);
  };
  return (
    <nav aria-label="Pages of the list" className="mt-3 flex items-center justify-end gap-2 text-[13px]">
      <span className="num mr-1 text-muted">
        {first.toLocaleString("en")}–{last.toLocaleString("en")} of {total.toLocaleString("en")}
      </span>
      <button type="button" className="button square" aria-label="Previous page" title="Previous page ([)" disabled={page === 1} onClick={() => to(page - 1)}>
        <ChevronLeft size={15} aria-hidden />
      </button>
      <button type="button" className="button square" aria-label="Next page" title="Next page (])" disabled={!hasNext} onClick={() => to(page + 1)}>
        <ChevronRight size={15} aria-hidden />
      </button>
    </nav>
  );
}

/** What stands where rows will be. */
export function WaitingRows({ label, rows = 12 }: { readonly label: string; readonly rows?: number }) {
  return (
    <div role="status" aria-label={label} className="card divide-y divide-line">
      {Array.from({ length: rows }, (_, row) => (
        <div key={row} className="flex items-center gap-6 px-3.5 py-3">
          <div className="waiting h-3.5 w-48" />
          <div className="waiting h-3.5 w-28" />
          <div className="waiting ml-auto h-3.5 w-24" />
        </div>
      ))}
    </div>
  );
}
