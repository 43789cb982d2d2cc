// Where the cells of a map of many things are: those of a group side by side, then a gap, line by line. All in CSS pixels.

/** Cells that stand together. */
export interface CellGroup {
  readonly name: string;
  /** Place of its first cell, and how many there are. */
  readonly first: number;
  readonly count: number;
  /** Width up to the next group of its line, for its name. */
  readonly width: number;
}

export interface CellLayout {
  /** Side of a cell, the gap to the next one not counted in. */
  readonly side: number;
  /** Room above the first line of each group. */
  readonly heading: number;
  readonly width: number;
  readonly height: number;
  /** Left and top of each cell, in the order of the cells: lines from top to bottom, each from left to right. */
  readonly xs: Float32Array;
  readonly ys: Float32Array;
  readonly groups: readonly CellGroup[];
}

export interface LayoutAsk {
  readonly width: number;
  /** Cells become as large as this height allows. With the smallest ones the layout becomes as high as it must. */
  readonly heightMax: number;
  /** Whether groups have names above them: where there is room, else they have it when the map is enlarged. */
  readonly named: boolean;
}

/** Sides of cells, the largest that fits is taken. The first ones hold a value: of a few things it stands in them without enlarging. */
const SIDES = [88, 76, 64, 54, 46, 40, 35, 26, 22, 18, 16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3];
const SMALLEST = 3;
/** An overview without names needs no large cells. */
const UNNAMED_SIDE_MAX = 14;
/** Between groups: beside large cells it need not grow. */
const GAP_MAX = 13;
/** Height of a name's line, and the width under which it says nothing. */
const NAME_HEIGHT = 16;
const NAME_WIDTH = 76;
/** Cells under this side are not given up for names, unless the groups are few. */
const NAMED_SIDE_MIN = 7;
const FEW_GROUPS = 24;

/** `groups` is the name of each cell's group; cells of a group follow each other. */
export function layOut(groups: readonly string[], ask: LayoutAsk): CellLayout {
  const runs = runsOf(groups);
  if (ask.named) {
    const least = runs.length <= FEW_GROUPS ? SMALLEST : NAMED_SIDE_MIN;
    for (const side of SIDES.filter((each) => each >= least)) {
      const layout = layOutWith(runs, groups.length, ask.width, side, NAME_HEIGHT, NAME_WIDTH);
      if (layout.height <= ask.heightMax || (side === SMALLEST && least === SMALLEST)) return layout;
    }
  }
  const sides = ask.named ? SIDES : SIDES.filter((side) => side <= UNNAMED_SIDE_MAX);
  for (const side of sides) {
    const layout = layOutWith(runs, groups.length, ask.width, side, ask.named ? Math.ceil(side / 2) : 0, 0);
    if (layout.height <= ask.heightMax || side === SMALLEST) return layout;
  }
  return layOutWith(runs, groups.length, ask.width, SMALLEST, 0, 0);
}

interface Run {
  readonly name: string;
  readonly count: number;
}

function runsOf(groups: readonly string[]): Run[] {
  const runs: { name: string; count: number }[] = [];
  for (const name of groups) {
    const last = runs.at(-1);
    if (last?.name === name) last.count += 1;
    else runs.push({ name, count: 1 });
  }
  return runs;
}

function layOutWith(runs: readonly Run[], count: number, width: number, side: number, heading: number, widthMin: number): CellLayout {
  const pitch = side + 1;
  const gap = Math.min(GAP_MAX, Math.max(3, Math.round(side / 2)));
  const lineGap = 1 + Math.min(GAP_MAX, Math.max(1, Math.round(side / 3)));
  const xs = new Float32Array(count);
  const ys = new Float32Array(count);
  const groups: CellGroup[] = [];
  let at = 0;
  let x = 0;
  let y = heading;
  let isBroken = false;
  for (const run of runs) {
    const wide = Math.max(run.count * pitch - 1, widthMin);
    // A group begins a new line if it does not fit behind the others; one wider than the line is broken. Behind a broken
    // one there is no room for a name.
    if (x > 0 && (x + wide > width || (isBroken && heading > 0))) {
      x = 0;
      y += side + lineGap + heading;
    }
    isBroken = wide > width;
    const left = x;
    groups.push({ name: run.name, first: at, count: run.count, width: Math.min(wide, width) });
    for (let n = 0; n < run.count; n += 1, at += 1) {
      if (x > 0 && x + side > width) {
        x = 0;
        y += side + (heading === 0 ? lineGap : 1);
      }
      xs[at] = x;
      ys[at] = y;
      x += pitch;
    }
    x = Math.max(x, left + widthMin) + gap;
  }
  return { side, heading, width, height: count === 0 ? 0 : y + side, xs, ys, groups };
}

