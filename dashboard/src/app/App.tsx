import { useQuery } from "@tanstack/react-query";
import { Activity, CircleHelp, Monitor, Moon, Sun } from "lucide-react";
import { useEffect, useRef, type ReactNode } from "react";
import { useTokenAsked } from "../api/access";
import { clustersQuery } from "../api/clusters";
import { AboutPage } from "../features/about/AboutPage";
import { ClustersPage } from "../features/clusters/ClustersPage";
import { NodePage } from "../features/clusters/NodePage";
import { FleetPage } from "../features/fleet/FleetPage";
import { ComparePage } from "../features/gpu/ComparePage";
import { GpuPage } from "../features/gpu/GpuPage";
import { courseQuery } from "../features/health/courseQuery";
import { HealthStrip } from "../features/health/HealthStrip";
import { StatisticsPage } from "../features/health/StatisticsPage";
import { UnreachableNotice } from "../features/health/UnreachableNotice";
import { HostsPage } from "../features/hosts/HostsPage";
import { JobsPage } from "../features/jobs/JobsPage";
import { NowPage } from "../features/now/NowPage";
import { QueuePage } from "../features/queue/QueuePage";
import { TokenForm } from "../features/TokenForm";
import { goTo, Link, usePlace } from "../shared/location";
import { useShortcuts } from "../shared/shortcuts";
import { nextTheme, useTheme, type ThemeChoice } from "../shared/theme";
import { MINUTE } from "../shared/time";
import { nextZone, useZone } from "../shared/zone";
import { KeyboardHelp } from "./KeyboardHelp";
import { routeOf, type Route } from "./routes";

/** How often the figures of Statistics are read while another page is open: seldom, since nobody looks. */
const UNSEEN_MS = MINUTE / 2;
const THEME_ICONS = { system: Monitor, light: Sun, dark: Moon } as const;
const THEME_NAMES: Readonly<Record<ThemeChoice, string>> = { system: "as the system", light: "light", dark: "dark" };

/** The frame of every page: header with health, notices, and the page of the route. */
export function App() {
  const { pathname } = usePlace();
  const route = routeOf(pathname);
  // Everything that shows times is rendered below.
  useZone();
  const help = useRef<HTMLDialogElement>(null);
  const onClusters = route.page === "clusters" || route.page === "node";
  // Which clusters there are changes only with the gateway's configuration.
  const { data: hasClusters } = useQuery({ ...clustersQuery(MINUTE), select: (clusters) => clusters.length > 0 });
  const showsClusters = hasClusters === true || onClusters;
  // The page Statistics then has something to show as soon as it is opened. Nothing is rendered here for a reading.
  useQuery({ ...courseQuery(UNSEEN_MS), notifyOnChangeProps: [] });
  useShortcuts({
    t: nextTheme,
    u: nextZone,
    "?": () => help.current?.showModal(),
    n: () => goTo("/"),
    g: () => goTo("/gpus"),
    h: () => goTo("/hosts"),
    w: () => goTo("/jobs"),
    c: () => goTo("/clusters"),
    q: () => goTo("/queue"),
    s: () => goTo("/statistics"),
  });
  useEffect(() => {
    document.title = titleOf(route);
  }, [route]);

  return (
    <div className="min-h-dvh bg-page font-sans text-fg">
      <a href="#main" className="button sr-only focus:not-sr-only focus:fixed focus:top-2 focus:left-2 focus:z-50">
        Skip to content
      </a>
      <header className="z-30 md:sticky md:top-0 border-b border-line bg-card/95 backdrop-blur">
        <div className="mx-auto flex min-h-12 max-w-[1680px] flex-wrap items-center gap-x-4 px-3 sm:px-5">
          <Link to="/" className="flex items-center gap-2 font-semibold tracking-tight" aria-label="gpuvitals, to what is wrong now">
            <Activity size={18} className="text-good" aria-hidden />
            {/* On a phone the tabs take the place of the name. */}
            <span className="max-[480px]:sr-only">gpuvitals</span>
          </Link>
          <nav aria-label="Pages" className="flex items-center gap-1 max-md:min-w-0 max-md:flex-1 max-md:overflow-x-auto">
            <Tab to="/" active={route.page === "now"}>
              Now
            </Tab>
            <Tab to="/gpus" active={route.page === "fleet" || route.page === "gpu" || route.page === "compare"}>
              GPUs
            </Tab>
            <Tab to="/hosts" active={route.page === "hosts"}>
              Hosts
            </Tab>
            <Tab to="/jobs" active={route.page === "jobs"}>
              Jobs
            </Tab>
            {showsClusters && (
              <Tab to="/clusters" active={onClusters}>
                Clusters
              </Tab>
            )}
            <Tab to="/queue" active={route.page === "queue"}>
              Queue
            </Tab>
            <Tab to="/statistics" active={route.page === "statistics"}>
              Statistics
            </Tab>
          </nav>
          <div className="ml-auto flex items-center gap-1 md:order-last md:ml-0">
            <ThemeButton />
            <button type="button" className="button quiet square" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick={() => help.current?.showModal()}>
              <CircleHelp size={16} aria-hidden />
            </button>
          </div>
          <HealthStrip />
        </div>
      </header>
      <UnreachableNotice />
      <TokenNotice />
      <main id="main" className="mx-auto max-w-[1680px] px-3 py-4 sm:px-5">
        <Page route={route} />
      </main>
      <footer className="mx-auto max-w-[1680px] px-3 pb-6 text-xs text-muted sm:px-5">
        <Link to="/about" className="underline-offset-2 hover:underline">
          About gpuvitals
        </Link>
      </footer>
      <KeyboardHelp dialog={help} />
    </div>
  );
}

