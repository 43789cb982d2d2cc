import type uPlot from "uplot";
import { MINUTE } from "../shared/time";
import { isUtc } from "../shared/zone";
import { tickDistances, timeTicks, valueRange, valueTicks } from "./axis";
import { aligned, bridged, isolated, type Frame } from "./frame";
import { MARKS_HEIGHT } from "./marks";

/** Colours of a theme, read from the style sheet: one place says what they are. */
export interface Palette {
  readonly text: string;
  readonly grid: string;
  readonly lines: readonly string[];
}

/** What is drawn behind the lines. */
export interface Behind {
  /** Smallest and largest value of each step. */
  readonly band: { readonly low: Frame; readonly high: Frame } | null;
  /** The same of other GPUs, as ghost lines. */
  readonly peers: Frame | null;
}

export const NOTHING_BEHIND: Behind = { band: null, peers: null };

export interface PlotAsk {
  readonly columns: readonly string[];
  readonly unit: string;
  readonly hidden: ReadonlySet<string>;
  readonly hasBand: boolean;
  readonly hasPeers: boolean;
  readonly palette: Palette;
  readonly width: number;
  readonly height: number;
  /** How many times larger everything is drawn than on the screen. */
  readonly scale?: number;
  readonly syncKey: string;
  readonly onCursor: (place: number | null) => void;
  readonly onSelect: (start: number, end: number) => void;
  /** Draws what stands above the lines. */
  readonly onDraw: (plot: uPlot) => void;
}

/** The lines, then what is behind them: lower edges, upper edges, ghosts. */
export function plotData(frame: Frame, columns: readonly string[], { band, peers }: Behind): uPlot.AlignedData {
  const { times, stepMs } = frame;
  const linesOf = (of: Frame) => columns.map((column) => bridged(times, aligned(of, column, times), stepMs));
  return [[...times], ...linesOf(frame), ...(band === null ? [] : [...linesOf(band.low), ...linesOf(band.high)]), ...(peers === null ? [] : linesOf(peers))];
}

/** Room beside the lines, in CSS pixels: left of them the values of the axis. */
export const ROOM_LEFT = 64;
export const ROOM_RIGHT = 8;
const FONT = "ui-sans-serif, system-ui, sans-serif";

export function plotOptions(ask: PlotAsk): uPlot.Options {
  const { palette } = ask;
  const inUtc = isUtc();
  const { scale = 1 } = ask;
  const axis = { stroke: palette.text, font: `${11 * scale}px ${FONT}`, gap: 5 * scale, ticks: { show: false }, grid: { stroke: palette.grid, width: scale } };
  return {
    width: ask.width * scale,
    height: ask.height * scale,
    ms: 1,
    // Ticks stand at round local parts of these dates.
    tzDate: (instant) => new Date(inUtc ? instant + new Date(instant).getTimezoneOffset() * MINUTE : instant),
    padding: [MARKS_HEIGHT * scale, ROOM_RIGHT * scale, 0, 0],
    legend: { show: false },
    cursor: {
      sync: { key: ask.syncKey, setSeries: false },
      drag: { x: true, y: false, setScale: false },
      points: { size: 7 },
    },
    scales: {
      x: { time: true },
      y: { range: (_plot, low: number | null, high: number | null) => valueRange(ask.unit, low, high) },
    },
    axes: [
      { ...axis, size: 28 * scale, space: 64 * scale, values: (_plot, splits, _axis, _space, distance) => timeTicks(splits, distance) },
      { ...axis, size: ROOM_LEFT * scale, space: 30 * scale, incrs: tickDistances(ask.unit), values: (_plot, splits) => valueTicks(splits, ask.unit) },
    ],
    series: [
      {},
      ...ask.columns.map((column, place) => line(ask, column, place)),
      ...(ask.hasBand ? [...ask.columns, ...ask.columns].map((column) => edge(ask, column)) : []),
      ...(ask.hasPeers ? ask.columns.map((column, place) => ghost(ask, column, place)) : []),
    ],
    bands: ask.hasBand ? ask.columns.map((_, place) => band(ask, place)) : [],
    hooks: {
      draw: [(plot) => ask.onDraw(plot)],
      setCursor: [(plot) => ask.onCursor(plot.cursor.idx ?? null)],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width < 4) return;
          const start = plot.posToVal(left, "x");
          const end = plot.posToVal(left + width, "x");
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          ask.onSelect(Math.round(start), Math.round(end));
        },
      ],
    },
  };
}

function scaleOf({ scale = 1 }: PlotAsk): number {
  return scale;
}

function colourAt({ palette }: PlotAsk, place: number): string {
  return palette.lines[place % palette.lines.length] ?? palette.text;
}

/** An edge of a band is not drawn itself. */
function edge(ask: PlotAsk, column: string): uPlot.Series {
  return { label: column, show: !ask.hidden.has(column), width: 0, points: { show: false } };
}

function band(ask: PlotAsk, place: number): uPlot.Band {
  const low = 1 + ask.columns.length + place;
  return { series: [low + ask.columns.length, low], fill: `${colourAt(ask, place)}2e` };
}

function ghost(ask: PlotAsk, column: string, place: number): uPlot.Series {
  return { label: column, show: !ask.hidden.has(column), stroke: `${colourAt(ask, place)}99`, width: scaleOf(ask), dash: [4 * scaleOf(ask), 3 * scaleOf(ask)], points: { show: false } };
}

function line(ask: PlotAsk, column: string, place: number): uPlot.Series {
  const colour = colourAt(ask, place);
  const alone = (plot: uPlot, series: number) => isolated(Array.from(plot.data[series] ?? []));
  return {
    label: column,
    show: !ask.hidden.has(column),
    stroke: colour,
    width: 1.5 * scaleOf(ask),
    spanGaps: false,
    points: {
      show: (plot, series) => alone(plot, series).length > 0,
      filter: (plot, series) => alone(plot, series),
      size: 6 * scaleOf(ask),
      stroke: colour,
      fill: colour,
    },
  };
}
