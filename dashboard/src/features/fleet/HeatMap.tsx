import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState, useSyncExternalStore } from "react";
import { GROUPINGS, hourAgoQuery, wholesQuery, type FleetGpu } from "../../api/fleet";
import { catalogueQuery } from "../../api/queries";
import { CellMap, type Lens } from "../../charts/CellMap";
import { groupTitle, LINES_MAX, rowsOf } from "../../charts/panels";
import { metricTitle, unitSymbol } from "../../shared/format";
import { goTo, Link } from "../../shared/location";
import { useTheme } from "../../shared/theme";
import { formatAge, MINUTE, useNow } from "../../shared/time";
import { COMPARE, FLEET, GPU, STATE_COLOUR, type FleetState } from "../../parts/addresses";
import { CellLegend } from "../../parts/cells/CellLegend";
import { byJudgement, byValue, summaryOf, type Colouring, type MeasuredRow } from "../../parts/cells/colouring";
import { isSilent, verdictWords } from "../../parts/judgement";
import { wholesOf } from "../../parts/limits";

interface HeatMapProps {
  readonly state: FleetState;
  readonly change: (part: Partial<FleetState>) => void;
  readonly gpus: readonly FleetGpu[];
  readonly total: number;
}

/** More lines than a chart can tell apart are not compared. */
const PICKED_MAX = LINES_MAX;
/** Height of everything above and below the map. */
const AROUND_PX = 330;
const HEIGHT_MIN = 300;

/** Every GPU as a cell, coloured by how it does or by any metric, together by what they belong to. */
export function HeatMap({ state, change, gpus, total }: HeatMapProps) {
  const { colouring, row, rows, doubt, canFit } = useColouring(state, gpus);
  const now = useNow(MINUTE);
  const [activeId, setActiveId] = useState("");
  const [isByFinger, setIsByFinger] = useState(false);
  const heightMax = Math.max(HEIGHT_MIN, useWindowHeight() - AROUND_PX);
  const ids = useMemo(() => gpus.map((gpu) => gpu.id), [gpus]);
  const places = useMemo(() => new Map(ids.map((id, place) => [id, place])), [ids]);
  const groups = useMemo(() => gpus.map((gpu) => gpu.group ?? `no ${state.group}`), [gpus, state.group]);
  const picked = useMemo(() => state.picked.flatMap((id) => places.get(id) ?? []), [state.picked, places]);
  const active = places.get(activeId) ?? -1;
  const gpu = gpus[active] ?? null;

  const onView = useCallback((zoom: number, at: string) => change({ zoom, middle: at }), [change]);
  const lens = useMemo((): Lens => ({ zoom: state.zoom, at: state.middle, ids, onView }), [state.zoom, state.middle, ids, onView]);
  const pick = (id: string) => {
    const isPicked = state.picked.includes(id);
    if (isPicked) change({ picked: state.picked.filter((other) => other !== id) });
    else if (state.picked.length < PICKED_MAX) change({ picked: [...state.picked, id] });
  };
  const at = (place: number, act: (id: string) => void) => {
    const id = ids[place];
    if (id !== undefined) act(id);
  };
  const words = gpu === null ? null : cellWords(gpu, colouring.text(active), row, now);
  return (
    <section aria-label="Heat map" className="card p-3" onPointerDownCapture={(event) => setIsByFinger(event.pointerType === "touch")}>
      <div className="mb-2 flex flex-wrap items-center gap-x-4 gap-y-2">
        <ColourSelect colour={state.colour} rows={rows} onChange={(colour) => change({ colour })} />
        <GroupSelect state={state} change={change} />
        {row !== null && (
          <span className="flex gap-2">
            {canFit && <Choice name="Fit" title="Colours from the lowest to the highest value, not to how far values can go" isOn={state.fit && !state.change} onChange={(fit) => change({ fit, change: false })} />}
            <Choice name="Since an hour ago" title="Colours say by how much a value differs from that of an hour ago" isOn={state.change} onChange={(isOn) => change({ change: isOn })} />
          </span>
        )}
        <CellLegend colouring={colouring} />
      </div>
      <CellMap
        groups={groups}
        painting={colouring.painting}
        heightMax={heightMax}
        label={`A cell for each of ${gpus.length.toLocaleString("en")} GPUs, by ${state.group}. Arrow keys choose one, Enter opens it, Space picks it to compare, plus and minus enlarge and shrink.`}
        testId="heatmap"
        active={active}
        onActive={(place) => setActiveId(ids[place] ?? "")}
        onOpen={(place) => at(place, (id) => goTo(GPU.to({ id })))}
        lens={lens}
        text={colouring.short}
        picked={picked}
        onPick={(place) => at(place, pick)}
        card={words !== null && <Card words={words} isByFinger={isByFinger} />}
      />
      <p className="sr-only" data-testid="summary">
        {summaryOf(gpus, colouring, row)}. <Link to={FLEET.to({ ...state, view: "list" })}>The same GPUs as a list</Link>
      </p>
      <ActiveLine gpu={gpu} words={words} isPicked={state.picked.includes(activeId)} isFull={state.picked.length >= PICKED_MAX} isByFinger={isByFinger} onPick={() => pick(activeId)} group={state.group} />
      {state.group === "rack" && gpus.length > 0 && gpus.every((each) => each.group === null) && (
        <p role="note" aria-label="About racks" className="mt-1 text-[13px] text-muted">
          No rack is known: the setting <code>api.rack_pattern</code> says where it stands in the name of a host.
        </p>
      )}
      {doubt !== null && (
        <p role="note" aria-label="About the values" className="mt-1 text-[13px] text-warn">
          {doubt}
        </p>
      )}
      {state.picked.length > 0 && <Picked state={state} gpus={gpus} places={places} change={change} />}
      {total > gpus.length && (
        <p className="mt-1 text-xs text-muted">
          The first {gpus.length.toLocaleString("en")} of {total.toLocaleString("en")} GPUs by host. Filters narrow them down.
        </p>
      )}
    </section>
  );
}

