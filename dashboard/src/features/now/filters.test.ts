import { describe, expect, it } from "vitest";
import { finding } from "../../testing/mockApi";
import { headlineOf, type FleetFacts } from "./headline";
import { severityWords, tally } from "./filters";

it("counts what occurs, numbers in words as numbers", () => {
  const on = (hostname: string | null) => finding({ reach: { ...finding().reach, hostname } });
  expect(tally([on("n-10"), on("n-9"), on("n-10"), on(null)], (one) => one.reach.hostname)).toEqual([["n-9", 1], ["n-10", 2]]);
  const of = (...severities: string[]) => severityWords(severities.map((severity) => finding({ severity })));
  expect(of("notice", "critical", "notice", "critical")).toBe("2 critical and 2 notices");
  expect(of("warning", "dire", "critical")).toBe("1 critical, 1 warning and 1 dire");
  expect(of()).toBe("");
});

describe("the headline", () => {
  const fine: FleetFacts = { findings: [], found: 0, total: 4096, unhealthy: 0, stale: 0, doubts: [] };
  it.each<[string, Partial<FleetFacts>, string, RegExp]>([
    ["well", {}, "All is well", /All 4,096 GPUs report/],
    ["well", { total: 1 }, "All is well", /The one GPU reports/],
    ["ill", { findings: [finding()], found: 1 }, "1 critical among 4,096 GPUs", /^$/],
    ["ill", { findings: [finding()], found: 1, total: null, doubts: ["Old."] }, "1 critical", /Old/],
    ["ill", { findings: [finding()], found: 900 }, "900 findings among 4,096 GPUs", /^$/],
    ["ill", { unhealthy: 2 }, "2 GPUs of 4,096 are unhealthy", /must hold for a while/],
    ["unclear", { doubts: ["Not everything could be read: b."] }, "Nothing is known to be wrong, but not everything is known", /read: b/],
    ["unclear", { stale: null }, "No findings", /not counted/],
    ["unclear", { total: 0 }, "No GPUs yet", /first sample/],
    ["unclear", { stale: 4096 }, "None of 4,096 GPUs reports any more", /recording/],
    ["unclear", { stale: 1 }, "1 GPU of 4,096 does not report", /Nothing else/],
  ])("%s: %o", (mood, part, text, more) => {
    const headline = headlineOf({ ...fine, ...part });
    expect(headline).toMatchObject({ mood, text });
    expect(headline.more).toMatch(more);
  });
});
