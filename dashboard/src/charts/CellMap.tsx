import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type PointerEvent, type ReactNode } from "react";
import { useTheme } from "../shared/theme";
import { bounded, cellAt, centredOn, DIRECTIONS, layOut, nearest, neighbour, placeBeside, revealing, WHOLE, zoomedAt, type CellLayout, type Size, type View } from "./cells";
import type { Painting } from "./looks";
import { boxOnScreen, paintCells } from "./paintCells";

/** The size and place of a map. Its owner knows the visible part by the cell in the middle. */
export interface Lens {
  readonly zoom: number;
  /** Id of the cell in the middle; empty: the whole from its upper left corner. */
  readonly at: string;
  readonly ids: readonly string[];
  readonly onView: (zoom: number, at: string) => void;
}

interface CellMapProps {
  /** Name of the group of each cell; cells of a group follow each other. */
  readonly groups: readonly string[];
  readonly painting: Painting;
  readonly heightMax: number;
  readonly label: string;
  readonly testId: string;
  /** The cell that is pointed at or reached by keys; -1: none. */
  readonly active: number;
  readonly onActive: (place: number) => void;
  readonly onOpen: (place: number) => void;
  /** Without it the map is an overview, whole and still. */
  readonly lens?: Lens;
  /** What stands in a cell that is large enough. */
  readonly text?: (place: number) => string;
  readonly picked?: readonly number[];
  readonly onPick?: (place: number) => void;
  /** What is said beside the active cell. */
  readonly card?: ReactNode;
}

const NOTHING: readonly number[] = [];
/** A pointer that moved less than this has clicked. */
const CLICK_PX = 4;
const KEY_ZOOM = 1.5;
/** The owner hears of a view that has not moved for this long. */
const REST_MS = 250;

/** Many things as cells on one canvas, together by group: walked by pointer and keys, enlarged by wheel, keys and fingers. */
export function CellMap(props: CellMapProps) {
  const { groups, painting, heightMax, lens, active, picked = NOTHING, onActive, onOpen, onPick, text } = props;
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const card = useRef<HTMLDivElement>(null);
  const { theme } = useTheme();
  const width = useWidth(box);
  const isNamed = lens !== undefined;
  const layout = useMemo(() => (width === 0 ? null : layOut(groups, { width, heightMax, named: isNamed })), [groups, width, heightMax, isNamed]);
  // Frames of the last line reach a little further.
  const size = useMemo(() => ({ width, height: layout === null ? 0 : layout.height + 1 }), [width, layout]);

  const paint = useRef<(view: View) => void>(() => undefined);
  useEffect(() => {
    paint.current = (view) => {
      if (canvas.current === null || layout === null || painting.lookOf.length !== layout.xs.length) return;
      paintCells(canvas.current, { layout, painting, text: text ?? null }, view, size, { active, picked });
      placeCard(card.current, active < 0 ? null : boxOnScreen(layout, view, active), size);
    };
  });
  const view = useView(lens, layout, size, paint);
  useEffect(() => paint.current(view.now()), [layout, painting, text, size, active, picked, theme, view]);

  const at = (event: { clientX: number; clientY: number }) => pointOn(canvas.current, event);
  const under = (event: PointerEvent) => {
    const { zoom, left, top } = view.now();
    const [x, y] = at(event);
    return layout === null ? -1 : cellAt(layout, (x - left) / zoom, (y - top) / zoom);
  };
  const choose = (place: number, wants: "open" | "pick" | "show") => {
    if (place < 0) return;
    if (wants === "pick") onPick?.(place);
    else if (wants === "open") onOpen(place);
    else onActive(place);
  };
  const drag = useDrag(view, at);
  useWheel(canvas, lens !== undefined, view);

  const press = (event: KeyboardEvent) => {
    const direction = DIRECTIONS.find((each) => each === event.key);
    const zooming = lens === undefined ? undefined : { "+": KEY_ZOOM, "=": KEY_ZOOM, "-": 1 / KEY_ZOOM, "0": 0 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || layout === null) return;
    if (event.key === "Enter") choose(active, "open");
    else if (event.key === " " && onPick !== undefined) choose(active, "pick");
    else if (direction !== undefined) {
      const next = neighbour(layout, active, direction);
      if (next >= 0) view.set(revealing(view.now(), layout, next, size));
      onActive(next);
    } else if (zooming !== undefined) view.zoom(zooming, active);
    else return;
    event.preventDefault();
  };
  return (
    <div ref={box} className="relative">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="img"
        aria-label={props.label}
        className="block w-full"
        style={{ height: size.height, cursor: active < 0 ? "default" : "pointer", touchAction: lens === undefined ? "auto" : lens.zoom > 1 ? "none" : "pan-y" }}
        data-testid={props.testId}
        data-cells={layout === null ? 0 : groups.length}
        onPointerDown={lens && drag.down}
        onPointerMove={(event) => {
          if (!drag.move(event)) onActive(event.pointerType === "touch" ? active : under(event));
          else if (active >= 0) onActive(-1);
        }}
        onPointerUp={(event) => {
          const isClick = drag.up(event);
          if (!isClick || event.button !== 0) return;
          const isPick = onPick !== undefined && (event.shiftKey || event.ctrlKey || event.metaKey);
          // A finger does not hover: it first shows what there is.
          choose(under(event), isPick ? "pick" : lens !== undefined && event.pointerType === "touch" ? "show" : "open");
        }}
        onPointerCancel={drag.up}
        onPointerLeave={(event) => event.pointerType !== "touch" && onActive(-1)}
        onKeyDown={press}
      />
      {lens !== undefined && <ZoomButtons onZoom={(factor) => view.zoom(factor, active)} />}
      <div ref={card} aria-hidden className="pointer-events-none absolute top-0 left-0 z-10 max-w-72 max-sm:hidden" style={{ visibility: "hidden" }}>
        {props.card}
      </div>
    </div>
  );
}

