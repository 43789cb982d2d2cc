import type { Finding } from "../../api/findings";
import type { Incident } from "../../api/incidents";
import { Link } from "../../shared/location";
import { GPU } from "../addresses";
import { Command } from "../copy";

interface FindingIncidentsProps {
  readonly finding: Finding;
  /** What GPUs are called, by id; one that is not known is told by its id. */
  readonly names: ReadonlyMap<string, string>;
}

/** What the nodes of its job have kept of the time in which it began. */
export function FindingIncidents({ finding, names }: FindingIncidentsProps) {
  const { incidents = [], subject } = finding;
  if (incidents.length === 0) return null;
  return (
    <ul aria-label="Incidents" className="mt-2 space-y-1.5 border-t border-line pt-2">
      {incidents.map((incident) => (
        <IncidentLine key={incident.id} incident={incident} gpu={subject.type === "gpu" ? subject.id : (incident.first?.gpu ?? null)} names={names} />
      ))}
    </ul>
  );
}

interface IncidentLineProps {
  readonly incident: Incident;
  /** The GPU whose charts show it. */
  readonly gpu: string | null;
  readonly names: ReadonlyMap<string, string>;
}

function IncidentLine({ incident, gpu, names }: IncidentLineProps) {
  const { id, first, nodes_asked: asked, nodes_had: had } = incident;
  const name = <span className="num break-all">{id}</span>;
  return (
    <li data-incident={id}>
      Incident{" "}
      {gpu === null ? (
        name
      ) : (
        <Link to={GPU.to({ id: gpu, incident: id })} className="rounded text-accent underline-offset-2 hover:underline" title="Open its window">
          {name}
        </Link>
      )}
      : rows of {had} of {asked} {asked === 1 ? "node" : "nodes"}.
      {first !== null && (
        <>
          {" "}
          First{" "}
          <Link to={GPU.to({ id: first.gpu, incident: id })} className="rounded underline-offset-2 hover:underline" title={first.gpu}>
            {names.get(first.gpu) ?? first.gpu}
          </Link>{" "}
          on {first.hostname}: {first.why}
          {first.doubt !== null && `; ${first.doubt}`}.
        </>
      )}{" "}
      All of it: <Command text={`gpuvitals flight fetch ${id}`} />
    </li>
  );
}
