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

/** A chart with its title and legend as a PNG; null where the browser makes none. */
export function pictureOf(chart: HTMLCanvasElement, caption: Caption): Promise<Blob | null> {
  const scale = chart.clientWidth > 0 ? chart.width / chart.clientWidth : 1;
  const canvas = document.createElement("canvas");
  canvas.width = chart.width + 2 * PAD * scale;
  canvas.height = chart.height + (2 * PAD + 3 * LINE) * scale;
  const context = canvas.getContext("2d");
  if (context === null) return Promise.resolve(null);
  context.fillStyle = caption.background;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(chart, PAD * scale, (PAD + LINE) * scale);
  context.scale(scale, scale);
  context.textBaseline = "middle";
  context.fillStyle = caption.ink;
  context.font = `600 13px ${FONT}`;
  context.fillText(caption.title, PAD, PAD + LINE / 2);
  context.font = `11px ${FONT}`;
  const legend = chart.height / scale + PAD + LINE * 1.5;
  let x = PAD;
  for (const { name, colour } of caption.lines) {
    context.fillStyle = colour;
    context.fillRect(x, legend - 1, 12, 2);
    context.fillStyle = caption.ink;
    context.fillText(name, x + 17, legend);
    x += 17 + context.measureText(name).width + 16;
  }
  context.fillText(caption.below, PAD, legend + LINE);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