/** A gateway that lets only tokens in says so to a page whose browser did not ask for a login. */
function TokenNotice() {
  if (!useTokenAsked()) return null;
  return (
    <div role="alert" className="border-b border-warn/40 bg-warn/10 px-3 py-2 sm:px-5">
      <TokenForm why="This gateway asks for a token." />
    </div>
  );
}

function titleOf(route: Route): string {
  switch (route.page) {
    case "fleet":
      return "GPUs · gpuvitals";
    case "gpu":
      return `${route.id} · gpuvitals`;
    case "compare":
      return "GPUs compared · gpuvitals";
    case "hosts":
      return "Hosts · gpuvitals";
    case "jobs":
      return "Jobs and namespaces · gpuvitals";
    case "clusters":
      return "Clusters · gpuvitals";
    case "node":
      return `${route.node} · ${route.cluster} · gpuvitals`;
    case "queue":
      return "Queue · gpuvitals";
    case "statistics":
      return "Statistics · gpuvitals";
    case "about":
      return "About · gpuvitals";
    default:
      return "gpuvitals";
  }
}

function Page({ route }: { readonly route: Route }) {
  switch (route.page) {
    case "now":
      return <NowPage />;
    case "fleet":
      return <FleetPage />;
    case "gpu":
      return <GpuPage key={route.id} id={route.id} />;
    case "compare":
      return <ComparePage />;
    case "hosts":
      return <HostsPage />;
    case "jobs":
      return <JobsPage />;
    case "clusters":
      return <ClustersPage />;
    case "node":
      return <NodePage key={`${route.cluster}/${route.node}`} cluster={route.cluster} node={route.node} />;
    case "queue":
      return <QueuePage />;
    case "statistics":
      return <StatisticsPage />;
    case "about":
      return <AboutPage />;
    case "missing":
      return (
        <div className="card mx-auto mt-12 max-w-md p-6 text-center">
          <h1 className="text-base font-semibold">There is no such page</h1>
          <p className="mt-1 text-muted">The address may be mistyped or from another version.</p>
          <Link to="/" className="button mt-4">
            To what is wrong now
          </Link>
        </div>
      );
  }
}

function Tab({ to, active, children }: { readonly to: string; readonly active: boolean; readonly children: ReactNode }) {
  return (
    <Link
      to={to}
      aria-current={active ? "page" : undefined}
      className={`rounded-md px-2 py-1 text-[13px] ${active ? "bg-raised font-medium" : "text-muted hover:text-fg"}`}
    >
      {children}
    </Link>
  );
}

function ThemeButton() {
  const { choice } = useTheme();
  const Icon = THEME_ICONS[choice];
  return (
    <button
      type="button"
      className="button quiet square"
      aria-label={`Theme: ${THEME_NAMES[choice]}. Change`}
      title={`Theme: ${THEME_NAMES[choice]} (t)`}
      onClick={nextTheme}
    >
      <Icon size={16} aria-hidden />
    </button>
  );
}
