import { describe, expect, it } from "vitest";
import type { Judgement } from "../../api/judgement";
import { finding } from "../../testing/mockApi";
import { headlineOf, type FleetFacts } from "./headline";
import { severityWords, tally } from "./filters";

it("counts what occurs, numbers in words as numbers", () => {
  const on = (hostname: string | null) => finding({ reach: { ...finding().reach, hostname } });
  expect(tally([on("n-10"), on("n-9"), on("n-10"), on(null)], (one) => one.reach.hostname)).toEqual([["n-9", 1], ["n-10", 2]]);
  const of = (...severities: string[]) => severityWords(severities.map((severity) => finding({ severity })));
  expect(of("notice", "critical", "notice", "critical")).toBe("2 critical findings and 2 notices");
  expect(of("warning", "dire", "critical")).toBe("1 critical finding, 1 warning and 1 dire finding");
  expect(of()).toBe("");
});

describe("the headline", () => {
  const counted = (total: number | null, words: Partial<Record<Judgement, number>> = {}) => ({ total, byWord: new Map(Object.entries(words) as [Judgement, number][]) });
  const fine: FleetFacts = { findings: [], found: 0, counts: counted(4096), isPast: false, doubts: [] };
  const one = { findings: [finding()], found: 1 };
  it.each<[string, Partial<FleetFacts>, string, RegExp]>([
    ["well", {}, "All is well", /All 4,096 GPUs report/],
    ["well", { counts: counted(1) }, "All is well", /The one GPU reports/],
    ["critical", { ...one, counts: counted(4096, { critical: 1, lost: 8, active: 4087 }) }, "1 critical finding about 9 of 4,096 GPUs", /^$/],
    ["critical", { ...one, counts: counted(null), doubts: ["Old."] }, "1 critical finding", /Old/],
    ["warning", { findings: [finding({ severity: "notice" }), finding({ severity: "warning" })], found: 2 }, "1 warning and 1 notice among 4,096 GPUs", /^$/],
    ["notice", { findings: [finding({ severity: "notice" })], found: 1 }, "1 notice among 4,096 GPUs", /^$/],
    ["critical", { findings: [finding({ severity: "dire" })], found: 1 }, "1 dire finding among 4,096 GPUs", /^$/],
    ["critical", { findings: [finding()], found: 900 }, "900 findings among 4,096 GPUs", /^$/],
    ["critical", { counts: counted(4096, { unhealthy: 2 }) }, "2 GPUs of 4,096 are unhealthy", /must hold for a while/],
    ["unclear", { counts: counted(4096, { unconfirmed: 1 }) }, "No findings, but the last reading of 1 GPU shows an error", /must hold for a while/],
    ["unclear", { doubts: ["Not everything could be read: b."] }, "Nothing is known to be wrong, but not everything is known", /read: b/],
    ["unclear", { counts: counted(null) }, "No findings", /not counted/],
    ["unclear", { counts: counted(0) }, "No GPUs yet", /first sample/],
    ["unclear", { counts: counted(0), isPast: true }, "No GPU had reported by then", /begins later/],
    ["unclear", { counts: counted(4096, { stale: 4096 }) }, "None of 4,096 GPUs reports any more", /recording/],
    ["unclear", { counts: counted(4096, { stale: 1 }) }, "1 GPU of 4,096 does not report", /Nothing else/],
  ])("%s: %o", (mood, part, text, more) => {
    const headline = headlineOf({ ...fine, ...part });
    expect(headline).toMatchObject({ mood, text });
    expect(headline.more).toMatch(more);
  });
});
