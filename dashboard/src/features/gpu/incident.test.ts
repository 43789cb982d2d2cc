import { expect, it } from "vitest";
import { incident } from "../../testing/mockApi";
import { GPU } from "../../parts/addresses";
import { frameOfRows, incidentMarks, sharedMarks } from "./incident";

it("draws rows with the step that is usual among them", () => {
  // A second apart, then a hundred times as often, with a gap.
  const times = [0, 1000, 2000, 2010, 2020, 2030, 2040, 9000];
  const frame = frameOfRows({ node: "n1", times, values: { power_w: times.map(() => 1) } });
  expect([frame.stepMs, frame.times, frame.values.get("power_w")?.length]).toEqual([10, times, 8]);
  expect(frameOfRows({ node: "n1", times: [5], values: {} }).stepMs).toBe(1);
});

it("marks incidents by time, each with the way to its window; what else the page shows stays", () => {
  const state = { ...GPU.defaults, peers: false, range: { kind: "preset", preset: "1h" } } as const;
  const marks = incidentMarks([incident({ id: "b", at: "2026-11-20T10:05:00Z" }), incident({ id: "a", at: "2026-11-20T10:00:00Z", detail: "" }), incident({ at: "soon" })], "GPU-a", state);
  expect(marks.map(({ text, path }) => [text, path])).toEqual([
    ["Incident a: xid", "/gpus/GPU-a?incident=a&peers=0"],
    ["Incident b: XID 79", "/gpus/GPU-a?incident=b&peers=0"],
  ]);
});

it("marks an incident of several GPUs once, with the way to the one that failed first, or else to one with rows", () => {
  const first = incident({ id: "a", at: "2026-11-20T10:00:00Z" });
  const rest = { id: "b", at: "2026-11-20T10:05:00Z", first: null };
  const marks = sharedMarks([
    { gpu: "GPU-a", incidents: [first, incident({ ...rest, has_rows: false })] },
    { gpu: "GPU-b", incidents: [{ ...first, has_rows: false }] },
    { gpu: "GPU-c", incidents: [first, incident(rest)] },
  ]);
  expect(marks.map(({ path }) => path)).toEqual(["/gpus/GPU-b?incident=a", "/gpus/GPU-c?incident=b"]);
});
