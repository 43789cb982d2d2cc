import type { Look } from "../../charts/looks";
import { formatValue } from "../../shared/format";
import type { Colouring } from "./colouring";

/** A cell, enlarged, beside its meaning. */
export function Swatch({ look }: { readonly look: Look }) {
  const colour = look.colour.startsWith("--") ? `var(${look.colour})` : look.colour;
  if (look.shape === "holed") return <span aria-hidden className="size-2.5 shrink-0 border-[3px]" style={{ borderColor: colour }} />;
  if (look.shape === "hollow") return <span aria-hidden className="size-2.5 shrink-0 border" style={{ borderColor: colour }} />;
  return <span aria-hidden className={`size-2.5 shrink-0 ${look.shape === "framed" ? "outline-1 outline-offset-1 outline-fg" : ""}`} style={{ background: colour }} />;
}

/** What the colours of a heat map mean. */
export function CellLegend({ colouring }: { readonly colouring: Colouring }) {
  return (
    <ul aria-label="Colours" className="flex flex-wrap items-center gap-x-4 gap-y-1 text-[13px]" data-testid="legend">
      {colouring.domain !== null && (
        <li>
          <Ramp {...colouring.domain} colours={colouring.colours} top={colouring.top} />
        </li>
      )}
      {colouring.legend.map(({ name, look, count }) => (
        <li key={name} className="inline-flex items-center gap-1.5">
          <Swatch look={look} />
          <strong className={`num font-semibold ${count === 0 ? "text-faint" : ""}`}>{count.toLocaleString("en")}</strong>
          <span className={count === 0 ? "text-faint" : "text-muted"}>{name}</span>
        </li>
      ))}
    </ul>
  );
}

interface RampProps {
  readonly low: number;
  readonly high: number;
  readonly unit: string;
  readonly colours: readonly string[];
  readonly top: string | null;
}

function Ramp({ low, high, unit, colours, top }: RampProps) {
  return (
    <span className="flex items-center gap-2">
      <span className="num text-muted">{formatValue(low, unit)}</span>
      <span aria-hidden className="h-2.5 w-40 rounded-sm sm:w-56" style={{ background: `linear-gradient(to right, ${colours.join(",")})` }} />
      <span className="sr-only">to</span>
      <span className="num text-muted">{top ?? `${low < 0 && high > 0 ? "+" : ""}${formatValue(high, unit)}`}</span>
    </span>
  );
}
