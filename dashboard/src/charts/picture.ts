/** What stands around a chart in its picture. */
export interface Caption {
  readonly title: string;
  readonly below: string;
  readonly lines: readonly { readonly name: string; readonly colour: string }[];
  readonly background: string;
  readonly ink: string;
}

const PAD = 12;
const LINE = 18;
const FONT = "ui-sans-serif, system-ui, sans-serif";

/** How many pixels of a picture a pixel of the screen is at least: it is looked at elsewhere, and larger. */
export const PICTURE_SCALE = 2;

/** Where each entry of a legend stands, line by line: none runs out of the picture. */
export function legendPlaces(widths: readonly number[], whole: number, gap: number): { readonly places: readonly (readonly [x: number, line: number])[]; readonly lines: number } {
  let [x, line] = [0, 0];
  const places = widths.map((width): [number, number] => {
    if (x > 0 && x + width > whole) [x, line] = [0, line + 1];
    const place: [number, number] = [x, line];
    x += width + gap;
    return place;
  });
  return { places, lines: widths.length === 0 ? 0 : line + 1 };
}

const MARK = 17;

/** A chart, drawn so many times larger than on the screen, with its title and its whole legend as a PNG; null where the browser makes none. */
export function pictureOf(chart: HTMLCanvasElement, scale: number, caption: Caption): Promise<Blob | null> {
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  if (context === null) return Promise.resolve(null);
  const small = `11px ${FONT}`;
  context.font = small;
  const inner = chart.width / scale;
  const { places, lines } = legendPlaces(caption.lines.map(({ name }) => MARK + context.measureText(name).width), inner, 16);
  // What stands below is broken between its parts, never cut.
  const parts = caption.below.split(", ").map((part, place, all) => (place + 1 < all.length ? `${part}, ` : part));
  const below = legendPlaces(parts.map((part) => context.measureText(part).width), inner, 0);
  canvas.width = chart.width + 2 * PAD * scale;
  canvas.height = chart.height + (2 * PAD + (1 + lines + below.lines) * LINE) * scale;
  context.fillStyle = caption.background;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(chart, PAD * scale, (PAD + LINE) * scale);
  context.scale(scale, scale);
  context.textBaseline = "middle";
  context.fillStyle = caption.ink;
  context.font = `600 13px ${FONT}`;
  context.fillText(caption.title, PAD, PAD + LINE / 2, inner);
  context.font = small;
  const legend = chart.height / scale + PAD + LINE * 1.5;
  caption.lines.forEach(({ name, colour }, place) => {
    const [x, line] = places[place] ?? [0, 0];
    const y = legend + line * LINE;
    context.fillStyle = colour;
    context.fillRect(PAD + x, y - 1, 12, 2);
    context.fillStyle = caption.ink;
    context.fillText(name, PAD + x + MARK, y);
  });
  parts.forEach((part, place) => {
    const [x, line] = below.places[place] ?? [0, 0];
    context.fillText(part, PAD + x, legend + (lines + line) * LINE);
  });
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