/** Place of the cell at a point; -1 for none. */
export function cellAt({ side, xs, ys }: CellLayout, x: number, y: number): number {
  // The cells stand in lines from left to right: the last one that begins before the point.
  let low = 0;
  let high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const top = ys[middle] ?? 0;
    const isBefore = top + side < y || (top <= y && (xs[middle] ?? 0) <= x);
    if (isBefore) low = middle + 1;
    else high = middle;
  }
  const place = low - 1;
  const left = xs[place];
  const top = ys[place];
  return left !== undefined && top !== undefined && x <= left + side && y >= top && y <= top + side ? place : -1;
}

export const DIRECTIONS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"] as const;
export type Direction = (typeof DIRECTIONS)[number];

/** The cell that is reached by an arrow key. */
export function neighbour({ xs, ys }: CellLayout, from: number, direction: Direction): number {
  const last = xs.length - 1;
  if (from < 0) return last < 0 ? -1 : 0;
  if (direction === "ArrowLeft") return Math.max(0, from - 1);
  if (direction === "ArrowRight") return Math.min(last, from + 1);
  const x = xs[from] ?? 0;
  const y = ys[from] ?? 0;
  const step = direction === "ArrowDown" ? 1 : -1;
  let best = from;
  let line: number | null = null;
  for (let at = from + step; at >= 0 && at <= last; at += step) {
    const top = ys[at] ?? 0;
    if (top === y) continue;
    line ??= top;
    if (top !== line) break;
    if (best === from || Math.abs((xs[at] ?? 0) - x) < Math.abs((xs[best] ?? 0) - x)) best = at;
  }
  return best;
}

/** What of a layout is seen: enlarged `zoom` times, its upper left corner at this point. */
export interface View {
  readonly zoom: number;
  readonly left: number;
  readonly top: number;
}

export interface Size {
  readonly width: number;
  readonly height: number;
}

export const WHOLE: View = { zoom: 1, left: 0, top: 0 };
export const ZOOM_MAX = 24;

/** A view within bounds: nothing beyond the edges of the layout is shown. */
export function bounded({ zoom, left, top }: View, layout: Size, frame: Size): View {
  const held = Math.min(ZOOM_MAX, Math.max(1, zoom));
  const fit = (offset: number, whole: number, seen: number) => Math.max(Math.min(0, seen - whole * held), Math.min(0, offset));
  return { zoom: held, left: fit(left, layout.width, frame.width), top: fit(top, layout.height, frame.height) };
}

/** Enlarges or shrinks so that what is at a point stays there. */
export function zoomedAt(view: View, factor: number, x: number, y: number): View {
  const zoom = Math.min(ZOOM_MAX, Math.max(1, view.zoom * factor));
  const by = zoom / view.zoom;
  return { zoom, left: x - (x - view.left) * by, top: y - (y - view.top) * by };
}

/** The view moved as little as it must for a cell to be seen. */
export function revealing(view: View, { xs, ys, side, heading }: CellLayout, place: number, frame: Size): View {
  const into = (offset: number, start: number, end: number, seen: number) => {
    if (start + offset < 0) return -start;
    return end + offset > seen ? seen - end : offset;
  };
  const x = (xs[place] ?? 0) * view.zoom;
  const y = (ys[place] ?? 0) * view.zoom;
  const long = side * view.zoom;
  return { zoom: view.zoom, left: into(view.left, x, x + long, frame.width), top: into(view.top, y - heading, y + long, frame.height) };
}

/** The view with a cell in its middle. */
export function centredOn(zoom: number, { xs, ys, side }: CellLayout, place: number, frame: Size): View {
  const middle = (at: number | undefined) => ((at ?? 0) + side / 2) * zoom;
  return { zoom, left: frame.width / 2 - middle(xs[place]), top: frame.height / 2 - middle(ys[place]) };
}

/** The cell next to a point; -1 without cells. */
export function nearest({ xs, ys, side }: CellLayout, x: number, y: number): number {
  let best = -1;
  let least = Infinity;
  for (let at = 0; at < xs.length; at += 1) {
    const distance = ((xs[at] ?? 0) + side / 2 - x) ** 2 + ((ys[at] ?? 0) + side / 2 - y) ** 2;
    if (distance < least) {
      least = distance;
      best = at;
    }
  }
  return best;
}

/** Between a cell's neighbour and what is said beside it. */
const ASIDE_PX = 8;

/** Where something that is said of a cell stands: beyond its neighbours, right, left or below of them. */
export function placeBeside([left, top, right, bottom]: readonly [number, number, number, number], { width, height }: Size, frame: Size): { readonly x: number; readonly y: number } {
  const away = right - left + ASIDE_PX;
  const y = Math.max(0, Math.min(top, frame.height - height));
  if (right + away + width <= frame.width) return { x: right + away, y };
  if (left - away - width >= 0) return { x: left - away - width, y };
  return { x: Math.max(0, Math.min(left, frame.width - width)), y: bottom + away };
}
