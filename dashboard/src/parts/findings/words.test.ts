import { describe, expect, it } from "vitest";
import { HOUR, MINUTE } from "../../shared/time";
import type { Metric } from "../../api/client";
import { finding, metric } from "../../testing/mockApi";
import { evidenceWords } from "./evidence";
import { besideOf, inSentenceCase, kindTitle, pathOf, piecesOf, rangeSince, reachWords } from "./words";

const command = (text: string) => ({ text, isCommand: true });
const prose = (text: string) => ({ text, isCommand: false });

describe("commands in a next step", () => {
  it.each([
    ["no command", null, [prose("no command")]],
    ["", null, []],
    ["`a -i INDEX` then `b`.", null, [command("a -i INDEX"), prose(" then "), command("b"), prose(".")]],
    ["run `a -i INDEX`", 6, [prose("run "), command("a -i 6")]],
    ["an INDEX in prose stays", 6, [prose("an INDEX in prose stays")]],
    ["`a`, and a backquote ` that opens nothing", null, [command("a"), prose(", and a backquote "), prose(" that opens nothing")]],
  ])("%s", (step, index, pieces) => expect(piecesOf(step, index)).toEqual(pieces));
});

describe("where a finding leads", () => {
  const now = 1_800_000_000_000;
  it.each([
    [0, "15m"],
    [11 * MINUTE, "15m"],
    [13 * MINUTE, "1h"],
    [47 * MINUTE, "1h"],
    [49 * MINUTE, "6h"],
    [20 * HOUR, "7d"],
    [1000 * HOUR, "7d"],
  ])("one that began %s ms ago shows the last %s", (age, range) => expect(rangeSince(now - age, now)).toBe(range));

  const reach = finding().reach;
  it.each([
    [finding(), "/gpus/GPU-a?range=15m"],
    [finding({ subject: { type: "gpu", id: "0000:c1:00.0@n", name: "" } }), "/gpus/0000%3Ac1%3A00.0%40n?range=15m"],
    [finding({ subject: { type: "node", id: "east/node 1", name: "east/node 1" }, reach: { ...reach, hostname: "node 1" } }), "/hosts/node%201"],
    [finding({ subject: { type: "job", id: "a/b/c", name: "c" } }), "/gpus/GPU-a?range=15m"],
    [finding({ subject: { type: "job", id: "a/b/c", name: "c" }, reach: { ...reach, gpus: ["a", "b"], gpu_count: 2 } }), "/hosts/node-1"],
    [finding({ subject: { type: "fleet", id: "fleet", name: "fleet" }, reach: { ...reach, gpus: [], gpu_count: 900, hostname: null } }), "/gpus"],
  ])("%#", (one, path) => expect(pathOf(one, now - MINUTE, now)).toBe(path));
});

it("stands beside its job, or else its node", () => {
  const { reach } = finding();
  const paths = [finding(), finding({ reach: { ...reach, concerned_gpus: 1 } }), finding({ reach: { ...reach, hostname: null, job: null } }), finding({ subject: { type: "node", id: "n", name: "n" } })].map((one) => besideOf(one)?.path);
  expect(paths).toEqual(["/compare?where=job%3Dtrain-7%3Bnamespace%3Dresearch", "/compare?host=node-1", undefined, undefined]);
});

it.each([
  ["its clock is low", "node-1 / GPU 6", "Its clock is low"],
  ["sim-parked-0-0-1 holds 2 GPUs", "sim-parked-0-0-1", "sim-parked-0-0-1 holds 2 GPUs"],
  ["train holds 2 GPUs", "research/train", "train holds 2 GPUs"],
  ["XID 63", "node-1 / GPU 6", "XID 63"],
])("begins a line with %o of %s as %o", (sentence, name, line) => expect(inSentenceCase(sentence, name)).toBe(line));

describe("evidence", () => {
  const bits = [{ bit: 2, name: "power cap" }, { bit: 5, name: "software thermal slowdown" }];
  const metrics = new Map([["throttle_reasons", { ...metric("throttle_reasons", "", "throttle"), bits, instance_label: null, prometheus: { name: "", labels: {}, unit: "", factor: 1 } } as unknown as Metric]]);
  it.each([
    ["throttle_reasons", "", 32, null, "Throttle reasons software thermal slowdown"],
    ["throttle_reasons", "", 36, { value: 0, origin: "others" }, "Throttle reasons power cap, software thermal slowdown against none, others"],
    ["share_of_time_held_down_by_heat", "ratio", 0.927, null, "Share of time held down by heat 92.7%"],
    ["robust_distance", "deviations", -22.7, null, " far below its peers (23 times their spread)"],
    ["robust_distance", "deviations", 5.2, null, " far above its peers (5 times their spread)"],
    ["xid_last", "", 63, null, "Last XID 63"],
    ["gpu_clock_mhz", "MHz", 1530, { value: 1980, origin: "median of the job" }, "GPU clock 1,530 MHz against 1,980 MHz, median of the job"],
  ])("%s (%s) of %s is in words", (quantity, unit, value, compared_with, words) => {
    const { name, value: said, beside } = evidenceWords({ quantity, unit, value, compared_with, text: "" }, metrics);
    expect([name, said, ...(beside === "" ? [] : [beside])].join(" ")).toBe(words);
  });
});

it("says in words whom it reaches", () => {
  expect(reachWords(finding())).toBe("1 GPU, in work of 8 GPUs");
  expect(reachWords(finding({ reach: { ...finding().reach, gpu_count: 8 } }))).toBe("8 GPUs");
  expect(reachWords(finding({ reach: { ...finding().reach, user: "kim", gpu_hours_per_hour: 8 } }))).toBe("1 GPU, in work of 8 GPUs, of kim, 8 GPU hours an hour for nothing");
  expect(kindTitle("row_remap_pending")).toBe("Row remap pending");
  expect(kindTitle("xid")).toBe("XID");
});
