import type { Metric } from "../../api/client";
import { historyPath, type HistoryAsk, type Span } from "../../api/queries";
import type { ChartAction } from "../../charts/ChartMenu";
import { queryActions } from "../../parts/exports";
import { copyText } from "../../shared/clipboard";

/** A GPU in the words of Prometheus. */
export interface PromIdentity {
  readonly uuid: string | null;
  readonly partition: string | null;
}

export interface ExportAsk extends HistoryAsk {
  /** The GPUs again, in the same order. */
  readonly identities: readonly PromIdentity[];
  readonly span: Span;
  readonly title: string;
  readonly catalogue: readonly Metric[];
}

/** The question behind a chart, to be asked elsewhere, also as PromQL. */
export function chartActions(ask: ExportAsk): ChartAction[] {
  return [...queryActions(historyPath(ask, ask.span), ...ask.gpus, ask.title), { name: "Copy as PromQL", act: () => copyText(promqlOf(ask)) }];
}

/** A selector a line; values are in the base unit of Prometheus. */
export function promqlOf({ metrics, identities, catalogue }: Pick<ExportAsk, "metrics" | "identities" | "catalogue">): string {
  const quoted = (text: string) => `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n")}"`;
  const lines = metrics.flatMap((column) => {
    const series = catalogue.find((metric) => metric.column === column)?.prometheus;
    if (series === undefined) return [];
    const labels = Object.entries(series.labels).map(([name, value]) => `${name}=${quoted(value)}`);
    return identities.map(({ uuid, partition }) => {
      const own = Object.entries({ uuid, partition }).flatMap(([name, value]) => (value === null ? [] : [`${name}=${quoted(value)}`]));
      return `${series.name}{${[...labels, ...own].join(",")}}`;
    });
  });
  return lines.join("\n");
}
