import { describe, expect, it } from "vitest";
import { hourOf, type Anomaly, type Trend } from "../api/outlook";
import { HOUR } from "../shared/time";
import { anomalyWords, trendWords } from "./outlook";

const NOW = new Date(2026, 10, 26, 11, 20).getTime();
const TREND: Trend = { gpu: "a", name: "n / GPU 0", metric: "memory_used_mb", unit: "MiB", level: 79_324, per_day: 7000, steadiness: 1, points: 64, limit: 81_559, at: NOW + 7.5 * HOUR };
const usual = (median: number) => ({ median, deviation: 10, count: 7, distance: -24 });
const ANOMALY: Anomaly = { gpu: "a", name: "n / GPU 0", metric: "power_w", unit: "W", value: 260, score: 24, sentence: "power_w is 260 W: 240 W below its own 500 W", own: usual(500), peers: usual(540) };

it("asks for whole hours", () => {
  expect(NOW - hourOf(NOW)).toBe(HOUR / 3);
});

describe("words", () => {
  it.each([
    ["what rises", TREND, "Memory used 77.5 GiB rises by 6.84 GiB a day and reaches its limit of 79.6 GiB in 7 h"],
    ["what has arrived", { ...TREND, at: NOW - 1 }, "Memory used has risen by 6.84 GiB a day to its limit of 79.6 GiB"],
  ])("say %s", (_name, trend, words) => {
    expect(trendWords(trend, NOW)).toBe(words);
  });
  it("say what is unusual as the server does", () => {
    expect(anomalyWords(ANOMALY, hourOf(NOW))).toBe("In the hour to 11:00 power_w is 260 W: 240 W below its own 500 W");
  });
});
