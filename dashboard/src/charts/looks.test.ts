import { describe, expect, it } from "vitest";
import { inkOn, pixelOf } from "./paintCells";
import { differenceRamp, domainOf, OLD, paintValues, ramp, STEPS } from "./looks";

const ANY = { low: -1e12, high: 1e12 };

describe("where the colours of values begin and end", () => {
  it.each([
    ["shares have their whole range", [3, 7], "%", ANY, { low: 0, high: 100 }],
    ["a share beyond it too", [3, 180], "%", ANY, { low: 0, high: 180 }],
    ["round bounds", [31, 86.5], "°C", ANY, { low: 30, high: 90 }],
    ["from 0 if values reach far down", [76, 702], "W", ANY, { low: 0, high: 800 }],
    ["absent values do not count", [null, 31, null, 86], "°C", ANY, { low: 30, high: 90 }],
    ["no wider than what can be true", [0, 1], "", { low: 0, high: 1 }, { low: 0, high: 1 }],
    ["one value", [50, 50], "W", ANY, { low: 50, high: 50.5 }],
    ["zeros", [0, 0], "", ANY, { low: 0, high: 0.1 }],
    ["values below 0", [-20, 10], "°C", ANY, { low: -20, high: 10 }],
    ["no values", [null], "W", ANY, null],
  ])("%s", (_name, values, unit, possible, expected) => {
    const domain = domainOf(values, unit, possible);
    expect(domain).toEqual(expected);
  });
});

describe("colours of values", () => {
  it.each(["dark", "light"] as const)("grow away from the background in one direction of lightness (%s)", (theme) => {
    const colours = ramp(theme);
    expect(colours).toHaveLength(STEPS);
    const part = (colour: string, at: number) => parseInt(colour.slice(at, at + 2), 16);
    const lightness = colours.map((colour) => part(colour, 1) * 0.2126 + part(colour, 3) * 0.7152 + part(colour, 5) * 0.0722);
    const steps = lightness.slice(1).map((one, at) => one - (lightness[at] ?? 0));
    expect(steps.every((step) => (theme === "dark" ? step > 0 : step < 0))).toBe(true);
  });

  it.each(["dark", "light"] as const)("of differences are faint where nothing changed, and grow to both sides (%s)", (theme) => {
    const part = (colour: string | undefined, at: number) => parseInt(colour?.slice(at, at + 2) ?? "", 16);
    const colours = differenceRamp(theme);
    const range = (colour: string | undefined) => Math.max(part(colour, 1), part(colour, 3), part(colour, 5)) - Math.min(part(colour, 1), part(colour, 3), part(colour, 5));
    expect(range(colours[STEPS / 2])).toBeLessThan(range(colours[0]));
    expect(range(colours[STEPS / 2])).toBeLessThan(range(colours.at(-1)));
  });

  it("tell 0 from absent by shape as well", () => {
    const { looks, lookOf } = paintValues([0, null, 100, 250, -9], { low: 0, high: 100 }, ramp("dark"), (place) => place === 2);
    expect([...lookOf]).toEqual([0, STEPS, OLD, STEPS - 1, 0]);
    expect(looks[OLD]?.shape).toBe("holed");
    expect([looks[0]?.shape, looks[STEPS]?.shape]).toEqual(["full", "hollow"]);
  });

  it("are pixels with red in the lowest byte", () => {
    expect(pixelOf("#123456").toString(16)).toBe("ff563412");
    expect(pixelOf("#ffffff")).toBe(0xffffffff);
  });

  it.each([
    ["#fde725", "#000000"],
    ["#482475", "#ffffff"],
    ["#21918c", "#000000"],
  ])("%s is written on in %s", (colour, ink) => expect(inkOn(colour)).toBe(ink));
});
