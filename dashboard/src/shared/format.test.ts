import { describe, expect, it } from "vitest";
import { formatBits, formatValue, metricTitle, numberIn, shortId } from "./format";

describe("formatValue", () => {
  it.each([
    [87, "%", "87%"],
    [512.25, "W", "512 W"],
    [71.567, "watt", "71.6 W"],
    [0, "W", "0 W"],
    [null, "W", "–"],
    [undefined, "W", "–"],
    [Number.NaN, "W", "–"],
    [40_960, "MiB", "40 GiB"],
    [560, "mebibyte", "560 MiB"],
    [2.5e9, "B/s", "2.5 GB/s"],
    [950, "mV", "950 mV"],
    [3, "none", "3"],
    [1.5, "parsec", "1.5 parsec"],
    ["P0", "W", "P0"],
    [-12, "°C", "-12 °C"],
  ])("%s in %s is %s", (value, unit, text) => {
    expect(formatValue(value, unit)).toBe(text);
  });
});

it.each([
  ["gpu_clock_mhz", "GPU clock"],
  ["mem_clock_mhz", "Memory clock"],
  ["utilization_pct", "Utilization"],
  ["pcie_rx_bytes_per_s", "PCIe RX"],
  ["ecc_uncorrected", "ECC uncorrected"],
  ["xid", "XID"],
  ["xids_in_a_day", "XIDs in a day"],
  ["gpus_of_node", "GPUs of node"],
  ["sram_errors", "SRAM errors"],
  ["w", "W"],
])("%s is called %s", (column, title) => {
  expect(metricTitle(column)).toBe(title);
});

it("names the bits of a mask, those beyond 32 as well", () => {
  const bits = [
    { bit: 0, name: "idle" },
    { bit: 36, name: "hotspot temperature" },
  ];
  expect(formatBits(1, bits)).toBe("idle");
  expect(formatBits(2 ** 36 + 1 + 4, bits)).toBe("idle, bit 2, hotspot temperature");
  expect(formatBits(0, bits)).toBe("none");
  expect(formatBits(null, bits)).toBe("–");
});

it("finds numbers and nothing else", () => {
  expect(numberIn({ a: 0 }, "a")).toBe(0);
  expect(numberIn({ a: "0" }, "a")).toBeNull();
  expect(numberIn({ a: null }, "a")).toBeNull();
  expect(numberIn(undefined, "a")).toBeNull();
});

it("shortens uuids and leaves other ids whole", () => {
  expect(shortId("GPU-5fd4f087-86f3-7a43-b711-4771313afc50")).toBe("GPU-5fd4f087…fc50");
  expect(shortId("GPU-5fd4f087-86f3-7a43-b711-4771313afc50:1g.10gb")).toBe("GPU-5fd4f087…fc50:1g.10gb");
  expect(shortId("0000:c1:00.0@node-1")).toBe("0000:c1:00.0@node-1");
});
