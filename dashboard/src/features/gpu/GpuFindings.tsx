import { useMemo } from "react";
import type { Gpu } from "../../api/client";
import type { Finding } from "../../api/findings";
import { FindingItem } from "../../parts/findings/FindingItem";
import { useGpuNames } from "../../parts/findings/names";

interface GpuFindingsProps {
  readonly findings: readonly Finding[];
  readonly gpu: Gpu;
  /** Why these may not be all, or not be true any more. */
  readonly doubts: readonly string[];
}

/** What is wrong with this GPU, or with something that it belongs to. */
export function GpuFindings({ findings, gpu, doubts }: GpuFindingsProps) {
  const known = useMemo(() => [gpu], [gpu]);
  const names = useGpuNames(findings, known);
  if (findings.length === 0 && doubts.length === 0) return null;
  return (
    <section aria-label="Findings" className="mt-3">
      {doubts.length > 0 && (
        <p role="status" className="mb-2 text-sm text-amber-700 dark:text-amber-300">
          Findings: {doubts.join(" ")}
        </p>
      )}
      <ul className="grid gap-2 min-[2000px]:grid-cols-2">
        {findings.map((finding) => (
          <FindingItem key={finding.id} finding={finding} index={gpu.index} isHere={finding.subject.type === "gpu"} names={names} />
        ))}
      </ul>
    </section>
  );
}
