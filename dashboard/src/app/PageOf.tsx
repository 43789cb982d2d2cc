import { queryOptions, useQuery } from "@tanstack/react-query";
import { Failed } from "../shared/states";
import { Link } from "../shared/location";
import { PAGES, type Page } from "./pages";
import type { Route } from "./routes";

/** The code of a page, kept until the browser loads the page anew. */
export function codeQuery({ path, load }: Page) {
  return queryOptions({ queryKey: ["code", path], queryFn: async () => ({ Shown: await load() }), staleTime: Infinity, gcTime: Infinity });
}

/** The page of a route. Its code comes when it is looked at first. */
export function PageOf({ route }: { readonly route: Route }) {
  const { page, named } = route;
  const code = useQuery(codeQuery(page));
  if (code.data !== undefined) return <code.data.Shown {...named} />;
  // A browser may not try a file again that it could not load, and a renewed server has others: the page is loaded anew.
  if (code.isError) return <Failed what="This page" error={code.error} retry={() => window.location.reload()} />;
  return <div role="status" aria-label="Loading the page" className="waiting h-64" />;
}

/** What stands where no page is: which address that was, and which pages there are. */
export function NoPage({ pathname }: { readonly pathname: string }) {
  return (
    <div className="card mx-auto mt-12 max-w-md p-6">
      <h1 className="text-base font-semibold">There is no such page</h1>
      <p className="mt-1 text-muted">
        Nothing stands at <code className="font-mono break-all text-fg">{pathname}</code>. The address may be mistyped or from another version. These are the pages:
      </p>
      <ul className="mt-3 space-y-1">
        {PAGES.filter(({ tab }) => tab !== undefined).map(({ path, tab, key }) => (
          <li key={path}>
            <Link to={path} className="text-accent underline underline-offset-2">
              {tab}
            </Link>
            {key !== undefined && key[1] !== tab && <span className="text-muted">: {key[1]}</span>}
          </li>
        ))}
      </ul>
    </div>
  );
}
