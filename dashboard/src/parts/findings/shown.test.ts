import { describe, expect, it } from "vitest";
import type { Metric, QueryAnswer } from "../../api/client";
import type { Evidence } from "../../api/findings";
import { finding, metric } from "../../testing/mockApi";
import { HOUR, MINUTE } from "../../shared/time";
import { askOf, glimpseOf, shownBy, spanAround } from "./shown";

const column = (name: string, unit: string, instrument: string, labels = {}) => {
  const made = metric(name, unit, "power", instrument);
  return [name, { ...made, prometheus: { ...made.prometheus, labels } } as unknown as Metric] as const;
};
const CATALOGUE = new Map([
  column("gpu_clock_mhz", "MHz", "gauge"),
  column("power_w", "W", "gauge"),
  column("utilization_pct", "%", "gauge"),
  column("temperature_c", "°C", "gauge", { sensor: "gpu" }),
  column("temperature_max_operating_c", "°C", "gauge", { sensor: "gpu", limit: "max_operating" }),
  column("temperature_slowdown_c", "°C", "gauge", { sensor: "gpu", limit: "slowdown" }),
  column("temperature_memory_slowdown_c", "°C", "gauge", { sensor: "memory", limit: "slowdown" }),
  column("xid_last", "", "state"),
  column("throttle_reasons", "", "state"),
]);
const { reach } = finding();
const of = (quantity: string, value: number, origin?: string): Evidence => ({ quantity, unit: "", value, text: String(value), compared_with: origin === undefined ? null : { value: value * 1.3, origin } });
const CLOCK = of("gpu_clock_mhz", 1530, "median of the job");

describe("what shows a finding", () => {
  const node = { type: "node", id: "node-1", name: "node-1" } as const;
  const job = { type: "job", id: "a/b", name: "b" } as const;
  it.each([
    ["a value beside that of its job: with the others of the job", { evidence: [CLOCK] }, "gpu_clock_mhz", [], { of: "job", job: "train-7", namespace: "research" }],
    ["of a huge job: with the others of its node", { evidence: [CLOCK], reach: { ...reach, concerned_gpus: 900 } }, "gpu_clock_mhz", [], { of: "host", host: "node-1" }],
    ["a share has no course, a temperature has, with its limits", { evidence: [of("share_of_time_held_down_by_heat", 1), of("temperature_c", 88), CLOCK] }, "temperature_c", ["temperature_slowdown_c", "temperature_max_operating_c"], { of: "gpus", gpus: ["GPU-a"] }],
    ["of a code: what the GPU did then", {}, "power_w", [], { of: "gpus", gpus: ["GPU-a"] }],
    ["of a code that says heat: how hot it was, with the limits", { kind: "software_thermal_slowdown", evidence: [of("throttle_reasons", 32)] }, "temperature_c", ["temperature_slowdown_c", "temperature_max_operating_c"], { of: "gpus", gpus: ["GPU-a"] }],
    ["of silence as well", { kind: "gpu_lost", evidence: [of("age_of_newest_value", 300)] }, "power_w", [], { of: "gpus", gpus: ["GPU-a"] }],
    ["of a silent node: its GPUs", { kind: "node_silent", subject: node, evidence: [], reach: { ...reach, gpus: ["a", "b"] } }, "power_w", [], { of: "gpus", gpus: ["a", "b"] }],
    ["of a job that has stalled: its GPUs", { kind: "job_stalled", subject: job, evidence: [of("idle_minutes", 12)], reach: { ...reach, gpus: ["a", "b"] } }, "utilization_pct", [], { of: "gpus", gpus: ["a", "b"] }],
    ["of a job that does nothing: its GPUs", { kind: "idle_held", subject: job, evidence: [of("idle_minutes", 90)], reach: { ...reach, gpus: ["a", "b"] } }, "utilization_pct", [], { of: "gpus", gpus: ["a", "b"] }],
  ] as const)("%s", (_name, part, name, limits, asked) => {
    const shown = shownBy(finding(part as Parameters<typeof finding>[0]), CATALOGUE);
    expect([shown?.column, shown?.limits, shown?.whose]).toEqual([name, limits, asked]);
  });

  it.each([
    ["a node with too few GPUs", { kind: "gpu_missing", subject: node, evidence: [of("gpus_of_node", 7)] }],
    ["a number that two GPUs have", { kind: "gpu_twice", evidence: [of("minutes_from_several_nodes", 7)] }],
    ["a silent fleet", { kind: "fleet_silent", subject: { type: "fleet", id: "", name: "" } as const, evidence: [] }],
  ])("nothing shows %s", (_name, part) => expect(shownBy(finding(part), CATALOGUE)).toBeNull());
});

