import { expect, it } from "vitest";
import { perSecond } from "./rate";

it.each([
  ["the first reading", null, { at: 1000, count: 5 }, null],
  ["a rate", { at: 1000, count: 5 }, { at: 3000, count: 25 }, 10],
  ["nothing new", { at: 1000, count: 5 }, { at: 3000, count: 5 }, 0],
  ["a restart", { at: 1000, count: 50 }, { at: 3000, count: 2 }, null],
  ["no time between", { at: 1000, count: 5 }, { at: 1000, count: 9 }, null],
])("%s", (_name, before, after, expected) => {
  expect(perSecond(before, after)).toBe(expected);
});
