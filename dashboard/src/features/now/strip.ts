/** All that the place of a cell depends on. */
export interface Hosted {
  readonly host: string;
}

/** Where each GPU's cell is: cells of a node side by side, then a gap, row by row. All in CSS pixels. */
export interface StripLayout {
  /** Side of a cell, the gap to the next one not counted in. */
  readonly side: number;
  readonly height: number;
  /** Left and top of each cell, in the order of the GPUs. */
  readonly xs: readonly number[];
  readonly ys: readonly number[];
}

/** Sides of cells, the largest that fits is taken. */
const SIDES = [14, 11, 9, 7, 6, 5, 4, 3];
const SMALLEST = 3;

/** Lays the cells out in this width, as large as this height allows; with the smallest cells it becomes as high as it must. */
export function layOut(gpus: readonly Hosted[], width: number, heightMax: number): StripLayout {
  for (const side of SIDES) {
    const layout = layOutWith(gpus, width, side);
    if (layout.height <= heightMax || side === SMALLEST) return layout;
  }
  return layOutWith(gpus, width, SMALLEST);
}

function layOutWith(gpus: readonly Hosted[], width: number, side: number): StripLayout {
  const pitch = side + 1;
  const gap = Math.max(3, Math.round(side / 2));
  const lineHeight = pitch + Math.max(1, Math.round(side / 3));
  const xs: number[] = [];
  const ys: number[] = [];
  let x = 0;
  let y = 0;
  let at = 0;
  while (at < gpus.length) {
    const host = gpus[at]?.host;
    let end = at;
    while (end < gpus.length && gpus[end]?.host === host) end += 1;
    // A node begins a new line if it does not fit behind the others; one wider than the line is broken.
    if (x > 0 && x + (end - at) * pitch - 1 > width) {
      x = 0;
      y += lineHeight;
    }
    for (; at < end; at += 1) {
      if (x > 0 && x + side > width) {
        x = 0;
        y += lineHeight;
      }
      xs.push(x);
      ys.push(y);
      x += pitch;
    }
    x += gap;
  }
  return { side, height: gpus.length === 0 ? 0 : y + side, xs, ys };
}

/** Index of the GPU whose cell is at a point, or next to it within a cell's gap; -1 for none. */
export function cellAt({ side, xs, ys }: StripLayout, x: number, y: number): number {
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

export type Direction = "ArrowLeft" | "ArrowRight" | "ArrowUp" | "ArrowDown";

/** The cell that is reached by an arrow key. */
export function neighbour({ xs, ys }: StripLayout, from: number, direction: Direction): number {
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
