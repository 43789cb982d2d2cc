import { ChevronRight } from "lucide-react";
import type { Gpu, GpuDetail } from "../../api/client";
import { ABSENT, formatValue } from "../../shared/format";
import { FLEET, HOST } from "../../parts/addresses";
import { Link } from "../../shared/location";
import { CopyButton } from "../../parts/copy";
import type { Verdict } from "../../api/judgement";
import { JUDGEMENT_LOOKS, LastSeen, SimulatedBadge, VerdictBadge } from "../../parts/gpuLook";

interface GpuHeaderProps {
  readonly gpu: Gpu;
  readonly labels: GpuDetail["labels"];
  readonly verdict: Verdict;
  readonly lastSeen: number | null;
}

/** What is told of a GPU besides its identity, where it is known. */
const LABELS = [
  ["cluster", "Cluster"],
  ["pci", "PCI"],
  ["partition", "Partition"],
  ["vbios", "VBIOS"],
  ["namespace", "Namespace"],
  ["pod", "Pod"],
  ["job", "Job"],
  ["source", "Source"],
] as const;

function vendorName(vendor: string | null): string {
  return vendor === null ? ABSENT : vendor.toUpperCase();
}

export function GpuHeader({ gpu, labels, verdict, lastSeen }: GpuHeaderProps) {
  return (
    <header>
      <nav aria-label="Path" className="flex items-center gap-1 text-xs text-muted">
        <Link to={FLEET.path} className="hover:text-fg hover:underline">
          GPUs
        </Link>
        <ChevronRight size={12} aria-hidden />
        {gpu.hostname === null ? (
          <span>host unknown</span>
        ) : (
          <Link to={HOST.to({ name: gpu.hostname })} className="truncate hover:text-fg hover:underline" title="This host">
            {gpu.hostname}
          </Link>
        )}
      </nav>
      <div className="mt-1 flex flex-wrap items-center gap-x-3 gap-y-1">
        <h1 className="text-lg font-semibold tracking-tight">
          {gpu.model ?? gpu.name}
          {gpu.index !== null && <span className="num ml-2 font-normal text-muted">#{gpu.index}</span>}
        </h1>
        <VerdictBadge verdict={verdict} />
        {gpu.simulated && <SimulatedBadge />}
      </div>
      {gpu.state_reason !== null && (
        <p className={`mt-1 text-[13px] ${JUDGEMENT_LOOKS[verdict.word].colour}`}>{gpu.state_reason}</p>
      )}
      <dl className="mt-1 flex flex-wrap items-center gap-x-5 gap-y-1 text-[13px]">
        <Fact name="Id">
          <span className="font-mono text-xs break-all">{gpu.id}</span>
          <CopyButton text={gpu.id} label="Copy the id" />
        </Fact>
        <Fact name="Vendor">{vendorName(gpu.vendor)}</Fact>
        <Fact name="Driver">{gpu.driver_version ?? ABSENT}</Fact>
        <Fact name="Memory">{formatValue(gpu.memory_mb, "MiB")}</Fact>
        {LABELS.map(([label, name]) => {
          const value = labels[label];
          return typeof value === "string" && <Fact key={label} name={name}>{value}</Fact>;
        })}
        <Fact name="Last seen">
          <LastSeen at={lastSeen} />
        </Fact>
      </dl>
    </header>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: React.ReactNode }) {
  return (
    <div className="flex items-baseline gap-1.5">
      <dt className="text-xs text-faint">{name}</dt>
      <dd className="num flex items-center gap-1 text-muted">{children}</dd>
    </div>
  );
}
