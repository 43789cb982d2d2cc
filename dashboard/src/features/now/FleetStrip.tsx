import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { wholeFleetQuery, type FleetGpu } from "../../api/fleet";
import { STATES } from "../../api/queries";
import { CellMap } from "../../charts/CellMap";
import { ABSENT } from "../../shared/format";
import { FLEET, GPU } from "../../parts/addresses";
import { goTo, Link } from "../../shared/location";
import { Swatch } from "../../parts/cells/CellLegend";
import { byState, STATE_CELLS } from "../../parts/cells/colouring";
import type { FleetCounts } from "../../parts/counts";

type Counts = Pick<FleetCounts, "byState" | "total">;

/** The strip is an overview: the findings below must stay in sight. */
const HEIGHT_MAX = 170;

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
        <Link to={FLEET.path} className="rounded hover:underline">
          <strong className="num font-semibold">{counts.total?.toLocaleString("en") ?? ABSENT}</strong> <span className="text-muted">{counts.total === 1 ? "GPU" : "GPUs"}</span>
        </Link>
      </li>
      {STATES.map((state) => {
        const count = counts.byState.get(state) ?? null;
        return (
          <li key={state}>
            <Link to={FLEET.to({ state })} className="inline-flex items-center gap-1.5 rounded hover:underline" title={`List of GPUs that are ${state}`}>
              <Swatch look={STATE_CELLS[state]} />
              <strong className={`num font-semibold ${count === 0 ? "text-faint" : ""}`}>{count?.toLocaleString("en") ?? ABSENT}</strong>
              <span className={count === 0 ? "text-faint" : "text-muted"}>{state}</span>
            </Link>
          </li>
        );
      })}
      <li className="ml-auto">
        <Link to={FLEET.to({ view: "map" })} className="rounded text-muted hover:text-fg hover:underline">
          Heat map
        </Link>
      </li>
    </ul>
  );
}

function Strip({ gpus }: { readonly gpus: readonly FleetGpu[] }) {
  const [active, setActive] = useState(-1);
  const colouring = useMemo(() => byState(gpus), [gpus]);
  const groups = useMemo(() => gpus.map((gpu) => gpu.host), [gpus]);
  const gpu = gpus[active];
  return (
    <div className="mt-2">
      <CellMap
        groups={groups}
        painting={colouring.painting}
        heightMax={HEIGHT_MAX}
        label={`A cell for each of ${gpus.length.toLocaleString("en")} GPUs, by node. Arrow keys choose one, Enter opens it.`}
        testId="strip"
        active={active}
        onActive={setActive}
        onOpen={(place) => {
          const opened = gpus[place];
          if (opened !== undefined) goTo(GPU.to({ id: opened.id }));
        }}
      />
      <p aria-live="polite" className="mt-1.5 truncate text-xs text-muted">
        {gpu === undefined ? "A cell is a GPU, a group of cells a node." : `${gpu.name}: ${gpu.state}${gpu.reason === null ? "" : `, ${gpu.reason}`}`}
      </p>
    </div>
  );
}
