import { describe, expect, it } from "vitest";
import { finding } from "../testing/mockApi";
import type { Finding } from "../api/findings";
import { countsOf, judgeOf, verdictOf, type Judged } from "./judgement";

const { reach } = finding();
const about = (gpus: string[], part: Partial<Finding> = {}, count = gpus.length) => finding({ ...part, reach: { ...reach, gpus, gpu_count: count, hostname: "n" } });
const answer = (...findings: Finding[]) => ({ findings, total: findings.length, partial: null });
const gpu = (part: Partial<Judged> = {}): Judged => ({ id: "a", host: "n", state: "active", reason: null, ...part });

describe("how a GPU does", () => {
  const acknowledged = { at: "2026-11-20T10:00:00Z", note: "" };
  it.each<[string, Judged, ReturnType<typeof answer> | undefined, string, string | null]>([
    ["its state where nothing is wrong", gpu({ state: "idle" }), answer(), "idle", null],
    ["its worst finding, although those that are acknowledged stand last", gpu(), answer(about(["a"], { severity: "notice" }), about(["a"], { acknowledged })), "critical", "XID 63"],
    ["every condition where the finding is one of them", gpu({ state: "unhealthy", reason: "XID 63; a row waits" }), answer(about(["a"])), "critical", "XID 63; a row waits"],
    ["a finding before a state that says something else", gpu({ state: "unhealthy", reason: "a row waits" }), answer(about(["a"], { severity: "warning" })), "warning", "XID 63"],
    ["a severity of a newer server as a warning", gpu(), answer(about(["a"], { severity: "dire" })), "warning", "XID 63"],
    ["nothing by one reading that no finding bears out", gpu({ state: "unhealthy", reason: "hot" }), answer(about(["b"])), "unconfirmed", "hot"],
    ["its state where the findings do not name all of their GPUs", gpu({ state: "unhealthy", reason: "hot" }), answer(about(["b"], {}, 17)), "unhealthy", "hot"],
    ["its state where the findings were not read", gpu({ state: "unhealthy", reason: "hot" }), undefined, "unhealthy", "hot"],
    ["silence that no finding bears out", gpu({ state: "stale" }), answer(), "stale", null],
    ["lost, also where rows without values still come", gpu({ state: "unknown" }), answer(about(["a"], { kind: "gpu_lost", sentence: "gone" })), "lost", "gone"],
    ["lost with its host, although the finding names others", gpu({ state: "stale" }), answer(about(["b"], { kind: "node_silent", sentence: "silent" }, 17)), "lost", "silent"],
    ["lost with its fleet", gpu({ state: "stale", host: null }), answer(about([], { kind: "fleet_silent", sentence: "silent" }, 4096)), "lost", "silent"],
    ["as it does while its host is silent in part", gpu(), answer(about(["b"], { kind: "node_silent" }, 17)), "active", null],
  ])("is %s", (_name, one, found, word, why) => expect(judgeOf(found).of(one)).toEqual({ word, why }));

  it("is told by the findings that were asked for as its own, whichever GPUs they name", () => {
    expect(verdictOf(gpu(), answer(about(["b"], { severity: "notice" }, 40))).word).toBe("notice");
    expect(verdictOf(gpu({ state: "unhealthy" }), answer()).word).toBe("unconfirmed");
    expect(verdictOf(gpu({ state: "unhealthy" }), undefined).word).toBe("unhealthy");
  });

  it("is counted as it is shown", () => {
    const gpus = [gpu(), gpu({ id: "b" }), gpu({ id: "c", state: "idle" })];
    expect([...countsOf(gpus, judgeOf(answer(about(["b"]))))]).toEqual([["active", 1], ["critical", 1], ["idle", 1]]);
  });
});
