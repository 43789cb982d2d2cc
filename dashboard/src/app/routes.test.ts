import { expect, it } from "vitest";
import { PAGES } from "./pages";
import { routeOf, titleOf } from "./routes";

it.each([
  ["/", "/", {}],
  ["/gpus", "/gpus", {}],
  ["/gpus/GPU-1/", "/gpus/:id", { id: "GPU-1" }],
  ["/gpus/0000%3Ac1%3A00.0%40n", "/gpus/:id", { id: "0000:c1:00.0@n" }],
  ["/gpus/a%2Fb", "/gpus/:id", { id: "a/b" }],
  ["/hosts/node-07.example", "/hosts/:name", { name: "node-07.example" }],
  ["/jobs/pod%3Ateam%2Fa%2Fmain", "/jobs/:id", { id: "pod:team/a/main" }],
  ["/clusters", "/clusters", {}],
  ["/clusters/", "/clusters", {}],
  ["/clusters/east/node-07.example", "/clusters/:cluster/:node", { cluster: "east", node: "node-07.example" }],
  ["/clusters/a%20b/c%2Fd", "/clusters/:cluster/:node", { cluster: "a b", node: "c/d" }],
])("%s is %s", (path, pattern, named) => {
  const route = routeOf(path);
  expect(route?.page.path).toBe(pattern);
  expect(route?.named).toEqual(named);
});

it.each(["/gpus/%zz", "/gpus/a/b", "/clusters/east", "/clusters/%zz/a", "/clusters//a", "/nowhere"])("%s is no page", (path) => {
  expect(routeOf(path)).toBeNull();
});

it.each([
  ["/", "gpuvitals"],
  ["/nowhere", "gpuvitals"],
  ["/hosts", "Hosts · gpuvitals"],
  ["/clusters/east/n1", "n1 · east · gpuvitals"],
])("%s is called %s", (path, title) => expect(titleOf(routeOf(path))).toBe(title));

it("a path, a tab and a key lead to one page each, and a page below another names one that has a tab", () => {
  for (const marks of [PAGES.map(({ path }) => path), PAGES.flatMap(({ tab }) => tab ?? []), PAGES.flatMap(({ key }) => key?.[0] ?? [])]) {
    expect(new Set(marks).size).toBe(marks.length);
  }
  const tabs = new Set(PAGES.filter(({ tab }) => tab !== undefined).map(({ path }) => path));
  expect(PAGES.flatMap(({ under }) => under ?? []).filter((path) => !tabs.has(path))).toEqual([]);
});

it("the server answers each of them with the page", async () => {
  // `npx vitest run src/app/routes.test.ts -u` writes the list anew.
  await expect(PAGES.map(({ path }) => `${path}\n`).join("")).toMatchFileSnapshot("../../../crates/api/src/route/pages.txt");
});