function ZoomButtons({ onZoom }: { readonly onZoom: (factor: number) => void }) {
  const buttons = [
    ["+", "Enlarge (+)", KEY_ZOOM],
    ["−", "Shrink (−)", 1 / KEY_ZOOM],
    ["1:1", "Show the whole (0)", 0],
  ] as const;
  return (
    <div role="group" aria-label="Size of the map" className="absolute top-full right-0 z-10 mt-1 flex gap-1">
      {buttons.map(([text, name, factor]) => (
        <button key={name} type="button" className="button square num" aria-label={name} title={name} onClick={() => onZoom(factor)}>
          {text}
        </button>
      ))}
    </div>
  );
}

function useWidth(box: React.RefObject<HTMLDivElement | null>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const measure = () => setWidth(element.clientWidth);
    const watcher = new ResizeObserver(measure);
    watcher.observe(element);
    measure();
    return () => watcher.disconnect();
  }, [box]);
  return width;
}

function pointOn(canvas: HTMLCanvasElement | null, { clientX, clientY }: { clientX: number; clientY: number }): [number, number] {
  const frame = canvas?.getBoundingClientRect();
  return [clientX - (frame?.left ?? 0), clientY - (frame?.top ?? 0)];
}

/** Beyond the neighbours of its cell, which it must not cover: on the side where there is room, else below. */
function placeCard(card: HTMLDivElement | null, cell: readonly [number, number, number, number] | null, size: Size): void {
  if (card === null) return;
  card.style.visibility = cell === null ? "hidden" : "visible";
  if (cell === null) return;
  const { x, y } = placeBeside(cell, { width: card.offsetWidth, height: card.offsetHeight }, size);
  card.style.transform = `translate(${x}px, ${y}px)`;
}

interface ViewControl {
  readonly now: () => View;
  readonly set: (view: View) => void;
  /** Around a cell, or around the middle; 0: the whole. */
  readonly zoom: (factor: number, place: number) => void;
}

