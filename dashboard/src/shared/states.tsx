import { RotateCw, TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import { formatClock } from "./time";

/** Why there is nothing to show, and what can be done about it. */
export function Empty({ title, children }: { readonly title: string; readonly children?: ReactNode }) {
  return (
    <div className="card grid place-items-center px-6 py-14 text-center">
      <div>
        <p className="font-medium">{title}</p>
        <div className="mt-1 max-w-md text-[13px] text-muted">{children}</div>
      </div>
    </div>
  );
}

/** An answer that is asked for again and again. */
export interface Renewed {
  readonly data?: unknown;
  readonly error: Error | null;
  readonly dataUpdatedAt: number;
}

/** Says that what is shown is old, since an answer could not be renewed: as old as the oldest of them. */
export function NotRenewed({ of }: { readonly of: readonly Renewed[] }) {
  const late = of.filter(({ data, error }) => error !== null && data !== undefined).sort((a, b) => a.dataUpdatedAt - b.dataUpdatedAt);
  const [oldest] = late;
  if (oldest === undefined) return null;
  return (
    <p role="note" aria-label="Not renewed" className="mt-2 text-[13px] text-warn">
      Not renewed: as of {formatClock(oldest.dataUpdatedAt)}. {oldest.error?.message}
    </p>
  );
}

interface FailedProps {
  readonly what: string;
  readonly error: Error;
  readonly retry: () => void;
}

export function Failed({ what, error, retry }: FailedProps) {
  return (
    <div role="alert" className="card grid place-items-center px-6 py-14 text-center">
      <div>
        <TriangleAlert size={20} className="mx-auto text-bad" aria-hidden />
        <p className="mt-2 font-medium">{what} could not be read</p>
        <p className="mt-1 max-w-md text-[13px] text-muted">{error.message}</p>
        <button type="button" className="button mt-4" onClick={retry}>
          <RotateCw size={13} aria-hidden /> Retry
        </button>
      </div>
    </div>
  );
}
