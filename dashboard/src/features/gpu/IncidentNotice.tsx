import { Command } from "../../parts/copy";
import { Link } from "../../shared/location";
import type { ShownIncident } from "./incident";

interface IncidentNoticeProps {
  /** What the address names. */
  readonly name: string;
  readonly shown: ShownIncident | null;
  /** The way to the same time without the incident. */
  readonly back: string;
}

/** Whose rows the charts show while an incident is looked at. */
export function IncidentNotice({ name, shown, back }: IncidentNoticeProps) {
  const rows = shown?.rows ?? null;
  return (
    <div role="note" aria-label="Incident" className="mb-3 flex flex-wrap items-baseline gap-x-4 gap-y-1 text-[13px]" data-testid="incident" data-rows={rows?.times.length ?? ""}>
      <p className={shown === null || shown.error !== null ? "text-warn" : "text-muted"}>
        Incident <span className="num break-all text-fg">{name}</span>: {wordsOf(shown)}
      </p>
      {shown !== null && (
        <p className="text-muted">
          All of it: <Command text={`gpuvitals flight fetch ${name}`} />
        </p>
      )}
      <Link to={back} className="rounded text-accent underline-offset-2 hover:underline">
        {rows === null ? "Leave it" : "Show what the store has"}
      </Link>
    </div>
  );
}

const FROM_STORE = "the charts show what the store has.";

function wordsOf(shown: ShownIncident | null): string {
  if (shown === null) return `this server keeps none of this GPU by that id; ${FROM_STORE}`;
  const { incident, rows, error } = shown;
  if (rows !== null) return `the charts show all ${rows.times.length.toLocaleString("en")} rows that ${rows.node} has sent of its window.`;
  if (error !== null) return `its rows could not be read: ${error.message}; ${FROM_STORE}`;
  if (incident.has_rows) return "its rows are being read.";
  return `its node has sent no rows of this GPU (${incident.nodes_had} of ${incident.nodes_asked} nodes have answered); ${FROM_STORE}`;
}
