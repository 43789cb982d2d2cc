import type { FleetUse, FleetUseLine, Share } from "../../api/fleetUse";
import type { Frame } from "../../charts/frame";
import type { Panel } from "../../charts/panels";

/** What a line says of each step. */
type Measure = "gpus" | "held_gpus" | "idle_gpus" | "utilization_pct" | "power_w";

export interface NamedLine {
  readonly name: string;
  /** Null: not one group. */
  readonly group: string | null;
  /** Whether it is the line of all groups without one of their own. */
  readonly isRest: boolean;
  readonly line: FleetUseLine;
}

/** The lines of the groups, named: those with the most energy, then the others as one. */
export function linesOf({ groups, rest, total }: FleetUse, by: Share): NamedLine[] {
  const named = groups.map((line) => ({ name: line.group ?? `No ${by}`, group: line.group, isRest: false, line }));
  return rest === null ? named : [...named, { name: `${(total - groups.length).toLocaleString("en")} others`, group: null, isRest: true, line: rest }];
}

/** A chart and its values. */
export interface Course {
  readonly panel: Panel;
  readonly frame: Frame;
}

/** The courses of all GPUs together. */
export function wholeCourses(use: FleetUse): Course[] {
  return [
    courseOf(use, "gpus", "GPUs", "none", [
      ["Reporting", use.whole, "gpus"],
      ["Held", use.whole, "held_gpus"],
      ["Held but idle", use.whole, "idle_gpus"],
    ]),
    courseOf(use, "power", "Power", "kW", [["All GPUs", use.whole, "power_w"]]),
    courseOf(use, "utilization", "Utilization", "percent", [["All GPUs", use.whole, "utilization_pct"]]),
  ];
}

/** The same by group. */
export function sharedCourses(use: FleetUse, by: Share): Course[] {
  const lines = linesOf(use, by);
  const of = (id: string, title: string, unit: string, measure: Measure) => courseOf(use, `${id}-by-${by}`, `${title} by ${by}`, unit, lines.map(({ name, line }) => [name, line, measure] as const));
  return [of("held", "Held GPUs", "none", "held_gpus"), of("power", "Power", "kW", "power_w"), of("utilization", "Utilization", "percent", "utilization_pct"), of("idle", "Held but idle GPUs", "none", "idle_gpus")];
}

function courseOf({ times, step_ms: stepMs }: FleetUse, id: string, title: string, unit: string, lines: readonly (readonly [name: string, line: FleetUseLine, measure: Measure])[]): Course {
  const drawn = lines.filter(([, line, measure]) => line[measure].some((value) => value !== null));
  // Kilowatts of a fleet: watts would be numbers that nobody reads.
  const divisor = unit === "kW" ? 1000 : 1;
  const values = drawn.map(([name, line, measure]) => [name, line[measure].map((value) => (value === null ? null : value / divisor))] as const);
  return { panel: { id, title, unit, columns: drawn.map(([name]) => name) }, frame: { stepMs, times, values: new Map(values) } };
}

/** The last step in which GPUs reported, and how many of them are in it. */
export function lastReported(values: readonly (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

/** By what a group is shared out once it is looked at alone. */
const WITHIN: Readonly<Record<Share, Share>> = { namespace: "job", job: "node", model: "namespace", node: "namespace", rack: "rack", cluster: "namespace" };

export function within(by: Share): Share {
  return WITHIN[by];
}
