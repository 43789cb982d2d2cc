import type { UseQueryResult } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { FleetAnswer, FleetGpu } from "../../api/fleet";
import type { Counts, Judgement } from "../../api/judgement";
import { CellMap } from "../../charts/CellMap";
import { ABSENT } from "../../shared/format";
import { FLEET, GPU } from "../../parts/addresses";
import { goTo, Link } from "../../shared/location";
import { Swatch } from "../../parts/cells/CellLegend";
import { byJudgement, JUDGEMENT_CELLS } from "../../parts/cells/colouring";
import { NOT_COUNTED, type FleetCounts } from "../../parts/counts";
import { JUDGEMENT_LOOKS } from "../../parts/gpuLook";
import { toldOf, verdictWords } from "../../parts/judgement";

/** The strip is an overview: the findings below must stay in sight. */
const HEIGHT_MAX = 170;

/** Every GPU as a cell beside those of its node, in the colour of its judgement, with a legend that counts. */
export function FleetStrip({ fleet }: { readonly fleet: UseQueryResult<FleetAnswer> }) {
  const { data } = fleet;
  return (
    <section aria-label="All GPUs by how they do" className="card p-3">
      <Legend counts={data?.counts ?? NOT_COUNTED} />
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
              The first {data.gpus.length.toLocaleString("en")} of {data.total.toLocaleString("en")} GPUs by host. The counts are of all.
            </p>
          )}
        </>
      )}
    </section>
  );
}

/** What the colours mean, how many GPUs have each, and the way to the list of them. */
function Legend({ counts }: { readonly counts: FleetCounts }) {
  return (
    <ul className="flex flex-wrap gap-x-4 gap-y-1 text-[13px]">
      <li>
        <Link to={FLEET.path} className="rounded hover:underline">
          <strong className="num font-semibold">{counts.total?.toLocaleString("en") ?? ABSENT}</strong> <span className="text-muted">{counts.total === 1 ? "GPU" : "GPUs"}</span>
        </Link>
      </li>
      {besideFindings(counts.byWord).map((word) => {
        const count = counts.total === null ? null : (counts.byWord.get(word) ?? 0);
        return (
          <li key={word}>
            <Link to={FLEET.to({ state: word })} className="inline-flex items-center gap-1.5 rounded hover:underline" title={`A GPU that is ${word} ${JUDGEMENT_LOOKS[word].meaning}. To their list`}>
              <Swatch look={JUDGEMENT_CELLS[word]} />
              <strong className={`num font-semibold ${count === 0 ? "text-faint" : ""}`}>{count?.toLocaleString("en") ?? ABSENT}</strong>
              <span className={count === 0 ? "text-faint" : "text-muted"}>{word}</span>
            </Link>
          </li>
        );
      })}
      <li className="ml-auto" data-control="">
        <Link to={FLEET.to({ view: "map" })} className="rounded text-muted hover:text-fg hover:underline">
          Heat map
        </Link>
      </li>
    </ul>
  );
}

/** The words that stand below the findings. A critical finding about a lost GPU is counted there: that no GPU is critical would deny it. */
function besideFindings(counts: Counts): Judgement[] {
  const has = (word: Judgement) => (counts.get(word) ?? 0) > 0;
  return toldOf(counts).filter((word) => word !== "critical" || has("critical") || !has("lost"));
}

function Strip({ gpus }: { readonly gpus: readonly FleetGpu[] }) {
  const [active, setActive] = useState(-1);
  const colouring = useMemo(() => byJudgement(gpus), [gpus]);
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
        {gpu === undefined ? "A cell is a GPU, a group of cells a node." : `${gpu.name}: ${verdictWords(gpu.verdict)}`}
      </p>
    </div>
  );
}