/** The view moves outside of React: a frame costs a drawing, not a render. */
function useView(lens: Lens | undefined, layout: CellLayout | null, size: Size, paint: React.RefObject<(view: View) => void>): ViewControl {
  const held = useRef(WHOLE);
  const told = useRef("1/");
  const known = useRef({ lens, layout, size });
  useEffect(() => {
    known.current = { lens, layout, size };
    if (layout === null) return;
    const key = lens === undefined ? "1/" : `${lens.zoom}/${lens.at}`;
    if (key !== told.current && lens !== undefined) {
      // The address says something new: a link was followed, or the back button.
      told.current = key;
      const place = lens.ids.indexOf(lens.at);
      held.current = place < 0 ? { ...WHOLE, zoom: lens.zoom } : centredOn(lens.zoom, layout, place, size);
    }
    held.current = bounded(held.current, layout, size);
  }, [lens, layout, size]);
  const frame = useRef(0);
  const rest = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(
    () => () => {
      cancelAnimationFrame(frame.current);
      clearTimeout(rest.current);
    },
    [],
  );
  return useMemo(() => {
    const tell = () => {
      const { lens, layout, size } = known.current;
      if (lens === undefined || layout === null) return;
      const { zoom, left, top } = held.current;
      const middle = nearest(layout, (size.width / 2 - left) / zoom, (size.height / 2 - top) / zoom);
      const isWhole = zoom === 1 && left === 0 && top === 0;
      const shown = Number(zoom.toFixed(2));
      const at = isWhole ? "" : (lens.ids[middle] ?? "");
      told.current = `${shown}/${at}`;
      lens.onView(shown, at);
    };
    const set = (view: View) => {
      const { layout, size } = known.current;
      if (layout === null) return;
      held.current = bounded(view, layout, size);
      cancelAnimationFrame(frame.current);
      frame.current = requestAnimationFrame(() => paint.current(held.current));
      clearTimeout(rest.current);
      rest.current = setTimeout(tell, REST_MS);
    };
    const zoom = (factor: number, place: number) => {
      const { layout, size } = known.current;
      if (layout === null) return;
      const cell = place < 0 ? null : boxOnScreen(layout, held.current, place);
      const [x, y] = cell === null ? [size.width / 2, size.height / 2] : [(cell[0] + cell[2]) / 2, (cell[1] + cell[3]) / 2];
      set(factor === 0 ? WHOLE : zoomedAt(held.current, factor, x, y));
    };
    return { now: () => held.current, set, zoom };
  }, [paint]);
}

interface Finger {
  readonly x: number;
  readonly y: number;
}

/** Moves the view with one pointer, and enlarges it with two. */
function useDrag(view: ViewControl, at: (event: { clientX: number; clientY: number }) => [number, number]) {
  const fingers = useRef(new Map<number, Finger>());
  const moved = useRef(0);
  const down = (event: PointerEvent<HTMLCanvasElement>) => {
    if (event.button !== 0) return;
    if (fingers.current.size === 0) moved.current = 0;
    const [x, y] = at(event);
    fingers.current.set(event.pointerId, { x, y });
    event.currentTarget.setPointerCapture(event.pointerId);
  };
  /** Whether a pointer is down that moves the view. */
  const move = (event: PointerEvent<HTMLCanvasElement>): boolean => {
    const before = fingers.current.get(event.pointerId);
    if (before === undefined) return fingers.current.size > 0;
    const [x, y] = at(event);
    const other = [...fingers.current].find(([id]) => id !== event.pointerId)?.[1];
    moved.current += Math.hypot(x - before.x, y - before.y);
    fingers.current.set(event.pointerId, { x, y });
    if (moved.current <= CLICK_PX && other === undefined) return false;
    const { zoom, left, top } = view.now();
    if (other === undefined) view.set({ zoom, left: left + x - before.x, top: top + y - before.y });
    else {
      const factor = Math.hypot(x - other.x, y - other.y) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y));
      view.set(zoomedAt(view.now(), factor, (x + other.x) / 2, (y + other.y) / 2));
    }
    return true;
  };
  /** Whether it was a click. */
  const up = (event: PointerEvent<HTMLCanvasElement>): boolean => {
    fingers.current.delete(event.pointerId);
    return event.type === "pointerup" && moved.current <= CLICK_PX;
  };
  return { down, move, up };
}

/** The wheel enlarges around the pointer. Shrinking the whole further scrolls the page. */
function useWheel(canvas: React.RefObject<HTMLCanvasElement | null>, enabled: boolean, view: ViewControl): void {
  useEffect(() => {
    const element = canvas.current;
    if (element === null || !enabled) return;
    const turn = (event: WheelEvent) => {
      if (event.deltaY > 0 && view.now().zoom <= 1) return;
      event.preventDefault();
      const [x, y] = pointOn(element, event);
      // A pinch on a touchpad comes as small steps with Ctrl.
      view.set(zoomedAt(view.now(), Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), x, y));
    };
    element.addEventListener("wheel", turn, { passive: false });
    return () => element.removeEventListener("wheel", turn);
  }, [canvas, enabled, view]);
}
