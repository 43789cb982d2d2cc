import { expect, it } from "vitest";
import { routeOf } from "./routes";

it.each([
  ["/", { page: "now" }],
  ["/gpus", { page: "fleet" }],
  ["/gpus/GPU-1/", { page: "gpu", id: "GPU-1" }],
  ["/gpus/0000%3Ac1%3A00.0%40n", { page: "gpu", id: "0000:c1:00.0@n" }],
  ["/gpus/a%2Fb", { page: "gpu", id: "a/b" }],
  ["/gpus/%zz", { page: "missing" }],
  ["/gpus/a/b", { page: "missing" }],
  ["/clusters", { page: "clusters" }],
  ["/clusters/", { page: "clusters" }],
  ["/clusters/east/node-07.example", { page: "node", cluster: "east", node: "node-07.example" }],
  ["/clusters/a%20b/c%2Fd", { page: "node", cluster: "a b", node: "c/d" }],
  ["/clusters/east", { page: "missing" }],
  ["/clusters/%zz/a", { page: "missing" }],
  ["/compare", { page: "compare" }],
  ["/hosts", { page: "hosts" }],
  ["/jobs", { page: "jobs" }],
  ["/statistics", { page: "statistics" }],
  ["/nowhere", { page: "missing" }],
])("%s", (path, route) => expect(routeOf(path)).toEqual(route));
