import type { CellLayout, Size, View } from "./cells";
import type { Look, Painting } from "./looks";

export interface Picture {
  readonly layout: CellLayout;
  readonly painting: Painting;
  /** Places of the cells by look, so that each colour is set once. */
  readonly order: Uint32Array;
  /** What stands in a cell that is large enough for it. */
  readonly text: ((place: number) => string) | null;
}

/** What is set off from the rest. */
export interface Marks {
  /** The cell under pointer or keys; -1: none. */
  readonly active: number;
  readonly picked: readonly number[];
}

const FONT = "ui-sans-serif, system-ui, sans-serif";
/** Room that a name above its group needs. */
const NAME_HEIGHT_MIN = 13;
const NAME_WIDTH_MIN = 34;
const TEXT_SIDE_MIN = 34;

/** Places by look: a counting sort. */
export function orderOf({ looks, lookOf }: Painting): Uint32Array {
  const starts = new Uint32Array(looks.length + 1);
  for (const look of lookOf) starts[look + 1] = (starts[look + 1] ?? 0) + 1;
  for (let look = 1; look < starts.length; look += 1) starts[look] = (starts[look] ?? 0) + (starts[look - 1] ?? 0);
  const order = new Uint32Array(lookOf.length);
  lookOf.forEach((look, place) => {
    const at = starts[look] ?? 0;
    order[at] = place;
    starts[look] = at + 1;
  });
  return order;
}

/** Draws the part of the cells that the view shows, on whole pixels. */
export function paintCells(canvas: HTMLCanvasElement, picture: Picture, view: View, size: Size, marks: Marks): void {
  const context = canvas.getContext("2d");
  if (context === null) return;
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(size.width * scale), Math.round(size.height * scale)];
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, size.width, size.height);
  const style = getComputedStyle(canvas);
  const colourOf = (colour: string) => (colour.startsWith("--") ? style.getPropertyValue(colour) : colour);
  const brush: Brush = { context, view, size, layout: picture.layout, colourOf };
  fillCells(brush, picture);
  if (picture.text !== null && picture.layout.side * view.zoom >= TEXT_SIDE_MIN) writeTexts(brush, picture, picture.text);
  writeNames(brush);
  frameCells(brush, picture, marks);
}

interface Brush {
  readonly context: CanvasRenderingContext2D;
  readonly view: View;
  readonly size: Size;
  readonly layout: CellLayout;
  readonly colourOf: (colour: string) => string;
}

/** Left, top, right and bottom of a cell on the screen. */
export function boxOnScreen({ xs, ys, side }: CellLayout, { zoom, left, top }: View, place: number): [number, number, number, number] {
  const x = xs[place] ?? 0;
  const y = ys[place] ?? 0;
  return [Math.round(x * zoom + left), Math.round(y * zoom + top), Math.round((x + side) * zoom + left), Math.round((y + side) * zoom + top)];
}

/** The same; null if it is not seen. */
function boxOf({ view, size, layout }: Brush, place: number): [number, number, number, number] | null {
  const box = boxOnScreen(layout, view, place);
  const [l, t, r, b] = box;
  return r < 0 || b < 0 || l > size.width || t > size.height ? null : box;
}

function fillCells(brush: Brush, { painting, order }: Picture): void {
  const { context } = brush;
  let current: Look | null = null;
  let lookNumber = -1;
  for (const place of order) {
    const box = boxOf(brush, place);
    if (box === null) continue;
    const [l, t, r, b] = box;
    const next = painting.lookOf[place] ?? 0;
    if (next !== lookNumber) {
      lookNumber = next;
      current = painting.looks[next] ?? null;
      context.fillStyle = brush.colourOf(current?.colour ?? "");
    }
    context.fillRect(l, t, r - l, b - t);
    if (current?.shape !== "hollow" && current?.shape !== "holed") continue;
    // The wall of a hollow cell is as thin as it can be, that of a holed one a third.
    const wall = current.shape === "hollow" ? Math.max(1, Math.floor((r - l) / 9)) : Math.floor((r - l) / 3);
    if (wall > 0 && r - l > 2 * wall) context.clearRect(l + wall, t + wall, r - l - 2 * wall, b - t - 2 * wall);
  }
}

/** Frames reach over the neighbours, so they are drawn last. */
function frameCells(brush: Brush, { painting }: Picture, { active, picked }: Marks): void {
  const { context, view, layout } = brush;
  const width = Math.max(1, Math.min(3, Math.round((layout.side * view.zoom) / 7)));
  const frame = (place: number, colour: string, wide: number) => {
    const box = boxOf(brush, place);
    if (box === null) return;
    const [l, t, r, b] = box;
    context.strokeStyle = brush.colourOf(colour);
    context.lineWidth = wide;
    context.strokeRect(l - wide / 2, t - wide / 2, r - l + wide, b - t + wide);
  };
  const framed = painting.looks.map((look) => look.shape === "framed");
  if (framed.includes(true)) painting.lookOf.forEach((look, place) => framed[look] === true && frame(place, "--fg", width));
  for (const place of picked) frame(place, "--accent", width + 1);
  if (active >= 0) frame(active, "--fg", width);
}

function writeNames({ context, view, size, layout, colourOf }: Brush): void {
  if (layout.heading * view.zoom < NAME_HEIGHT_MIN) return;
  context.font = `11px ${FONT}`;
  context.textBaseline = "alphabetic";
  context.textAlign = "left";
  context.fillStyle = colourOf("--muted");
  for (const group of layout.groups) {
    const x = (layout.xs[group.first] ?? 0) * view.zoom + view.left;
    const y = (layout.ys[group.first] ?? 0) * view.zoom + view.top;
    const width = group.width * view.zoom;
    if (width < NAME_WIDTH_MIN || x + width < 0 || x > size.width || y < 0 || y - NAME_HEIGHT_MIN > size.height) continue;
    // A name stays in sight as long as its group does.
    const shown = Math.max(2, x);
    const room = x + width - shown;
    if (room < NAME_WIDTH_MIN) continue;
    context.fillText(shortened(context, group.name, room), shown, y - 4);
  }
}

/** As much of a text as fits. */
function shortened(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let length = Math.max(1, Math.floor((text.length * width) / context.measureText(text).width) - 1);
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return `${text.slice(0, length)}…`;
}

function writeTexts(brush: Brush, { painting, order }: Picture, text: (place: number) => string): void {
  const { context } = brush;
  context.font = `11px ${FONT}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const place of order) {
    const box = boxOf(brush, place);
    if (box === null) continue;
    const [l, t, r, b] = box;
    const look = painting.looks[painting.lookOf[place] ?? 0];
    const isOpen = look?.shape === "hollow" || look?.shape === "holed";
    context.fillStyle = isOpen ? brush.colourOf("--fg") : inkOn(brush.colourOf(look?.colour ?? ""));
    context.fillText(shortened(context, text(place), r - l - 4), (l + r) / 2, (t + b) / 2);
  }
}

/** Black or white, whichever can be read on a colour. */
export function inkOn(colour: string): string {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => parseInt(colour.trim().slice(at, at + 2), 16) / 255);
  const linear = (part: number) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) > 0.18 ? "#000000" : "#ffffff";
}
