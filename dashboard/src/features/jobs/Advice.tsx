import { useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";
import { adviceQuery, type JobAsk } from "../../api/usage";

/** What a job that is over could have done without. It is asked for when somebody wants to know: the answer reads the job's rows. */
export function Advice({ of }: { readonly of: JobAsk }) {
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  return (
    <div className="text-xs text-muted">
      <button type="button" className="relative rounded hover:text-fg hover:underline" aria-expanded={isOpen} aria-controls={id} onClick={() => setOpen(!isOpen)}>
        Advice<span className="sr-only"> on {of.holder}</span>
      </button>
      <div id={id}>{isOpen && <Said of={of} />}</div>
    </div>
  );
}

function Said({ of }: { readonly of: JobAsk }) {
  const { data, error } = useQuery(adviceQuery(of));
  if (error !== null) return <p className="text-warn">This could not be read: {error.message}</p>;
  if (data === undefined) return <p role="status">Looking at what each GPU did</p>;
  return <p>{data === null ? "None that is safe to give: nothing shows that a GPU was not needed." : `${data}.`}</p>;
}
