/** What stands where there is no value. A value that was not read is never shown as 0. */
export const ABSENT = "–";

const UNIT_SYMBOLS: Readonly<Record<string, string>> = {
  none: "",
  "1": "",
  percent: "%",
  pct: "%",
  ratio: "",
  megahertz: "MHz",
  celsius: "°C",
  C: "°C",
  watt: "W",
  watts: "W",
  millijoule: "mJ",
  mebibyte: "MiB",
  byte: "B",
  bytes: "B",
  bytes_per_second: "B/s",
  millivolt: "mV",
  nanosecond: "ns",
  nanoseconds: "ns",
  gigatransfers_per_second: "GT/s",
};

/** The sign people read for a catalogue unit; an unknown unit is shown as it is. */
export function unitSymbol(unit: string): string {
  return UNIT_SYMBOLS[unit] ?? unit;
}

interface Scaled {
  readonly value: number;
  readonly unit: string;
}

const LADDERS: Readonly<Record<string, { readonly base: number; readonly steps: readonly string[] }>> = {
  MiB: { base: 1024, steps: ["MiB", "GiB", "TiB"] },
  B: { base: 1024, steps: ["B", "KiB", "MiB", "GiB", "TiB"] },
  "B/s": { base: 1000, steps: ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"] },
  mJ: { base: 1000, steps: ["mJ", "J", "kJ", "MJ", "GJ"] },
  ns: { base: 1000, steps: ["ns", "µs", "ms", "s"] },
  kW: { base: 1000, steps: ["kW", "MW"] },
  mV: { base: 1000, steps: ["mV", "V"] },
};

/** Climbs to the unit in which the value is a short number. Only for display: nothing is stored or sent so. */
export function scaled(value: number, unit: string): Scaled {
  const symbol = unitSymbol(unit);
  const ladder = LADDERS[symbol];
  if (ladder === undefined) return { value, unit: symbol };
  let rung = 0;
  let shown = value;
  while (Math.abs(shown) >= ladder.base && rung + 1 < ladder.steps.length) {
    shown /= ladder.base;
    rung += 1;
  }
  return { value: shown, unit: ladder.steps[rung] ?? symbol };
}

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const FINE = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export function formatNumber(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return WHOLE.format(value);
  return size >= 10 ? SHORT.format(value) : FINE.format(value);
}

export interface Reading {
  readonly text: string;
  readonly unit: string;
}

/** A value and its unit apart, so that the unit can be set smaller. */
export function reading(value: unknown, unit: string): Reading {
  if (typeof value === "string") return { text: value, unit: "" };
  if (typeof value !== "number" || !Number.isFinite(value)) return { text: ABSENT, unit: "" };
  const fitted = scaled(value, unit);
  return { text: formatNumber(fitted.value), unit: fitted.unit };
}

export function formatValue(value: unknown, unit: string): string {
  const { text, unit: sign } = reading(value, unit);
  if (sign === "") return text;
  return sign === "%" ? `${text}%` : `${text} ${sign}`;
}

/** A bit of a mask and what it says when it is set. */
export interface NamedBit {
  readonly bit: number;
  readonly name: string;
}

/** The set bits of a mask by name. Masks go beyond the 32 bits of the language's own bit operations. */
export function formatBits(value: unknown, bits: readonly NamedBit[]): string {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) return reading(value, "").text;
  const set = Array.from({ length: 53 }, (_, bit) => bit).filter((bit) => Math.floor(value / 2 ** bit) % 2 === 1);
  const names = set.map((bit) => bits.find((each) => each.bit === bit)?.name ?? `bit ${bit}`);
  return names.length === 0 ? "none" : names.join(", ");
}

/** The numeric value of a metric, or `null`: the wire may carry strings for columns the catalogue does not know. */
export function numberIn(values: Readonly<Record<string, unknown>> | null | undefined, column: string): number | null {
  const value = values?.[column];
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** A share, or `null` where either part is missing. */
export function shareOf(part: number | null, whole: number | null): number | null {
  return part === null || whole === null || whole <= 0 ? null : part / whole;
}

/** A column name as a person would say it: `gpu_clock_mhz` -> `GPU clock`. The unit suffix is said beside it. */
export function metricTitle(column: string): string {
  const words = column.replace(/_bytes_per_s$/, "").split("_");
  const last = words.at(-1) ?? "";
  if (words.length > 1 && UNIT_SUFFIXES.has(last)) words.pop();
  const title = words.map((word) => ACRONYMS.get(word) ?? word).join(" ");
  return title.startsWith("xGMI") ? title : capital(title);
}

const UNIT_SUFFIXES = new Set(["pct", "w", "c", "mhz", "mb", "mj", "rpm", "mv", "ns", "gtps", "ratio", "bytes"]);
const ACRONYMS = new Map(
  ["gpu", "sm", "pcie", "ecc", "ras", "xid", "hbm", "dram", "nvlink", "jpeg", "fp16", "fp32", "fp64", "vr", "soc", "cpu", "irq", "rx", "tx", "ofa", "gtt", "mig", "sw", "hw", "sram", "crc"].map(
    (word) => [word, word.toUpperCase()] as const,
  ),
)
  .set("xgmi", "xGMI")
  .set("pcie", "PCIe")
  .set("gpus", "GPUs")
  .set("xids", "XIDs")
  .set("nvlink", "NVLink")
  .set("mem", "memory");

export function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

/** The short form of a GPU id: head and tail of a uuid tell GPUs apart by eye, also where uuids were given in a row. */
export function shortId(id: string): string {
  const uuid = /^((?:GPU-|MIG-)?[0-9a-f]{8})-[0-9a-f-]{19}[0-9a-f]*?([0-9a-f]{4})(:.+)?$/i.exec(id);
  return uuid === null ? id : `${uuid[1] ?? ""}…${uuid[2] ?? ""}${uuid[3] ?? ""}`;
}
