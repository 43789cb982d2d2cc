import { act, renderHook } from "@testing-library/react";
import { expect, it } from "vitest";
import { address, count, flag, names, oneOf, pageNumber, sortBy, text, useAddress } from "./address";

const LIST = address("/of/:owner/list", { search: text(), view: oneOf(["list", "map"], "list"), sort: sortBy("-a"), from: count(0), open: flag(null), picked: names(), page: pageNumber() });

it.each([
  ["", {}],
  ["search=a%20b&view=map&sort=b&from=7&open=0&picked=x,,y,x&page=2", { search: "a b", view: "map", sort: "b", from: 7, open: false, picked: ["x", "y"], page: 2 }],
  ["view=globe&sort=Con7&from=-1&open=maybe&page=0&other=1", {}],
  ["from=1.5&page=1e99&sort=--a", {}],
])("%s is read", (search, part) => {
  expect(LIST.read(search)).toEqual({ ...LIST.defaults, ...part });
});

it.each([
  [{}, "/of/a%2Fb/list"],
  [{ view: "list", sort: "-a", page: 1, picked: [], open: null } as const, "/of/a%2Fb/list"],
  [{ page: 3, sort: "a", open: false, picked: ["x", "y"], search: "&" }, "/of/a%2Fb/list?search=%26&sort=a&open=0&picked=x%2Cy&page=3"],
])("%o is written as %s and read back", (part, path) => {
  expect(LIST.to({ owner: "a/b", ...part })).toBe(path);
  expect(LIST.read(path.split("?")[1] ?? "")).toEqual({ ...LIST.defaults, ...part });
});

it("what is said may mean nothing beside another", () => {
  const both = address("/", { view: oneOf(["list", "map"], "list"), zoom: count(1) }, (state) => (state.view === "list" ? { ...state, zoom: 1 } : state));
  expect(both.read("zoom=4").zoom).toBe(1);
  expect(both.read("view=map&zoom=4").zoom).toBe(4);
});

it("a page changes its address in place, and begins with the first part of a list again", () => {
  window.history.replaceState(null, "", "/of/a/list?search=x&page=4");
  const steps = window.history.length;
  const { result } = renderHook(() => useAddress(LIST));
  expect(result.current.pathTo({ page: 5 })).toBe("/of/a/list?search=x&page=5");
  act(() => result.current.change({ sort: "b" }));
  expect(window.location.pathname + window.location.search).toBe("/of/a/list?search=x&sort=b");
  expect(result.current.state).toMatchObject({ sort: "b", page: 1 });
  act(() => result.current.change({ page: 2 }));
  expect(result.current.state.page).toBe(2);
  expect(window.history.length).toBe(steps);
});

it("what is not understood is told, with what would be", () => {
  expect(LIST.unread("search=&view=globe&sort=Con7&from=-1&open=maybe&page=0&other=1&at=yesterday&picked=a")).toEqual([
    { name: "view", said: "globe", isParameter: true, known: "list, map" },
    { name: "sort", said: "Con7", isParameter: true, known: "a column, with - before it for descending" },
    { name: "from", said: "-1", isParameter: true, known: "a whole number from 0 on" },
    { name: "open", said: "maybe", isParameter: true, known: "1, 0" },
    { name: "page", said: "0", isParameter: true, known: "a whole number from 1 on" },
    { name: "other", said: "1", isParameter: false, known: "search, view, sort, from, open, picked, page" },
  ]);
  expect(LIST.unread("search=b&view=&page=2")).toEqual([]);
});

it("what is not understood stays in the address until something else is said there", () => {
  window.history.replaceState(null, "", "/of/a/list?view=globe&other=1");
  const { result } = renderHook(() => useAddress(LIST));
  const here = () => window.location.pathname + window.location.search;
  expect(result.current.pathTo({ page: 2 })).toBe("/of/a/list?page=2&view=globe&other=1");
  act(() => result.current.change({ search: "x" }));
  expect(here()).toBe("/of/a/list?search=x&view=globe&other=1");
  act(() => result.current.change({ view: "list" }));
  expect(here()).toBe("/of/a/list?search=x&other=1");
});
