import { describe, expect, it } from "vitest";
import { bounded, cellAt, centredOn, layOut as layOutAll, nearest, neighbour, placeBeside, revealing, WHOLE, zoomedAt } from "./cells";

function fleet(hosts: number, each: number) {
  return Array.from({ length: hosts * each }, (_, gpu) => `n${Math.floor(gpu / each)}`);
}

/** As plain lists, of groups without names. */
function layOut(groups: readonly string[], width: number, heightMax: number) {
  return plain(layOutAll(groups, { width, heightMax, named: false }));
}

function plain(layout: ReturnType<typeof layOutAll>) {
  return { layout, side: layout.side, height: layout.height, xs: [...layout.xs], ys: [...layout.ys] };
}

describe("an overview", () => {
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
    const { layout, xs, ys } = layOut(fleet(60, 8), 700, 170);
    xs.forEach((x, place) => {
      const y = ys[place] ?? 0;
      expect(cellAt(layout, x, y)).toBe(place);
      expect(cellAt(layout, x + layout.side, y + layout.side)).toBe(place);
    });
    const [x = 0, y = 0] = [xs[7], ys[7]];
    expect(cellAt(layout, x + layout.side + 1.5, y)).toBe(-1);
    expect(cellAt(layout, 0, layout.side + 0.5)).toBe(-1);
    expect(cellAt(layout, 5, 9999)).toBe(-1);
    expect(cellAt(layout, -1, -1)).toBe(-1);
    expect(cellAt(layOut([], 100, 100).layout, 5, 5)).toBe(-1);
  });

  it("is walked by arrow keys", () => {
    const { layout } = layOut(fleet(4, 4), 130, 200);
    expect(neighbour(layout, -1, "ArrowDown")).toBe(0);
    expect(neighbour(layout, 0, "ArrowLeft")).toBe(0);
    expect(neighbour(layout, 0, "ArrowRight")).toBe(1);
    expect(neighbour(layout, 1, "ArrowDown")).toBe(9);
    expect(neighbour(layout, 9, "ArrowUp")).toBe(1);
    expect(neighbour(layout, 15, "ArrowDown")).toBe(15);
    expect(neighbour(layout, 15, "ArrowRight")).toBe(15);
    expect(neighbour(layOut([], 100, 100).layout, -1, "ArrowDown")).toBe(-1);
  });
});

describe("a map with names", () => {
  const named = (groups: readonly string[], width: number, heightMax: number) => layOutAll(groups, { width, heightMax, named: true });

  it("leaves room above each group, for its name as well as its cells", () => {
    const { layout, xs, ys } = plain(named(["a", "b", "b"], 1000, 45));
    expect(layout).toMatchObject({ side: 26, heading: 16 });
    expect(ys).toEqual([16, 16, 16]);
    // A group of one cell is as wide as its name.
    expect(xs).toEqual([0, 89, 116]);
    expect(layout.groups).toEqual([{ name: "a", first: 0, count: 1, width: 76 }, { name: "b", first: 1, count: 2, width: 76 }]);
  });

  it("begins a new line behind a broken group, and leaves no room for names inside of one", () => {
    const { xs, ys, side } = plain(named([...Array.from({ length: 40 }, () => "a"), "b"], 500, 160));
    expect(side).toBe(26);
    expect(ys[39]).toBe(16 + 2 * 27);
    expect([xs[40], ys[40]]).toEqual([0, 16 + 2 * 27 + 26 + 1 + 9 + 16]);
  });

  it.each([
    ["10,000 GPUs on 1,250 nodes", fleet(1250, 8), 1400, 570],
    ["10,000 GPUs of 3 models", fleet(3, 3333), 1400, 570],
    ["4,096 GPUs in 4,096 jobs", fleet(4096, 1), 1400, 570],
    ["64 GPUs on 8 nodes", fleet(8, 8), 340, 570],
  ])("%s fit: no two cells overlap, none is outside", (_name, groups, width, height) => {
    const { layout, xs, ys } = plain(named(groups, width, height));
    expect(layout.height).toBeLessThanOrEqual(height);
    expect(new Set(xs.map((x, place) => `${x} ${ys[place] ?? ""}`)).size).toBe(groups.length);
    expect(xs.every((x) => x >= 0 && x + layout.side <= width)).toBe(true);
  });
});

describe("a view", () => {
  const layout = layOutAll(fleet(10, 10), { width: 1000, heightMax: 100, named: false });
  const frame = { width: 1000, height: 60 };

  it("shows nothing beyond the edges", () => {
    expect(bounded({ zoom: 0.2, left: 50, top: 50 }, layout, frame)).toEqual(WHOLE);
    expect(bounded({ zoom: 2, left: -5000, top: 5 }, layout, frame)).toEqual({ zoom: 2, left: -1000, top: 0 });
    expect(bounded({ zoom: 1000, left: 0, top: 0 }, layout, frame).zoom).toBe(24);
  });

  it("enlarges around a point, which stays where it is, within bounds", () => {
    expect(zoomedAt({ zoom: 2, left: -100, top: -10 }, 2, 300, 20)).toEqual({ zoom: 4, left: -500, top: -40 });
    expect(zoomedAt(WHOLE, 0.5, 300, 20)).toEqual(WHOLE);
  });

  it("finds the cell in its middle and returns to it", () => {
    const view = bounded(centredOn(8, layout, 37, frame), layout, frame);
    expect(nearest(layout, (frame.width / 2 - view.left) / 8, (frame.height / 2 - view.top) / 8)).toBe(37);
    expect(nearest(layOutAll([], { width: 9, heightMax: 9, named: false }), 0, 0)).toBe(-1);
  });

  it("moves no further than a cell needs to be seen", () => {
    expect(revealing(WHOLE, layout, 5, frame)).toEqual(WHOLE);
    const view = revealing({ zoom: 8, left: 0, top: 0 }, layout, 37, frame);
    const [x, y, side] = [(layout.xs[37] ?? 0) * 8 + view.left, (layout.ys[37] ?? 0) * 8 + view.top, layout.side * 8];
    expect([x + side, y]).toEqual([frame.width, expect.any(Number) as number]);
    expect(y + side).toBeLessThanOrEqual(frame.height);
  });
});

describe("what is said of a cell", () => {
  const frame = { width: 800, height: 400 };
  const card = { width: 280, height: 100 };
  it.each([
    ["right of its neighbour", [100, 50, 120, 70], { x: 148, y: 50 }],
    ["left of it at the right edge", [700, 50, 720, 70], { x: 392, y: 50 }],
    ["not beyond the lower edge", [100, 390, 120, 410], { x: 148, y: 300 }],
    ["below where there is no room beside", [250, 50, 500, 300], { x: 250, y: 558 }],
  ] as const)("stands %s", (_name, cell, place) => expect(placeBeside(cell, card, frame)).toEqual(place));
});

it("makes the cells of a few things large enough for their values, and of many as small as before", () => {
  const named = (hosts: number) => layOutAll(fleet(hosts, 8), { width: 1240, heightMax: 570, named: true });
  expect([named(1).side, named(2).side]).toEqual([88, 88]);
  expect(named(31).side).toBeGreaterThanOrEqual(35);
  expect(named(512).side).toBeLessThan(26);
});
