import type { Finding } from "../../api/findings";
import { FindingItem } from "../../parts/findings/FindingItem";
import { formatClock, SECOND, useNow, usePresent } from "../../shared/time";

/** How long a finding stands: as long as it takes to read one. */
const STANDS_MS = 15 * SECOND;

interface TvProps {
  readonly findings: readonly Finding[];
  readonly indices: ReadonlyMap<string, number | null>;
  readonly names: ReadonlyMap<string, string>;
}

/** One finding after another, for a screen on a wall that nobody touches. Which one it is follows from the time alone: two screens show the same. */
export function Tv({ findings, indices, names }: TvProps) {
  const place = usePresent((now) => Math.floor(now / STANDS_MS) % Math.max(1, findings.length));
  const finding = findings[place];
  return (
    <div className="mt-3" data-testid="tv">
      {finding !== undefined && (
        <ul aria-label="What is wrong, one after another">
          <FindingItem key={finding.id} finding={finding} index={indices.get(finding.subject.id) ?? null} names={names} />
        </ul>
      )}
      <p className="num mt-2 flex justify-between text-xs text-muted">
        <span>{findings.length > 1 && `${place + 1} of ${findings.length}`}</span>
        <WallClock />
      </p>
    </div>
  );
}

function WallClock() {
  const now = useNow(SECOND);
  return <span>{formatClock(now)}</span>;
}