/** Where colours of a temperature begin: no room is colder. */
const COLDEST_C = 20;

function useColouring(state: FleetState, gpus: readonly FleetGpu[]) {
  const { theme } = useTheme();
  const catalogue = useQuery(catalogueQuery());
  const measured = useMemo(() => new Map((catalogue.data?.metrics ?? []).filter((metric) => metric.table === "gpu_events").map((metric) => [metric.column, metric])), [catalogue.data]);
  const rows = useMemo((): MeasuredRow[] => rowsOf([...measured.values()], [...measured.keys()]).flatMap((row) => measured.get(row.column) ?? []), [measured]);
  const row = rows.find((each) => each.column === state.colour) ?? null;
  const metric = measured.get(state.colour);
  const columns = useMemo(() => (metric === undefined ? [] : wholesOf(metric, measured)), [metric, measured]);
  const wholes = useQuery({ ...wholesQuery(columns), enabled: columns.length > 0 && !state.fit && !state.change }).data;
  const hourAgo = useQuery({ ...hourAgoQuery(state.colour), enabled: row !== null && state.change });
  const before = state.change ? (hourAgo.data ?? NOTHING) : null;
  const low = row?.unit === "°C" ? COLDEST_C : 0;
  const colouring = useMemo((): Colouring => {
    if (row === null) return byJudgement(gpus);
    return byValue(gpus, row, { theme, scale: state.fit || wholes === undefined ? null : { low, wholes }, before });
  }, [gpus, row, theme, state.fit, wholes, low, before]);
  const doubt = row !== null && state.change && hourAgo.isError ? `The values an hour ago could not be read: ${hourAgo.error.message}` : null;
  return { colouring, row, rows, doubt, canFit: columns.length > 0 };
}

const NOTHING: ReadonlyMap<string, number> = new Map();

function subscribe(listener: () => void): () => void {
  window.addEventListener("resize", listener);
  return () => window.removeEventListener("resize", listener);
}

function useWindowHeight(): number {
  return useSyncExternalStore(subscribe, () => window.innerHeight);
}

interface ColourSelectProps {
  readonly colour: string;
  readonly rows: readonly MeasuredRow[];
  readonly onChange: (colour: string) => void;
}

function ColourSelect({ colour, rows, onChange }: ColourSelectProps) {
  const groups = [...new Set(rows.map((row) => row.group))];
  const isListed = colour === STATE_COLOUR || rows.some((row) => row.column === colour);
  return (
    <label className="flex min-w-0 items-center gap-1.5 text-xs text-muted">
      Colour
      <select className="field w-48" value={colour} onChange={(event) => onChange(event.target.value)}>
        <option value={STATE_COLOUR}>State</option>
        {!isListed && <option value={colour}>{colour}</option>}
        {groups.map((group) => (
          <optgroup key={group} label={groupTitle(group)}>
            {rows
              .filter((row) => row.group === group)
              .map((row) => (
                <option key={row.column} value={row.column} title={row.help}>
                  {metricTitle(row.column)}
                  {unitSymbol(row.unit) === "" ? "" : ` (${unitSymbol(row.unit)})`}
                </option>
              ))}
          </optgroup>
        ))}
      </select>
    </label>
  );
}

function GroupSelect({ state, change }: Pick<HeatMapProps, "state" | "change">) {
  return (
    <label className="flex items-center gap-1.5 text-xs text-muted">
      by
      <select
        className="field"
        aria-label="Group by"
        value={state.group}
        onChange={(event) => change({ group: GROUPINGS.find((each) => each === event.target.value) ?? "node", zoom: 1, middle: "" })}
      >
        {GROUPINGS.map((group) => (
          <option key={group}>{group}</option>
        ))}
      </select>
    </label>
  );
}

