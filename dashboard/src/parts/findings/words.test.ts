import { describe, expect, it } from "vitest";
import { HOUR, MINUTE } from "../../shared/time";
import { finding } from "../../testing/mockApi";
import { kindTitle, pathOf, piecesOf, rangeSince, reachWords } from "./words";

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
    [finding({ subject: { type: "node", id: "east/node 1", name: "east/node 1" }, reach: { ...reach, hostname: "node 1" } }), "/gpus?host=node+1"],
    [finding({ subject: { type: "job", id: "a/b/c", name: "c" } }), "/gpus/GPU-a?range=15m"],
    [finding({ subject: { type: "job", id: "a/b/c", name: "c" }, reach: { ...reach, gpus: ["a", "b"], gpu_count: 2 } }), "/gpus?host=node-1"],
    [finding({ subject: { type: "fleet", id: "fleet", name: "fleet" }, reach: { ...reach, gpus: [], gpu_count: 900, hostname: null } }), "/gpus"],
  ])("%#", (one, path) => expect(pathOf(one, now - MINUTE, now)).toBe(path));
});

it("says in words whom it reaches", () => {
  expect(reachWords(finding())).toBe("1 GPU, in work of 8 GPUs");
  expect(reachWords(finding({ reach: { ...finding().reach, gpu_count: 8 } }))).toBe("8 GPUs");
  expect(kindTitle("row_remap_pending")).toBe("Row remap pending");
  expect(kindTitle("xid")).toBe("XID");
});
