import { expect, it } from "vitest";
import type { Happened } from "../../api/happened";
import { placeOf, repeatsOf, repeatWords, stepsTo, ticksOf } from "./bar";

const happened = (at: number, isEnd = false): Happened => ({ at, shows: at, isEnd, gpu: "GPU-a", host: "n1", kind: "xid", finding: "", namespace: null, text: "XID 79", about: "health" as const });
const SPAN = { start: 1000, end: 2000 };

it.each([
  [1000, 0],
  [1500, 5],
  [2000, 10],
  [0, 0],
  [9999, 10],
])("%d lies at step %d", (at, place) => {
  expect(placeOf(at, SPAN, 10)).toBe(place);
});

it("a bar without length has one place", () => {
  expect(placeOf(5, { start: 5, end: 5 }, 10)).toBe(10);
});

it("marks that lie upon each other are drawn once, ends apart", () => {
  expect(ticksOf([happened(1500), happened(1500.1), happened(1500, true), happened(2000)], SPAN)).toEqual([
    { x: 500, isEnd: false },
    { x: 500, isEnd: true },
    { x: 1000, isEnd: false },
  ]);
});

it("the nearest changes before and after an instant are found in any order", () => {
  const all = [happened(1800), happened(1500), happened(1200), happened(1900)];
  expect(stepsTo(all, 1500)).toEqual({ earlier: 1200, later: 1800 });
  expect(stepsTo(all, 1000)).toEqual({ earlier: null, later: 1200 });
  expect(stepsTo([], 1000)).toEqual({ earlier: null, later: null });
});

it("what comes again within an hour is one entry that counts times and GPUs", () => {
  const minutes = (at: number, gpu: string, text = "XID 63") => ({ ...happened(at * 60_000), gpu, text });
  const all = [minutes(300, "GPU-b"), minutes(290, "GPU-a", "lost"), minutes(280, "GPU-a"), minutes(230, "GPU-a"), minutes(100, "GPU-c")];
  const found = repeatsOf(all);
  expect(found.map((each) => [each.newest.text, each.newest.at, each.since, repeatWords(each)])).toEqual([
    ["XID 63", 300 * 60_000, 230 * 60_000, "×3 on 2 GPUs"],
    ["lost", 290 * 60_000, 290 * 60_000, ""],
    ["XID 63", 100 * 60_000, 100 * 60_000, ""],
  ]);
  expect(repeatsOf([minutes(2, "GPU-a"), minutes(1, "GPU-a")]).map(repeatWords)).toEqual(["×2"]);
  const jobs = [minutes(2, "GPU-a"), minutes(1, "GPU-a")].map((each) => ({ ...each, about: "jobs" as const }));
  expect(repeatsOf(jobs), "another job of the same name is another").toHaveLength(2);
});
