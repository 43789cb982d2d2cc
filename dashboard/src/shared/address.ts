import { useCallback, useMemo } from "react";
import { AS_OF, goTo, usePlace } from "./location";

/** How a part of an address is read and written. */
export interface Field<Value> {
  /** The parameters of a field with this name; absent: one of the same name. */
  readonly parameters?: readonly string[];
  /** What is understood, in words; absent: any text. */
  readonly known?: string;
  /** What holds where the address says nothing or something that is not understood, so that an old link still opens. It is left out. */
  readonly fallback: Value;
  /** Null: nothing is said, or it is not understood. */
  readonly read: (params: URLSearchParams, name: string) => Value | null;
  /** The parameters that say it. */
  readonly write: (value: Value, name: string) => Readonly<Record<string, string>>;
}

/** One parameter, which has the name of its field. `known` says in words what is understood. */
export function field<Value>(fallback: Value, known: string, parse: (text: string) => Value | null, print: (value: Value) => string = String): Field<Value> {
  const read = (params: URLSearchParams, name: string) => {
    const text = params.get(name);
    return text === null ? null : parse(text);
  };
  return { fallback, known, read, write: (value, name) => ({ [name]: print(value) }) };
}

export function text(): Field<string> {
  return field("", "any text", (said) => said);
}

export function oneOf<Value extends string>(known: readonly Value[], fallback: Value): Field<Value> {
  return field(fallback, known.join(", "), (said) => known.find((each) => each === said) ?? null);
}

/** What fits a pattern. */
export function fitting(pattern: RegExp, known: string, fallback: string): Field<string> {
  return field(fallback, known, (said) => (pattern.test(said) ? said : null));
}

/** A column, with `-` before it for descending; empty: the order of the list itself. Which columns there are, only the list knows. */
export function sortBy(fallback = ""): Field<string> {
  return fitting(/^-?[a-z_]+$/, "a column, with - before it for descending", fallback);
}

/** A whole number that is at least the fallback. */
export function count(fallback: number): Field<number> {
  return field(fallback, `a whole number from ${fallback} on`, (said) => (Number.isSafeInteger(Number(said)) && Number(said) >= fallback ? Number(said) : null));
}

/** Which part of a list is shown, counted from 1. Another order or filter begins with the first. */
export function pageNumber(): Field<number> {
  return count(1);
}

/** Yes or no; with null as fallback the choice may be left open. */
export function flag<Fallback extends boolean | null>(fallback: Fallback): Field<boolean | Fallback> {
  return field<boolean | Fallback>(
    fallback,
    "1, 0",
    (said) => (said === "1" ? true : said === "0" ? false : null),
    (value) => (value === null ? "" : value ? "1" : "0"),
  );
}

/** Names without commas, each once. */
export function names(): Field<readonly string[]> {
  return field<readonly string[]>(
    [],
    "names between commas",
    (said) => [...new Set(said.split(",").filter((name) => name !== ""))],
    (all) => all.join(","),
  );
}

/** The parts of a path that name something: of `/gpus/:id` the `id`. */
export type Named<Path extends string> = Path extends `${string}/:${infer Name}/${infer Rest}`
  ? Readonly<Record<Name, string>> & Named<`/${Rest}`>
  : Path extends `${string}/:${infer Name}`
    ? Readonly<Record<Name, string>>
    : unknown;

/** A parameter of an address that is not understood. */
export interface Unread {
  readonly name: string;
  readonly said: string;
  /** Whether there is such a parameter at all. */
  readonly isParameter: boolean;
  /** What is understood there; where there is no such parameter, which there are. */
  readonly known: string;
}

/** What a page shows, as its address says it. */
interface Said<State> {
  readonly defaults: State;
  readonly read: (search: string) => State;
  /** The query string, with its question mark; what is at its default is left out, so that the default view has a clean address. */
  readonly search: (state: Partial<State>) => string;
  /** What of an address is not understood: its fallback holds. */
  readonly unread: (search: string) => readonly Unread[];
  /** The parameters that a field has. */
  readonly parametersOf: (name: keyof State & string) => readonly string[];
}

