import { STATES } from "../../api/queries";
import { ABSENT } from "../../shared/format";
import { STATE_LOOKS } from "../../parts/gpuLook";
import type { FleetCounts } from "../../parts/counts";

interface FleetSummaryProps {
  readonly counts: FleetCounts;
  readonly chosen: string;
  readonly choose: (state: string) => void;
}

/** Counts by state; each is also the filter for it. */
export function FleetSummary({ counts, chosen, choose }: FleetSummaryProps) {
  return (
    <section aria-label="GPUs by state" className="card overflow-hidden">
      <div className="flex flex-wrap">
        <Count name="All GPUs" count={counts.total} pressed={chosen === ""} onClick={() => choose("")} />
        {STATES.map((state) => {
          const look = STATE_LOOKS[state];
          return (
            <Count
              key={state}
              name={state}
              count={counts.byState.get(state) ?? null}
              pressed={chosen === state}
              onClick={() => choose(chosen === state ? "" : state)}
              icon={<look.icon size={13} className={look.colour} aria-hidden />}
            />
          );
        })}
      </div>
      <div className="flex h-1 gap-px" aria-hidden>
        {STATES.map((state) => {
          const count = counts.byState.get(state) ?? 0;
          return count > 0 && <div key={state} className={`${STATE_LOOKS[state].colour} bg-current`} style={{ flexGrow: count }} />;
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
