import { describe, expect, it } from "vitest";
import { keep, parsePartial, parseSamples, SAMPLES_MAX } from "./stream";

describe("parseSamples", () => {
  const row = (part: object) => JSON.stringify([{ gpu_id: "a", hostname: "n", metrics: { power_w: 1 }, timestamp: "2025-07-18T20:42:34Z", ...part }]);
  it.each([
    ["a row of this GPU", row({}), [{ timestamp: 1_752_871_354_000, metrics: { power_w: 1 } }]],
    ["another GPU's row", row({ gpu_id: "b" }), []],
    ["a row without a time", row({ timestamp: "" }), []],
    ["a row without metrics", row({ metrics: undefined }), []],
    ["no rows", "[]", []],
    ["no list", "{}", []],
    ["a null among the rows", "[null]", []],
    ["no JSON", "[{", []],
  ])("%s", (_name, data, expected) => {
    expect(parseSamples(data, "a")).toEqual(expected);
  });
});

describe("parsePartial", () => {
  it.each([
    ["words", '["a","b"]', ["a", "b"]],
    ["something else among them", '["a",1,null]', ["a"]],
    ["no list", "{}", []],
    ["no JSON", "[", []],
  ])("%s", (_name, data, expected) => {
    expect(parsePartial(data)).toEqual(expected);
  });
});

describe("keep", () => {
  const at = (timestamp: number) => ({ timestamp, metrics: {} });
  it("sorts by time and is bounded in age and number", () => {
    expect(keep([at(2)], [at(3), at(1)]).map((sample) => sample.timestamp)).toEqual([1, 2, 3]);
    expect(keep([at(0)], [at(400_000)])).toEqual([at(400_000)]);
    const many = Array.from({ length: SAMPLES_MAX + 50 }, (_, n) => at(n));
    expect(keep([], many)).toHaveLength(SAMPLES_MAX);
    const held = [at(1)];
    expect(keep(held, [])).toBe(held);
  });
});
