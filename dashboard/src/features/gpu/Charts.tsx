import { useMemo } from "react";
import type { Span } from "../../api/queries";
import type { ChartAction } from "../../charts/ChartMenu";
import type { Frame } from "../../charts/frame";
import { MarkLegend } from "../../charts/MarkLegend";
import type { Marks } from "../../charts/marks";
import { evidenceFirst, isEvidence, panelsOf, type CatalogueRow, type Panel } from "../../charts/panels";
import type { Behind } from "../../charts/plot";
import { TimeChart } from "../../charts/TimeChart";

interface ChartsProps {
  readonly rows: readonly CatalogueRow[];
  readonly frame: Frame;
  readonly behind: Behind;
  readonly marks: Marks;
  /** Id of the GPU. */
  readonly subject: string;
  readonly actionsOf: (panel: Panel) => readonly ChartAction[];
  readonly span: Span;
  readonly now: number;
  readonly loading: boolean;
  /** What the server could not read, in its words. */
  readonly partial: readonly string[];
  /** Columns that show what is wrong: their charts stand first. */
  readonly evidence: ReadonlySet<string>;
  readonly onSelect: (start: number, end: number) => void;
}

/** A chart for each group and unit of the catalogue. */
export function Charts({ rows, frame, behind, marks, subject, actionsOf, span, now, loading, partial, evidence, onSelect }: ChartsProps) {
  const panels = useMemo(() => panelsOf(rows), [rows]);
  if (loading) {
    return (
      <div role="status" aria-label="Loading charts" className="grid gap-3 lg:grid-cols-2">
        {["a", "b", "c", "d"].map((key) => (
          <div key={key} className="waiting h-60" />
        ))}
      </div>
    );
  }
  return (
    <>
      {partial.length > 0 && (
        <p role="note" aria-label="Incomplete" className="mb-3 text-[13px] text-warn">
          Not everything could be read: {partial.join("; ")}
        </p>
      )}
      <MarkLegend marks={marks} now={now} />
      <div className="grid gap-3 lg:grid-cols-2">
        {evidenceFirst(panels, evidence).map((panel) => (
          <TimeChart
            key={panel.id}
            panel={panel}
            marked={isEvidence(panel, evidence)}
            frame={frame}
            behind={behind}
            marks={marks}
            subject={subject}
            actions={actionsOf(panel)}
            span={span}
            now={now}
            onSelect={onSelect}
          />
        ))}
      </div>
    </>
  );
}
