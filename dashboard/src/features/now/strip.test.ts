import { describe, expect, it } from "vitest";
import { cellAt, layOut, neighbour } from "./strip";

function fleet(hosts: number, each: number) {
  return Array.from({ length: hosts * each }, (_, gpu) => ({ host: `n${Math.floor(gpu / each)}` }));
}

describe("the fleet strip", () => {
  it("keeps the cells of a node together and nodes apart", () => {
    const { xs, ys, side } = layOut(fleet(2, 4), 1000, 200);
    expect(side).toBe(14);
    expect(xs).toEqual([0, 15, 30, 45, 67, 82, 97, 112]);
    expect(new Set(ys)).toEqual(new Set([0]));
  });

  it("begins a line with the node that does not fit, and breaks one that fits no line", () => {
    const narrow = layOut(fleet(2, 4), 100, 200);
    expect(narrow.xs.slice(4)).toEqual([0, 15, 30, 45]);
    expect(narrow.ys[4]).toBeGreaterThan(narrow.side);
    expect(Math.max(...layOut(fleet(1, 100), 100, 20).xs)).toBeLessThanOrEqual(97);
  });

  it.each([
    [4096, 512, 1400],
    [10_000, 1250, 1400],
    [10_000, 1250, 330],
    [0, 0, 300],
  ])("%i GPUs on %i hosts in %i px: no two cells overlap, none is outside", (gpus, hosts, width) => {
    const layout = layOut(fleet(hosts, hosts === 0 ? 0 : gpus / hosts), width, 170);
    expect(layout.xs).toHaveLength(gpus);
    const places = layout.xs.map((x, place) => `${x} ${layout.ys[place] ?? ""}`);
    expect(new Set(places).size).toBe(gpus);
    expect(layout.xs.every((x) => x >= 0 && x + layout.side <= width)).toBe(true);
    if (width > 1000) expect(layout.height).toBeLessThanOrEqual(gpus > 5000 ? 220 : 170);
  });

  it("finds the cell under a point, and none in a gap or outside", () => {
    const layout = layOut(fleet(60, 8), 700, 170);
    layout.xs.forEach((x, place) => {
      const y = layout.ys[place] ?? 0;
      expect(cellAt(layout, x, y)).toBe(place);
      expect(cellAt(layout, x + layout.side, y + layout.side)).toBe(place);
    });
    const [x = 0, y = 0] = [layout.xs[7], layout.ys[7]];
    expect(cellAt(layout, x + layout.side + 1.5, y)).toBe(-1);
    expect(cellAt(layout, 0, layout.side + 0.5)).toBe(-1);
    expect(cellAt(layout, 5, 9999)).toBe(-1);
    expect(cellAt(layout, -1, -1)).toBe(-1);
    expect(cellAt(layOut([], 100, 100), 5, 5)).toBe(-1);
  });

  it("is walked by arrow keys", () => {
    const layout = layOut(fleet(4, 4), 130, 200);
    expect(neighbour(layout, -1, "ArrowDown")).toBe(0);
    expect(neighbour(layout, 0, "ArrowLeft")).toBe(0);
    expect(neighbour(layout, 0, "ArrowRight")).toBe(1);
    expect(neighbour(layout, 1, "ArrowDown")).toBe(9);
    expect(neighbour(layout, 9, "ArrowUp")).toBe(1);
    expect(neighbour(layout, 15, "ArrowDown")).toBe(15);
    expect(neighbour(layout, 15, "ArrowRight")).toBe(15);
    expect(neighbour(layOut([], 100, 100), -1, "ArrowDown")).toBe(-1);
  });
});