it("looks from before the beginning until its course is clear, and then asks for the same for ever", () => {
  const since = 1_800_000_000_000;
  const length = (now: number) => (spanAround(since, now).end - spanAround(since, now).start) / MINUTE;
  expect([since, since + 10 * MINUTE, since + HOUR, since + 99 * HOUR].map(length)).toEqual([15, 25, 60, 60]);
  const shown = shownBy(finding(), CATALOGUE);
  expect(shown !== null && askOf(shown, spanAround(since, since + HOUR)).stepMs).toBe(MINUTE);
});

describe("the picture", () => {
  const times = [0, 1000, 2000];
  const course = (gpu: string, values: readonly (number | null)[], name = "gpu_clock_mhz") => ({ metric: name, gpu, values });
  const answerOf = (series: readonly object[]) => ({ times, step_ms: 1000, series }) as unknown as QueryAnswer;
  const draw = (part: Parameters<typeof finding>[0], series: readonly object[], unit = "MHz") => {
    const shown = shownBy(finding(part), CATALOGUE);
    return shown === null ? null : glimpseOf(shown, answerOf(series), unit, 1000);
  };

  it("has the GPU's line, the band of the others where they were read, and what it is compared with", () => {
    const others = ["b", "c", "d", "e", "f"].map((gpu, place) => course(gpu, [1900 + 10 * place, null, 1900 + 20 * place]));
    const drawn = draw({ evidence: [CLOCK] }, [course("GPU-a", [1980, 1530, 1530]), ...others]);
    expect(drawn?.picture).toMatchObject({ line: [1980, 1530, 1530], band: { low: [1910, null, 1920], high: [1930, null, 1960] }, level: 1989, mark: 1000, hasEnded: false });
    expect(drawn?.legend.slice(0, 3)).toEqual(["GPU clock", "shaded: the middle half of 5 others of its job", "dashed: median of the job, 1,989 MHz"]);
    expect(draw({ evidence: [CLOCK] }, [course("GPU-a", [1, 2, 3]), ...others.slice(0, 2)])?.legend[1]).toBe("shaded: the range of 2 others of its job");
    expect(draw({ evidence: [CLOCK] }, [course("GPU-a", [1, 2, 3])])?.picture.band).toBeNull();
  });

  it("has the limit that is reached first, as it was last read", () => {
    const series = [course("GPU-a", [80, 85, 88], "temperature_c"), course("GPU-a", [95, null, null], "temperature_max_operating_c"), course("GPU-a", [89, null, null], "temperature_slowdown_c")];
    const drawn = draw({ evidence: [of("temperature_c", 88)] }, series, "°C");
    expect([drawn?.picture.level, drawn?.legend[1], drawn?.picture.label]).toEqual([89, "dashed: its limit, 89 °C", expect.stringMatching(/Last 88 °C$/)]);
  });

  it("of several GPUs is their median in their range, and ends with the last sample", () => {
    const part = { kind: "node_silent", subject: { type: "node", id: "n", name: "n" } as const, evidence: [], reach: { ...reach, gpus: ["a", "b"] } };
    const drawn = draw(part, [course("a", [100, 100, null], "power_w"), course("b", [300, 300, null], "power_w")], "W");
    expect(drawn?.picture).toMatchObject({ line: [300, 300, null], band: { low: [100, 100, null], high: [300, 300, null] }, hasEnded: true });
    expect(drawn?.legend[1]).toMatch(/^last sample /);
  });

  it("is none where nothing was read", () => expect(draw({ evidence: [CLOCK] }, [course("b", [1, 2, 3])])).toBeNull());
});
