import { expect, test } from "vitest";
import { toldOf, verdictWords } from "./judgement";

test("a verdict says why, where the word does not", () => {
  expect(verdictWords({ word: "critical", why: "XID 63" })).toBe("critical, XID 63");
  expect(verdictWords({ word: "idle", why: null })).toBe("idle");
});

test("what some GPU has is told, and what people look for always", () => {
  expect(toldOf(new Map())).toEqual(["critical", "lost", "warning", "active", "idle"]);
  expect(toldOf(new Map([["stale", 1], ["unknown", 0]]))).toEqual(["critical", "lost", "warning", "stale", "active", "idle"]);
});
