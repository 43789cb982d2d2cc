import type uPlot from "uplot";
import { tickDistances, timeTicks, valueRange, valueTicks } from "./axis";
import { bridged, isolated, type Frame } from "./frame";

/** Colours of a theme, read from the style sheet: one place says what they are. */
export interface Palette {
  readonly text: string;
  readonly grid: string;
  readonly lines: readonly string[];
}

export interface PlotAsk {
  readonly columns: readonly string[];
  readonly unit: string;
  readonly hidden: ReadonlySet<string>;
  readonly palette: Palette;
  readonly width: number;
  readonly height: number;
  readonly syncKey: string;
  readonly onCursor: (place: number | null) => void;
  readonly onSelect: (start: number, end: number) => void;
}

export function plotData(frame: Frame, columns: readonly string[]): uPlot.AlignedData {
  const lines = columns.map((column) => {
    const values = frame.values.get(column);
    return values === undefined ? frame.times.map(() => null) : bridged(frame.times, values, frame.stepMs);
  });
  return [[...frame.times], ...lines];
}

const FONT = "11px ui-sans-serif, system-ui, sans-serif";

export function plotOptions(ask: PlotAsk): uPlot.Options {
  const { palette } = ask;
  const axis = { stroke: palette.text, font: FONT, ticks: { show: false }, grid: { stroke: palette.grid, width: 1 } };
  return {
    width: ask.width,
    height: ask.height,
    ms: 1,
    padding: [8, 8, 0, 0],
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
      { ...axis, size: 28, space: 64, values: (_plot, splits, _axis, _space, distance) => timeTicks(splits, distance) },
      { ...axis, size: 64, space: 30, incrs: tickDistances(ask.unit), values: (_plot, splits) => valueTicks(splits, ask.unit) },
    ],
    series: [{}, ...ask.columns.map((column, place) => line(ask, column, place))],
    hooks: {
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

function line(ask: PlotAsk, column: string, place: number): uPlot.Series {
  const colour = ask.palette.lines[place % ask.palette.lines.length] ?? ask.palette.text;
  const alone = (plot: uPlot, series: number) => isolated(Array.from(plot.data[series] ?? []));
  return {
    label: column,
    show: !ask.hidden.has(column),
    stroke: colour,
    width: 1.5,
    spanGaps: false,
    points: {
      show: (plot, series) => alone(plot, series).length > 0,
      filter: (plot, series) => alone(plot, series),
      size: 6,
      stroke: colour,
      fill: colour,
    },
  };
}
