import { ABSENT } from "../../shared/format";
import { JUDGEMENT_LOOKS } from "../../parts/gpuLook";
import type { FleetCounts } from "../../parts/counts";
import type { Judgement } from "../../api/judgement";
import { toldOf } from "../../parts/judgement";

interface FleetSummaryProps {
  readonly counts: FleetCounts;
  readonly chosen: Judgement | "";
  readonly choose: (word: Judgement | "") => void;
}

/** How many GPUs do how; each count is also the filter for it. */
export function FleetSummary({ counts, chosen, choose }: FleetSummaryProps) {
  const told = toldOf(counts.byWord);
  const countOf = (word: Judgement) => (counts.total === null ? null : (counts.byWord.get(word) ?? 0));
  return (
    <section aria-label="GPUs by how they do" className="card overflow-hidden">
      <div className="flex flex-wrap">
        <Count name="All GPUs" count={counts.total} pressed={chosen === ""} onClick={() => choose("")} />
        {told.map((word) => {
          const look = JUDGEMENT_LOOKS[word];
          return (
            <Count
              key={word}
              name={word}
              count={countOf(word)}
              pressed={chosen === word}
              onClick={() => choose(chosen === word ? "" : word)}
              icon={<look.icon size={13} className={look.colour} aria-hidden />}
            />
          );
        })}
      </div>
      <div className="flex h-1 gap-px" aria-hidden>
        {told.map((word) => {
          const count = countOf(word) ?? 0;
          return count > 0 && <div key={word} className={`${JUDGEMENT_LOOKS[word].colour} bg-current`} style={{ flexGrow: count }} />;
        })}
      </div>
    </section>
  );
}

interface CountProps {
  readonly name: string;
  readonly count: number | null;
  readonly pressed: boolean;
  readonly onClick: () => void;
  readonly icon?: React.ReactNode;
}

function Count({ name, count, pressed, onClick, icon }: CountProps) {
  return (
    <button
      type="button"
      aria-pressed={pressed}
      onClick={onClick}
      className={`min-w-[33.33%] flex-1 border-line px-3.5 py-2.5 text-left hover:bg-raised sm:min-w-0 sm:border-r sm:last:border-r-0 ${pressed ? "bg-raised" : ""}`}
    >
      <span className="flex items-center gap-1.5 text-xs text-muted first-letter:uppercase">
        {icon}
        <span className="first-letter:uppercase">{name}</span>
      </span>
      <span className={`num mt-0.5 block text-xl font-semibold tracking-tight ${count === 0 ? "text-faint" : ""}`}>
        {count === null ? ABSENT : count.toLocaleString("en")}
      </span>
    </button>
  );
}