/** Where a page stands, and what of it the address holds. */
export interface Address<Path extends string, State> extends Said<State> {
  readonly path: Path;
  /** The way to the page; what is not said is at its default. */
  readonly to: (said: Partial<State> & Named<Path>) => string;
}

/** What a page shows, by an address. */
export type StateOf<Of> = Of extends Address<string, infer State> ? State : Of extends Said<infer State> ? State : never;

/** An address with these fields, in this order. `meant` makes a whole of what was said: a field may mean nothing beside another. */
export function address<Path extends string, State extends object>(
  path: Path,
  fields: { readonly [Name in keyof State]: Field<State[Name]> },
  meant: (state: Readonly<State>) => State = (state) => state,
): Address<Path, Readonly<State>> {
  const all = Object.keys(fields) as (keyof State & string)[];
  const read = (search: string) => {
    const params = new URLSearchParams(search);
    return meant(Object.fromEntries(all.map((name) => [name, fields[name].read(params, name) ?? fields[name].fallback])) as State);
  };
  const search = (state: Partial<State>) => {
    const params = new URLSearchParams();
    for (const name of all) {
      const value = state[name];
      if (value === undefined) continue;
      const { write, fallback } = fields[name];
      const parts = Object.entries(write(value, name));
      if (JSON.stringify(parts) === JSON.stringify(Object.entries(write(fallback, name)))) continue;
      for (const [key, said] of parts) if (said !== "") params.set(key, said);
    }
    return params.size === 0 ? "" : `?${params}`;
  };
  const parametersOf = (name: keyof State & string) => fields[name].parameters ?? [name];
  const unread = (search: string) => {
    const params = new URLSearchParams(search);
    const ofNone = [...new Set(params.keys())].filter((key) => key !== AS_OF && !all.some((name) => parametersOf(name).includes(key)));
    const wrong = all
      .filter((name) => fields[name].read(params, name) === null)
      .flatMap((name) => parametersOf(name).map((key): Unread => ({ name: key, said: params.get(key) ?? "", isParameter: true, known: fields[name].known ?? "any text" })));
    return [...wrong, ...ofNone.map((name): Unread => ({ name, said: params.get(name) ?? "", isParameter: false, known: all.flatMap(parametersOf).join(", ") }))].filter(({ said }) => said !== "");
  };
  const to = (said: Partial<State> & Named<Path>) => {
    const named = said as Readonly<Record<string, string>>;
    return path.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(named[name] ?? "")) + search(said);
  };
  return { path, defaults: read(""), read, search, unread, parametersOf, to };
}

/** What the page shows by its address, the way to it with something changed, and the change itself, which is no step in the history. */
export function useAddress<State extends object>(said: Said<State>) {
  const { read, defaults } = said;
  const place = usePlace();
  const state = useMemo(() => read(place.search), [read, place.search]);
  const change = useCallback(
    (part: Partial<State>) => {
      const first = "page" in defaults ? { page: defaults.page } : {};
      goTo(window.location.pathname + searchWith(said, window.location.search, { ...first, ...part }), { replace: true });
    },
    [said, defaults],
  );
  return { state, change, pathTo: (part: Partial<State>) => place.pathname + searchWith(said, place.search, part) };
}

/** A query string with some of it changed. What is not understood stays in it, and stays to be seen, until something else is said there. */
function searchWith<State extends object>({ read, search, unread, parametersOf }: Said<State>, before: string, part: Partial<State>): string {
  const params = new URLSearchParams(search({ ...read(before), ...part }));
  const changed = new Set((Object.keys(part) as (keyof State & string)[]).flatMap(parametersOf));
  for (const { name, said } of unread(before)) if (!changed.has(name)) params.set(name, said);
  return params.size === 0 ? "" : `?${params}`;
}
