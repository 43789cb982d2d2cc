import type { Unread } from "../shared/address";
import { moveTo } from "../shared/location";

/** Says what of the address is not understood, and what would be: a filter that nobody applies must not look like one. */
export function UnreadNotice({ unread }: { readonly unread: readonly Unread[] }) {
  if (unread.length === 0) return null;
  return (
    <ul aria-label="Not understood in the address" className="mb-3 space-y-1 text-[13px] text-muted">
      {unread.map(({ name, said, isParameter, known }) => (
        <li key={name} className="flex flex-wrap items-baseline gap-x-3">
          <span className="min-w-0">
            <code className="font-mono [overflow-wrap:anywhere] text-warn">
              {name}={said}
            </code>{" "}
            is not understood and changes nothing. {isParameter ? "Known are" : known === "" ? "This page has no parameters." : "This page knows the parameters"}
            {known !== "" && `: ${known}.`}
          </span>
          <button type="button" data-control className="min-h-6 text-accent underline underline-offset-2" onClick={() => without(name)}>
            Without {name}
          </button>
        </li>
      ))}
    </ul>
  );
}

function without(name: string): void {
  const params = new URLSearchParams(window.location.search);
  params.delete(name);
  moveTo(window.location.pathname + (params.size === 0 ? "" : `?${params}`), { replace: true });
}
