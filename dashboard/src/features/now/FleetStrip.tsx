import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type MouseEvent } from "react";
import { wholeFleetQuery, type FleetGpu } from "../../api/fleet";
import { STATES, type State } from "../../api/queries";
import { ABSENT } from "../../shared/format";
import { goTo, Link, searchOf } from "../../shared/location";
import { useTheme } from "../../shared/theme";
import type { FleetCounts } from "../fleet/counts";
import { cellAt, layOut, neighbour, type Direction, type StripLayout } from "./strip";

type Counts = Pick<FleetCounts, "byState" | "total">;

/** The strip is an overview: the findings below must stay in sight. */
const HEIGHT_MAX = 170;
const DIRECTIONS: readonly Direction[] = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];

/** Every GPU as a cell beside those of its node, coloured by state, with a legend that counts. */
export function FleetStrip({ counts }: { readonly counts: Counts }) {
  const fleet = useQuery(wholeFleetQuery());
  const { data } = fleet;
  return (
    <section aria-label="All GPUs by state" className="card p-3">
      <Legend counts={counts} />
      {data === undefined ? (
        fleet.isError ? (
          <p className="mt-2 text-[13px] text-warn">The GPUs could not be read: {fleet.error.message}</p>
        ) : (
          <div role="status" aria-label="Loading all GPUs" className="waiting mt-2 h-20" />
        )
      ) : (
        <>
          {data.gpus.length > 0 && <Strip gpus={data.gpus} />}
          {data.total > data.gpus.length && (
            <p className="mt-1 text-xs text-muted">
              The first {data.gpus.length.toLocaleString("en")} of {data.total.toLocaleString("en")} GPUs by host.
            </p>
          )}
        </>
      )}
    </section>
  );
}

/** What the colours mean, how many GPUs are in each state, and the way to the list of them. */
function Legend({ counts }: { readonly counts: Counts }) {
  return (
    <ul className="flex flex-wrap gap-x-4 gap-y-1 text-[13px]">
      <li>
        <Link to="/gpus" className="rounded hover:underline">
          <strong className="num font-semibold">{counts.total?.toLocaleString("en") ?? ABSENT}</strong> <span className="text-muted">{counts.total === 1 ? "GPU" : "GPUs"}</span>
        </Link>
      </li>
      {STATES.map((state) => {
        const count = counts.byState.get(state) ?? null;
        return (
          <li key={state}>
            <Link to={`/gpus${searchOf({ state })}`} className="inline-flex items-center gap-1.5 rounded hover:underline" title={`List of GPUs that are ${state}`}>
              <Swatch state={state} />
              <strong className={`num font-semibold ${count === 0 ? "text-faint" : ""}`}>{count?.toLocaleString("en") ?? ABSENT}</strong>
              <span className={count === 0 ? "text-faint" : "text-muted"}>{state}</span>
            </Link>
          </li>
        );
      })}
    </ul>
  );
}

/** A cell of the strip, enlarged: the sick one has a frame, the silent one a hole, so that colour is not all. */
function Swatch({ state }: { readonly state: State }) {
  const colour = `var(--cell-${state})`;
  if (state === "stale") return <span aria-hidden className="size-2.5 shrink-0 border-[3px]" style={{ borderColor: colour }} />;
  return <span aria-hidden className={`size-2.5 shrink-0 ${state === "unhealthy" ? "outline-1 outline-offset-1 outline-fg" : ""}`} style={{ background: colour }} />;
}

function Strip({ gpus }: { readonly gpus: readonly FleetGpu[] }) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [at, setAt] = useState(-1);
  const { theme } = useTheme();
  const layout = useMemo(() => (width === 0 ? null : layOut(gpus, width, HEIGHT_MAX)), [gpus, width]);

  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const measure = () => setWidth(element.clientWidth);
    const watcher = new ResizeObserver(measure);
    watcher.observe(element);
    measure();
    return () => watcher.disconnect();
  }, []);

  useEffect(() => {
    if (canvas.current !== null && layout !== null) draw(canvas.current, layout, gpus, width, at);
  }, [layout, gpus, width, at, theme]);

  const under = (event: MouseEvent) => {
    const frame = event.currentTarget.getBoundingClientRect();
    return layout === null ? -1 : cellAt(layout, event.clientX - frame.left, event.clientY - frame.top);
  };
  const open = (place: number) => {
    const gpu = gpus[place];
    if (gpu !== undefined) goTo(`/gpus/${encodeURIComponent(gpu.id)}`);
  };
  const press = (event: KeyboardEvent) => {
    const direction = DIRECTIONS.find((each) => each === event.key);
    if (event.key === "Enter") open(at);
    else if (direction !== undefined && layout !== null) setAt(neighbour(layout, at, direction));
    else return;
    event.preventDefault();
  };
  const gpu = gpus[at];
  return (
    <div ref={box} className="mt-2">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="img"
        aria-label={`A cell for each of ${gpus.length.toLocaleString("en")} GPUs, by node. Arrow keys choose one, Enter opens it.`}
        className="block w-full"
        style={{ height: layout?.height ?? 0, cursor: gpu === undefined ? "default" : "pointer" }}
        data-testid="strip"
        data-cells={layout === null ? 0 : gpus.length}
        onMouseMove={(event) => setAt(under(event))}
        onMouseLeave={() => setAt(-1)}
        onClick={(event) => open(under(event))}
        onKeyDown={press}
      />
      <p aria-live="polite" className="mt-1.5 truncate text-xs text-muted">
        {gpu === undefined ? "A cell is a GPU, a group of cells a node." : `${gpu.name}: ${gpu.state}${gpu.reason === null ? "" : `, ${gpu.reason}`}`}
      </p>
    </div>
  );
}

/** Draws the cells state by state, the sick ones last and with a frame that reaches over their neighbours. */
function draw(canvas: HTMLCanvasElement, layout: StripLayout, gpus: readonly FleetGpu[], width: number, chosen: number): void {
  const context = canvas.getContext("2d");
  if (context === null) return;
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(layout.height * scale);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  const style = getComputedStyle(canvas);
  const { side, xs, ys } = layout;
  for (const state of STATES) {
    context.fillStyle = style.getPropertyValue(`--cell-${state}`);
    gpus.forEach((gpu, place) => {
      if (gpu.state === state) context.fillRect(xs[place] ?? 0, ys[place] ?? 0, side, side);
    });
  }
  const hole = Math.floor(side / 3);
  const frame = Math.max(1, Math.round(side / 7));
  context.strokeStyle = style.getPropertyValue("--fg");
  context.lineWidth = frame;
  gpus.forEach((gpu, place) => {
    const [x, y] = [xs[place] ?? 0, ys[place] ?? 0];
    if (gpu.state === "stale" && hole > 0) context.clearRect(x + hole, y + hole, side - 2 * hole, side - 2 * hole);
    if (gpu.state === "unhealthy" || place === chosen) context.strokeRect(x - frame / 2, y - frame / 2, side + frame, side + frame);
  });
}
