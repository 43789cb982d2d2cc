import { Ellipsis } from "lucide-react";
import { useEffect, useState } from "react";

/** Something to do with a chart. */
export interface ChartAction {
  readonly name: string;
  /** Says whether it was done. */
  readonly act: () => Promise<boolean>;
}

const SAID_FOR_MS = 1500;

/** What can be done with a chart, behind one button. A page has dozens of them, so what is closed has no elements. */
export function ChartMenu({ title, actions }: { readonly title: string; readonly actions: readonly ChartAction[] }) {
  const [isOpen, setIsOpen] = useState(false);
  const [said, setSaid] = useState("");
  useEffect(() => {
    if (said === "") return;
    const timer = setTimeout(() => setSaid(""), SAID_FOR_MS);
    return () => clearTimeout(timer);
  }, [said]);
  const run = ({ name, act }: ChartAction) => {
    setIsOpen(false);
    act().then(
      (done) => setSaid(done ? `${name}: done` : `${name}: the browser does not allow it`),
      (error: unknown) => setSaid(`${name}: ${error instanceof Error ? error.message : "failed"}`),
    );
  };
  return (
    <span className="flex items-center gap-2">
      <span role="status" className="text-[11px] text-muted">
        {said}
      </span>
      <details
        className="relative"
        open={isOpen}
        onKeyDown={(event) => {
          if (event.key === "Escape") setIsOpen(false);
        }}
        onBlur={(event) => {
          if (!event.currentTarget.contains(event.relatedTarget)) setIsOpen(false);
        }}
      >
        <summary
          className="flex cursor-pointer list-none rounded p-0.5 text-faint hover:text-fg"
          aria-label={`Export ${title}`}
          title="Export, copy as"
          onClick={(event) => {
            // What is open is decided here alone.
            event.preventDefault();
            setIsOpen(!isOpen);
          }}
        >
          <Ellipsis size={15} aria-hidden />
        </summary>
        {isOpen && (
          <ul className="card absolute top-full right-0 z-20 mt-1 w-52 py-1 shadow-lg">
            {actions.map((action) => (
              <li key={action.name}>
                <button type="button" className="block w-full px-3 py-1.5 text-left text-[13px] hover:bg-raised" onClick={() => run(action)}>
                  {action.name}
                </button>
              </li>
            ))}
          </ul>
        )}
      </details>
    </span>
  );
}
