import { useQuery } from "@tanstack/react-query";
import { stragglersQuery, type Straggler } from "../../api/stragglers";
import { formatNumber, formatValue } from "../../shared/format";
import { Link } from "../../shared/location";
import { answerDoubts } from "../../parts/findings/doubts";
import { GPU, NOW } from "../../parts/addresses";

/** As many as are read at a glance. */
const SHOWN_MAX = 8;

/** The GPUs that hold their job up now, whatever range the page shows. */
export function Stragglers() {
  const answer = useQuery(stragglersQuery());
  const { data, error } = answer;
  const doubts = answerDoubts(answer);
  return (
    <section aria-label="Stragglers" className="card mb-3 p-3 text-[13px]">
      <h2 className="text-[11px] text-faint">Stragglers of the last ten minutes</h2>
      {data === undefined ? (
        error === null ? (
          <div role="status" aria-label="Loading stragglers" className="waiting mt-1 h-5 w-80 max-w-full" />
        ) : (
          <p className="mt-1 text-warn">Stragglers could not be read: {error.message}</p>
        )
      ) : data.stragglers.length === 0 ? (
        <p className="mt-1 text-muted">{data.jobs === 0 ? "No job with several GPUs runs now." : "No GPU holds its job up."}</p>
      ) : (
        <ul className="mt-1 space-y-1">
          {data.stragglers.slice(0, SHOWN_MAX).map((straggler) => (
            <li key={`${straggler.job} ${straggler.gpu}`} className="[overflow-wrap:anywhere]">
              <Link to={GPU.to({ id: straggler.gpu })} className="rounded font-semibold hover:underline">
                {straggler.name}
              </Link>
              : <span className="num">{lagWords(straggler)}</span>
            </li>
          ))}
        </ul>
      )}
      {data !== undefined && data.stragglers.length > SHOWN_MAX && (
        <Link to={NOW.to({ kind: "straggler" })} className="mt-1 inline-block rounded text-xs text-muted underline underline-offset-2 hover:text-fg">
          All stragglers are among the findings
        </Link>
      )}
      {doubts.length > 0 && <p className="mt-1 text-warn">{doubts.join(" ")}</p>}
    </section>
  );
}

/** `clock 1,530 MHz, 23% below the 1,980 MHz of its job east/research/train-7 with 8 GPUs` */
function lagWords({ job, count, clock_mhz: clock, median }: Straggler): string {
  const of = `of its job ${job} with ${count} GPUs`;
  if (clock === null || median === null) return `slower than the others ${of}`;
  return `clock ${formatValue(clock, "MHz")}, ${formatNumber(Math.round((1 - clock / median) * 100))}% below the ${formatValue(median, "MHz")} ${of}`;
}
