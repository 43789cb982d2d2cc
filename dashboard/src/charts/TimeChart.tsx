import { memo, useCallback, useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import { formatValue, metricTitle } from "../shared/format";
import { formatInstant, toField } from "../shared/time";
import { useTheme } from "../shared/theme";
import { useZone } from "../shared/zone";
import { fileName, saveFile } from "../shared/files";
import { Link } from "../shared/location";
import { ChartMenu, type ChartAction } from "./ChartMenu";
import { aligned, countPoints, heldValue, lastValue, type Frame } from "./frame";
import { eventsNear, NO_MARKS, paintMarks, placedIncidents, reasonsOf, THROTTLE_WEIGHTS, throttleLook, throttleWords, type Marks } from "./marks";
import type { Panel } from "./panels";
import { PICTURE_SCALE, pictureOf } from "./picture";
import { useIsSeen } from "./seen";
import { type Behind, NOTHING_BEHIND, type Palette, plotData, plotOptions, ROOM_LEFT, ROOM_RIGHT } from "./plot";

interface TimeChartProps {
  readonly panel: Panel;
  /** Whether it shows something that is wrong. */
  readonly marked: boolean;
  readonly frame: Frame;
  readonly behind?: Behind;
  /** What stands above the lines. */
  readonly marks?: Marks;
  /** What a line is called; it is a metric unless told otherwise. */
  readonly nameOf?: (column: string) => string;
  /** The subject of the chart, for the name of its picture. */
  readonly subject?: string;
  /** What else can be done with it. */
  readonly actionsOf?: (panel: Panel) => readonly ChartAction[];
  /** The range asked for: the axis shows all of it, also where nothing was measured. */
  readonly span: { readonly start: number; readonly end: number };
  readonly onSelect: (start: number, end: number) => void;
  readonly now: number;
}

const noActions = (): readonly ChartAction[] => [];
const HEIGHT = 176;
/** How near the cursor must be to an event to mean it, as a share of the range. */
const NEAR = 0.01;
const SYNC = "gpu-page";

function paletteOf(element: HTMLElement): Palette {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  return {
    text: colour("--muted"),
    grid: colour("--grid"),
    lines: [1, 2, 3, 4, 5, 6].map((n) => colour(`--line-${n}`)),
  };
}

/**
 * One chart with its legend. The plot is built once per look, when it comes near to the screen, and fed with data while it is
 * there; values under the cursor go to the legend.
 */
export const TimeChart = memo(function TimeChart({ panel, marked, frame, behind = NOTHING_BEHIND, marks = NO_MARKS, nameOf = metricTitle, subject = "gpuvitals", actionsOf = noActions, span, onSelect, now }: TimeChartProps) {
  const { theme } = useTheme();
  const zone = useZone();
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const select = useRef(onSelect);
  const [cursor, setCursor] = useState<number | null>(null);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const isSeen = useIsSeen(box);
  const [wasSeen, setWasSeen] = useState(false);
  if (isSeen && !wasSeen) setWasSeen(true);
  const data = useMemo(() => (isSeen ? plotData(frame, panel.columns, behind) : null), [isSeen, frame, panel.columns, behind]);
  const points = useMemo(() => countPoints(frame, panel.columns), [frame, panel.columns]);
  const hasBand = behind.band !== null;
  const hasPeers = behind.peers !== null;
  const fed = useRef({ data, span, marks });

  useEffect(() => {
    fed.current = { data: data ?? fed.current.data, span, marks };
    select.current = onSelect;
  });

  const looks = useCallback(
    (element: HTMLElement, scale: number) => ({ columns: panel.columns, unit: panel.unit, hidden, hasBand, hasPeers, palette: paletteOf(element), width: Math.max(element.clientWidth, 120), height: HEIGHT, scale, syncKey: SYNC }),
    [panel.columns, panel.unit, hidden, hasBand, hasPeers],
  );

  useEffect(() => {
    const element = box.current;
    if (element === null || !wasSeen) return;
    const options = plotOptions({
      ...looks(element, 1),
      onCursor: setCursor,
      onSelect: (start, end) => select.current(start, end),
      onDraw: (plot) => paintMarks(plot, fed.current.marks, devicePixelRatio, (name) => getComputedStyle(element).getPropertyValue(name)),
    });
    const made = new uPlot(options, fed.current.data ?? [[]], element);
    made.setScale("x", { min: fed.current.span.start, max: fed.current.span.end });
    plot.current = made;
    const watcher = new ResizeObserver(() => made.setSize({ width: Math.max(element.clientWidth, 120), height: HEIGHT }));
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [looks, theme, zone, wasSeen]);

  const { start, end } = span;
  useEffect(() => {
    const made = plot.current;
    if (made === null || data === null) return;
    made.batch(() => {
      made.setData(data, false);
      made.setScale("x", { min: start, max: end });
    });
    // Whatever is fed draws the marks as well.
  }, [data, start, end, marks]);

  const at = cursor === null ? undefined : frame.times[cursor];
  const picture = async () => {
    const element = box.current;
    if (element === null || data === null) return false;
    const scale = Math.max(1, PICTURE_SCALE / devicePixelRatio);
    // Drawn anew: the plot on the screen has as many pixels as the screen.
    const drawn = await new Promise<uPlot>((resolve) => {
      const ink = (name: string) => getComputedStyle(element).getPropertyValue(name);
      const onDraw = (plot: uPlot) => {
        paintMarks(plot, marks, devicePixelRatio * scale, ink);
        resolve(plot);
      };
      const made = new uPlot({ ...plotOptions({ ...looks(element, scale), onCursor: setCursor, onSelect: () => undefined, onDraw }), cursor: { show: false } }, data, document.createElement("div"));
      made.setScale("x", { min: start, max: end });
    });
    const style = getComputedStyle(element);
    const shown = panel.columns.map((column, place) => ({ column, colour: style.getPropertyValue(`--line-${(place % 6) + 1}`) })).filter(({ column }) => !hidden.has(column));
    const lines = shown.map(({ column, colour }) => ({ name: nameOf(column), colour }));
    for (const weight of THROTTLE_WEIGHTS) {
      const reasons = reasonsOf(marks.spans.filter((span) => span.weight === weight));
      if (marks.spans.some((span) => span.weight === weight)) lines.push({ name: ["throttled", ...reasons].join(" "), colour: style.getPropertyValue(throttleLook(weight).colour) });
    }
    const [from, to] = [start, end].map((instant) => toField(instant).replace("T", " "));
    const below = `${subject}, ${from} to ${to}, ${zone}`;
    const content = await pictureOf(drawn.ctx.canvas, devicePixelRatio * scale, { title: panel.title, below, lines, background: style.getPropertyValue("--card"), ink: style.getPropertyValue("--fg") });
    drawn.destroy();
    if (content !== null) saveFile(`${fileName(subject, panel.title)}.png`, content);
    return content !== null;
  };
  const near = at === undefined ? [] : eventsNear([...marks.events, ...marks.changes, ...marks.incidents], at, Math.max(frame.stepMs, (end - start) * NEAR));
  const incidents = useMemo(() => placedIncidents(marks.incidents, start, end), [marks.incidents, start, end]);
  const held = at === undefined ? "" : throttleWords(marks.spans, at);
  const toggle = (column: string) =>
    setHidden((held) => {
      const next = new Set(held);
      if (!next.delete(column)) next.add(column);
      return next;
    });

  return (
    <figure
      className={`group card min-w-0 px-3 pt-2.5 pb-2 ${marked ? "border-warn!" : ""}`}
      aria-label={`${panel.title}: ${points === 0 ? "no values in this range" : `${points} values`}`}
      data-testid="chart"
      data-panel={panel.id}
      data-points={points}
      data-evidence={marked}
    >
      <figcaption className="mb-1 flex items-baseline justify-between gap-3">
        <h2 className="text-[13px] font-medium">
          {panel.title}
          {marked && <span className="badge ml-2 text-warn">evidence</span>}
        </h2>
        <span className="num flex min-w-0 items-center gap-2 text-[11px] text-muted">
          {held !== "" && <span className="truncate">{held}</span>}
          {at !== undefined && <span className="shrink-0">{formatInstant(at, now)}</span>}
          <ChartMenu title={panel.title} actions={[{ name: "Picture (PNG)", act: picture }, ...actionsOf(panel)]} />
        </span>
      </figcaption>
      <div className="relative">
        <div ref={box} style={{ height: HEIGHT }} />
        {incidents.length > 0 && (
          <div className="pointer-events-none absolute top-0 z-10" style={{ left: ROOM_LEFT, right: ROOM_RIGHT }}>
            {incidents.map(({ incident, share }) => (
              <Link
                key={incident.path}
                to={incident.path}
                className="pointer-events-auto absolute size-6 -translate-x-1/2 rounded"
                style={{ left: `${share * 100}%` }}
                aria-label={`${incident.text}: open its window`}
                title={`${incident.text}: open its window`}
                data-incident={incident.at}
              />
            ))}
          </div>
        )}
        {near.length > 0 && (
          <ul className="card pointer-events-none absolute top-5 right-2 z-10 hidden max-w-[70%] px-2 py-1 text-[11px] group-hover:block" data-testid="near">
            {near.map((event, place) => (
              <li key={place}>{event.text}</li>
            ))}
          </ul>
        )}
        {points === 0 && (
          <p className="pointer-events-none absolute inset-0 grid place-items-center text-xs text-muted">
            No values in this range
          </p>
        )}
      </div>
      <ul className="mt-1 flex flex-wrap gap-x-4 gap-y-0.5" aria-label={`Lines of ${panel.title}`}>
        {panel.columns.map((column, place) => {
          const held = frame.values.get(column);
          const value = cursor === null ? lastValue(held) : panel.limits?.has(column) === true ? heldValue(held, cursor) : (held?.[cursor] ?? null);
          const ghost = behind.peers === null ? null : aligned(behind.peers, column, frame.times);
          const peers = ghost === null ? null : cursor === null ? lastValue(ghost) : (ghost[cursor] ?? null);
          return (
            <li key={column}>
              <button
                type="button"
                className={`flex items-center gap-1.5 rounded py-0.5 text-xs hover:text-fg ${hidden.has(column) ? "text-faint line-through" : "text-muted"}`}
                aria-pressed={!hidden.has(column)}
                title={`${column}: show or hide this line`}
                onClick={() => toggle(column)}
              >
                <span className="h-0.5 w-3 rounded-full" style={{ background: `var(--line-${(place % 6) + 1})` }} />
                {nameOf(column)}
                <span className="num font-medium text-fg">{formatValue(value, panel.unit)}</span>
                {peers !== null && (
                  <span className="num text-faint" title="Median of its peers: the GPUs of its host with its model">
                    peers {formatValue(peers, panel.unit)}
                  </span>
                )}
              </button>
            </li>
          );
        })}
      </ul>
    </figure>
  );
});
