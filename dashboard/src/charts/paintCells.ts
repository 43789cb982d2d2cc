import type { CellLayout, Size, View } from "./cells";
import type { Look, Painting } from "./looks";

export interface Picture {
  readonly layout: CellLayout;
  readonly painting: Painting;
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
  const style = getComputedStyle(canvas);
  const colourOf = (colour: string) => (colour.startsWith("--") ? style.getPropertyValue(colour).trim() : colour);
  const brush: Brush = { context, view, size, layout: picture.layout, colourOf };
  if (width > 0 && height > 0) fillCells(brush, picture.painting, width, height, scale);
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

/** Pixels of a canvas, kept from one frame to the next. */
const images = new WeakMap<CanvasRenderingContext2D, ImageData>();

/** Ten thousand rectangles as pixels of one image: a canvas takes several times as long to draw them one by one. */
function fillCells({ context, view, layout, colourOf }: Brush, { looks, lookOf }: Painting, width: number, height: number, scale: number): void {
  const held = images.get(context);
  const image = held?.width === width && held.height === height ? held : context.createImageData(width, height);
  images.set(context, image);
  const pixels = new Uint32Array(image.data.buffer);
  pixels.fill(0);
  const colours = looks.map((look) => pixelOf(colourOf(look.colour)));
  const zoom = view.zoom * scale;
  const side = layout.side;
  const fill = (l: number, t: number, r: number, b: number, colour: number) => {
    const [from, to] = [Math.max(0, l), Math.min(width, r)];
    if (from >= to) return;
    for (let y = Math.max(0, t); y < Math.min(height, b); y += 1) pixels.fill(colour, y * width + from, y * width + to);
  };
  for (let place = 0; place < lookOf.length; place += 1) {
    const x = (layout.xs[place] ?? 0) * zoom + view.left * scale;
    const y = (layout.ys[place] ?? 0) * zoom + view.top * scale;
    const [l, t, r, b] = [Math.round(x), Math.round(y), Math.round(x + side * zoom), Math.round(y + side * zoom)];
    const number = lookOf[place] ?? 0;
    fill(l, t, r, b, colours[number] ?? 0);
    const wall = wallOf(looks[number], r - l, scale);
    if (wall > 0) fill(l + wall, t + wall, r - wall, b - wall, 0);
  }
  context.putImageData(image, 0, 0);
}

/** Width of the walls of a cell that is not full: as thin as can be of a hollow one, of a holed one a third of it, unless a text stands in it. */
function wallOf(look: Look | undefined, side: number, scale: number): number {
  if (look?.shape === "hollow") return Math.max(Math.round(scale), Math.min(4 * scale, Math.floor(side / 9)));
  return look?.shape === "holed" ? Math.min(14 * scale, Math.floor(side / 3)) : 0;
}

/** `#rrggbb` as a pixel: its bytes are red, green, blue and alpha, the first in the lowest bits. */
export function pixelOf(colour: string): number {
  const rgb = parseInt(colour.slice(1), 16);
  return (0xff000000 | ((rgb & 0xff) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
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

/** Larger in larger cells, as long as a value of five letters fits. */
function textSize(side: number): number {
  return Math.min(16, Math.max(11, Math.round(side / 4.5)));
}

function writeTexts(brush: Brush, { painting }: Picture, text: (place: number) => string): void {
  const { context, view, layout } = brush;
  context.font = `${textSize(layout.side * view.zoom)}px ${FONT}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  painting.lookOf.forEach((number, place) => {
    const box = boxOf(brush, place);
    if (box === null) return;
    const [l, t, r, b] = box;
    const look = painting.looks[number];
    const isOpen = look?.shape === "hollow" || look?.shape === "holed";
    context.fillStyle = isOpen ? brush.colourOf("--fg") : inkOn(brush.colourOf(look?.colour ?? ""));
    context.fillText(shortened(context, text(place), r - l - 4), (l + r) / 2, (t + b) / 2);
  });
}

/** Black or white, whichever can be read on a colour. */
export function inkOn(colour: string): string {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
  const linear = (part: number) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) > 0.18 ? "#000000" : "#ffffff";
}