interface ChoiceProps {
  readonly name: string;
  readonly title: string;
  readonly isOn: boolean;
  readonly onChange: (isOn: boolean) => void;
}

function Choice({ name, title, isOn, onChange }: ChoiceProps) {
  return (
    <button type="button" className={`button ${isOn ? "border-accent! text-accent!" : ""}`} aria-pressed={isOn} title={title} onClick={() => onChange(!isOn)}>
      {name}
    </button>
  );
}

interface CellWords {
  readonly name: string;
  readonly facts: readonly (readonly [string, string])[];
}

function cellWords(gpu: FleetGpu, text: string, row: MeasuredRow | null, now: number): CellWords {
  // An old value never stands without its age.
  const age = isSilent(gpu.verdict) && gpu.lastSeen !== null ? `, ${formatAge(gpu.lastSeen, now)}` : "";
  return {
    name: gpu.name,
    facts: [...(row === null ? [] : [[metricTitle(row.column), text + age] as const]), ["State", verdictWords(gpu.verdict)]],
  };
}

function Card({ words, isByFinger }: { readonly words: CellWords; readonly isByFinger: boolean }) {
  return (
    <div className="card space-y-1 px-3 py-2 text-[13px] shadow-lg">
      <p className="font-semibold">{words.name}</p>
      {words.facts.map(([name, text]) => (
        <p key={name} className="num leading-snug">
          <span className="text-xs text-faint">{name}</span> {text}
        </p>
      ))}
      {!isByFinger && <p className="text-xs text-faint">Click opens it, Shift and click picks it to compare</p>}
    </div>
  );
}

interface ActiveLineProps {
  readonly gpu: FleetGpu | null;
  readonly words: CellWords | null;
  readonly group: string;
  readonly isPicked: boolean;
  readonly isFull: boolean;
  /** Whether a finger touched the map last: it has neither Enter nor Shift. */
  readonly isByFinger: boolean;
  readonly onPick: () => void;
}

/** The active cell in words, with what can be done: for fingers and screen readers too. */
function ActiveLine({ gpu, words, group, isPicked, isFull, isByFinger, onPick }: ActiveLineProps) {
  if (gpu === null || words === null) {
    return <p className="mt-1.5 min-h-8 pr-28 text-xs text-muted">A cell is a GPU, beside those of its {group}. Wheel or + enlarges, dragging moves.</p>;
  }
  return (
    <div className="bottom-0 z-20 mt-1.5 flex min-h-8 flex-wrap items-center gap-x-3 gap-y-1 bg-card py-1 pr-28 text-xs max-md:sticky">
      <p aria-live="polite" className="min-w-0 flex-1 text-muted">
        {words.name}: {words.facts.map(([name, text]) => (name === "State" ? text : `${name} ${text}`)).join(", ")}
      </p>
      <span className={`flex gap-2 ${isByFinger ? "" : "sm:hidden"}`}>
        <Link to={GPU.to({ id: gpu.id })} className="button">
          Open
        </Link>
        <button type="button" className="button" disabled={!isPicked && isFull} onClick={onPick}>
          {isPicked ? "Unpick" : "Pick"}
        </button>
      </span>
    </div>
  );
}

interface PickedProps {
  readonly state: FleetState;
  readonly gpus: readonly FleetGpu[];
  readonly places: ReadonlyMap<string, number>;
  readonly change: HeatMapProps["change"];
}

function Picked({ state, gpus, places, change }: PickedProps) {
  const { picked, colour } = state;
  const nameOf = (id: string) => gpus[places.get(id) ?? -1]?.name ?? id;
  const metric = colour === STATE_COLOUR ? "" : colour;
  return (
    <div role="group" aria-label="Picked GPUs" className="mt-2 flex flex-wrap items-center gap-2 border-t border-line pt-2 text-[13px]">
      <Link to={COMPARE.to({ gpus: picked, metric })} className="button">
        Compare {picked.length === 1 ? "1 GPU" : `${picked.length} GPUs`}
      </Link>
      {picked.map((id) => (
        <button
          key={id}
          type="button"
          className="badge text-accent"
          aria-label={`Unpick ${nameOf(id)}`}
          title="Unpick"
          onClick={() => change({ picked: picked.filter((other) => other !== id) })}
        >
          {nameOf(id)} ×
        </button>
      ))}
      <button type="button" className="button quiet" onClick={() => change({ picked: [] })}>
        Clear
      </button>
      {picked.length >= PICKED_MAX && <span className="text-xs text-muted">A chart tells no more than {PICKED_MAX} apart.</span>}
    </div>
  );
}
