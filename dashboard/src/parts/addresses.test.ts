import { describe, expect, it } from "vitest";
import { COMPARE, FLEET, GPU, NOW } from "./addresses";

const GPUS = FLEET.defaults;
const ONE = GPU.defaults;
const FINDINGS = NOW.defaults;

describe("the list and the map of GPUs", () => {
  it.each([
    ["", GPUS],
    ["search=h100&state=idle&host=n-1&sort=-power_w&page=3", { ...GPUS, search: "h100", state: "idle", host: "n-1", sort: "-power_w", page: 3 }],
    ["state=broken", GPUS],
    ["sort=Pass7", GPUS],
    ["page=0", GPUS],
    ["page=-2", GPUS],
    ["page=1e99", GPUS],
    ["page=abc&search=a%20b", { ...GPUS, search: "a b" }],
    ["view=map&colour=power_w&group=job&fit=1&change=1&zoom=4.5&middle=GPU-1&picked=a,,b", { ...GPUS, view: "map", colour: "power_w", group: "job", fit: true, change: true, zoom: 4.5, middle: "GPU-1", picked: ["a", "b"] }],
    ["view=globe&colour=Red!&group=room&zoom=Infinity", GPUS],
    ["view=map&colour=Power%20W&state=dire", { ...GPUS, view: "map" }],
    ["zoom=0.2&where=namespace%3Dresearch", { ...GPUS, where: "namespace=research" }],
  ])("%s is read", (search, expected) => {
    expect(FLEET.read(search)).toEqual(expected);
  });

  it.each([
    [GPUS, "/gpus"],
    [{ ...GPUS, page: 2 }, "/gpus?page=2"],
    [{ ...GPUS, search: "a&b=c", sort: "-power_w" }, "/gpus?search=a%26b%3Dc&sort=-power_w"],
    [{ ...GPUS, view: "map", colour: "power_w", group: "model", zoom: 2, middle: "x", picked: ["a", "b"] } as const, "/gpus?view=map&middle=x&colour=power_w&group=model&zoom=2&picked=a%2Cb"],
  ])("%o is written as %s and read back", (state, path) => {
    expect(FLEET.to(state)).toBe(path);
    expect(FLEET.read(path.slice("/gpus?".length))).toEqual(state);
  });
});

describe("a GPU", () => {
  it.each([
    ["", ONE],
    ["range=1h", { ...ONE, range: { kind: "preset", preset: "1h" } }],
    ["range=all&aggregate=p99&live=0&peers=0&why=1", { ...ONE, peers: false, why: true, range: { kind: "all" }, aggregate: "p99", live: false }],
    ["range=3y&aggregate=median&live=maybe", ONE],
    ["range=toString", ONE],
    ["from=2025-07-18T20:00:00.000Z&to=2025-07-18T21:00:00.000Z", { ...ONE, range: { kind: "custom", start: 1_752_868_800_000, end: 1_752_872_400_000 } }],
    ["from=2025-07-18T21:00:00Z&to=2025-07-18T20:00:00Z", ONE],
    ["from=soon&to=later", ONE],
    ["incident=20261130T031459Z-xid", { ...ONE, incident: "20261130T031459Z-xid" }],
  ] as const)("%s is read", (search, expected) => {
    expect(GPU.read(search)).toEqual(expected);
  });

  it.each([
    [ONE],
    [{ ...ONE, range: { kind: "preset", preset: "6h" }, aggregate: "max", live: true }],
    [{ ...ONE, why: true, peers: false, range: { kind: "all" }, aggregate: "mean", live: false }],
    [{ ...ONE, range: { kind: "custom", start: 1_752_868_800_123, end: 1_752_872_400_000 }, aggregate: "last", live: null }],
  ] as const)("%o comes back from its address", (state) => {
    const path = GPU.to({ id: "0000:c1:00.0@n/1", ...state });
    expect(path.startsWith("/gpus/0000%3Ac1%3A00.0%40n%2F1")).toBe(true);
    expect(GPU.read(path.split("?")[1] ?? "")).toEqual(state);
  });
});

describe("findings", () => {
  it.each([
    ["", FINDINGS],
    ["severity=warning&host=n-1&namespace=research&kind=xid&page=2", { severity: "warning", host: "n-1", namespace: "research", kind: "xid", page: 2, tv: false }],
    ["tv", { ...FINDINGS, tv: true }],
    ["tv=0", FINDINGS],
    ["severity=awful&page=-1", FINDINGS],
    ["host=a%20b", { ...FINDINGS, host: "a b" }],
  ])("%s is read", (search, expected) => expect(NOW.read(search)).toEqual(expected));

  it.each([
    [FINDINGS, "/"],
    [{ ...FINDINGS, kind: "xid", page: 3 }, "/?kind=xid&page=3"],
    [{ ...FINDINGS, tv: true }, "/?tv=1"],
  ])("%o is written as %s and read back", (state, path) => {
    expect(NOW.to(state)).toBe(path);
    expect(NOW.read(path.slice(2))).toEqual(state);
  });
});

it.each([
  ["gpus=a,b,,a&metric=power_w&range=6h&aggregate=max", { host: "", where: "", search: "", gpus: ["a", "b"], metric: "power_w", range: { kind: "preset", preset: "6h" }, aggregate: "max" }],
  ["host=n-1&where=job%3Dj&search=a", { host: "n-1", where: "job=j", search: "a", gpus: [], metric: "", range: null, aggregate: "mean" }],
  ["", { host: "", where: "", search: "", gpus: [], metric: "", range: null, aggregate: "mean" }],
] as const)("%s is read, and written", (search, state) => {
  expect(COMPARE.read(search)).toEqual(state);
  expect(COMPARE.read(COMPARE.to(state).slice(COMPARE.path.length))).toEqual(state);
});
