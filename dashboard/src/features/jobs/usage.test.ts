import { describe, expect, it } from "vitest";
import type { EnergyGroup, IdleGroup } from "../../api/usage";
import { inOrder } from "../../parts/order";
import { JOBS, parsePrice } from "./address";
import { byName, rowsOf } from "./usage";
import { USAGE_LISTS } from "./usageList";

const DEFAULT = JOBS.defaults;

const energy = (part: Partial<EnergyGroup> = {}): EnergyGroup => ({ group: "a", energy_kwh: 10, counted_kwh: 10, source: "counter", gpu_hours: 20, busy_gpu_hours: 10, throttled_gpu_hours: 0, gpus: 2, ...part });
const idle = (part: Partial<IdleGroup> = {}): IdleGroup => ({ group: "a", held_gpu_hours: 20, idle_gpu_hours: 5, idle_energy_kwh: 0.5, idle_cost: null, gpus: 2, ...part });

describe("energy and idle hours side by side", () => {
  it("have a cost at a price", () => {
    const [row] = rowsOf("job", [energy({ counted_kwh: 4 })], [idle()], 2.5);
    expect(row).toEqual({ group: "a", gpus: 2, gpuHours: 20, energyKwh: 10, counted: 0.4, heldHours: 20, idleHours: 5, idleKwh: 0.5, cost: 12.5 });
    expect(rowsOf("job", [energy()], [idle()], null)[0]?.cost).toBeNull();
  });

  it("a holder that is not among the idle ones worked all the time; of others nothing is known", () => {
    expect(rowsOf("job", [energy()], [], 2)[0]).toMatchObject({ heldHours: 20, idleHours: 0, idleKwh: 0, cost: 0 });
    expect(rowsOf("job", [energy({ group: null })], [], 2)[0]).toMatchObject({ heldHours: null, idleHours: null, idleKwh: null, cost: null });
    expect(rowsOf("job", [energy({ gpu_hours: null })], [], 2)[0]).toMatchObject({ heldHours: null, idleHours: null, idleKwh: null, cost: null });
    expect(rowsOf("node", [energy()], [], 2)[0]).toMatchObject({ heldHours: null, idleHours: null });
  });

  it("energy that was not read is not 0, and who has none is there all the same", () => {
    const rows = rowsOf("job", [energy({ energy_kwh: null, counted_kwh: null, source: null })], [idle({ group: "b" })], null);
    expect(rows.map(({ group, energyKwh, counted }) => [group, energyKwh, counted])).toEqual([["a", null, null], ["b", null, null]]);
  });
});

describe("their order", () => {
  const rows = rowsOf("job", [energy({ group: "j-10" }), energy({ group: "j-9" }), energy({ group: null, energy_kwh: null })], [idle({ group: "j-9", idle_gpu_hours: 7 })], null);
  it.each([
    ["-idle", ["j-9", "j-10", null]],
    ["idle", ["j-10", "j-9", null]],
    ["group", ["j-9", "j-10", null]],
    ["energy", ["j-9", "j-10", null]],
    ["-energy", ["j-9", "j-10", null]],
  ])("%s: what is not known comes last", (sort, groups) => expect(inOrder(byName(rows), USAGE_LISTS.job.columns, sort).map((row) => row.group)).toEqual(groups));
});

describe("the state in the address", () => {
  it.each([
    ["", DEFAULT],
    ["by=job&range=7d&price=2.5&sort=-energy&page=2", { by: "job", range: { kind: "preset", preset: "7d" }, price: 2.5, sort: "-energy", page: 2 }],
    ["by=label&range=all&price=-1&sort=A1&page=0", DEFAULT],
    ["from=2026-11-20T00:00:00.000Z&to=2026-11-21T00:00:00.000Z", { ...DEFAULT, range: { kind: "custom", start: 1_795_132_800_000, end: 1_795_219_200_000 } }],
  ] as const)("%s is read, and written", (search, state) => {
    expect(JOBS.read(search)).toEqual(state);
    expect(JOBS.read(JOBS.to(state).slice(JOBS.path.length))).toEqual(state);
  });

  it.each([
    ["2.5", 2.5],
    [" 2,50 ", 2.5],
    [".5", 0.5],
    ["2.", 2],
    ["", null],
    ["1e5", null],
    ["-1", null],
    ["two", null],
  ])("a price typed as %s", (text, price) => expect(parsePrice(text)).toBe(price));
});
