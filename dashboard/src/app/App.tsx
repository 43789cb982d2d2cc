import { useQuery } from "@tanstack/react-query";
import { Activity, CircleHelp, Monitor, Moon, Sun } from "lucide-react";
import { useRef, type ReactNode } from "react";
import { useTokenAsked } from "../api/access";
import { clustersQuery } from "../api/clusters";
import { courseQuery } from "../features/health/courseQuery";
import { HealthStrip } from "../features/health/HealthStrip";
import { StandstillNotice } from "../features/health/StandstillNotice";
import { UnreachableNotice } from "../features/health/UnreachableNotice";
import { AsOfNotice } from "../parts/asof/AsOfNotice";
import { TokenForm } from "../parts/TokenForm";
import { UnreadNotice } from "../parts/UnreadNotice";
import { NOW } from "../parts/addresses";
import { goTo, Link, usePlace } from "../shared/location";
import { useShortcuts } from "../shared/shortcuts";
import { nextTheme, useTheme, type ThemeChoice } from "../shared/theme";
import { MINUTE } from "../shared/time";
import { nextZone, useZone } from "../shared/zone";
import { HeaderSearch } from "./HeaderSearch";
import { KeyboardHelp } from "./KeyboardHelp";
import { NoPage, PageOf } from "./PageOf";
import { PAGES } from "./pages";
import { routeOf } from "./routes";
import { useTitle } from "./useTitle";

/** How often the figures of Statistics are read while another page is open: seldom, since nobody looks. */
const UNSEEN_MS = MINUTE / 2;
const THEME_ICONS = { system: Monitor, light: Sun, dark: Moon } as const;
const THEME_NAMES: Readonly<Record<ThemeChoice, string>> = { system: "as the system", light: "light", dark: "dark" };

const PAGE_KEYS = Object.fromEntries(PAGES.flatMap(({ path, key }) => (key === undefined ? [] : [[key[0], () => goTo(path)]])));

/** The frame of every page: header with health, notices, and the page of the route. */
export function App() {
  const { pathname, search } = usePlace();
  // A screen on a wall shows the page alone, larger: nobody sits before it.
  const isTv = pathname === NOW.path && NOW.read(search).tv;
  const route = routeOf(pathname);
  // Everything that shows times is rendered below.
  useZone();
  const help = useRef<HTMLDialogElement>(null);
  const chosen = route?.page.under ?? route?.page.path;
  // Which clusters there are changes only with the gateway's configuration.
  const { data: hasClusters } = useQuery({ ...clustersQuery(MINUTE), select: (clusters) => clusters.length > 0 });
  // The page Statistics then has something to show as soon as it is opened. Nothing is rendered here for a reading.
  useQuery({ ...courseQuery(UNSEEN_MS), notifyOnChangeProps: [] });
  useShortcuts({
    t: nextTheme,
    u: nextZone,
    "?": () => help.current?.showModal(),
    ...PAGE_KEYS,
  });
  useTitle(route);

  return (
    <div className="min-h-dvh bg-page font-sans text-fg">
      <a href="#main" className="button sr-only focus:not-sr-only focus:fixed focus:top-2 focus:left-2 focus:z-50">
        Skip to content
      </a>
      <header hidden={isTv} className="z-30 md:sticky md:top-0 border-b border-line bg-card/95 backdrop-blur">
        <div className="mx-auto flex min-h-12 max-w-[2560px] flex-wrap items-center gap-x-4 px-3 sm:px-5">
          <Link to={NOW.path} className="flex min-w-6 shrink-0 items-center gap-2 font-semibold tracking-tight" aria-label="gpuvitals, to what is wrong now">
            <Activity size={18} className="text-good" aria-hidden />
            {/* On a phone the tabs take the place of the name. */}
            <span className="max-[480px]:sr-only">gpuvitals</span>
          </Link>
          <nav aria-label="Pages" className="flex items-center gap-1 max-md:min-w-0 max-md:flex-1 max-md:overflow-x-auto">
            {PAGES.filter(({ tab, path, isOfClusters }) => tab !== undefined && (isOfClusters !== true || hasClusters === true || chosen === path)).map(({ path, tab }) => (
              <Tab key={path} to={path} active={chosen === path}>
                {tab}
              </Tab>
            ))}
          </nav>
          <HeaderSearch />
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
      <StandstillNotice />
      <TokenNotice />
      <AsOfNotice isOfNow={route?.page.isOfNow === true} />
      <main id="main" {...(isTv && { "data-tv": "" })} className="mx-auto max-w-[2560px] px-3 py-4 sm:px-5">
        {route !== null && <UnreadNotice unread={route.page.unread(search)} />}
        {route === null ? <NoPage pathname={pathname} /> : <PageOf key={pathname} route={route} />}
      </main>
      <footer hidden={isTv} className="mx-auto max-w-[2560px] px-3 pb-6 text-xs text-muted sm:px-5">
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

function Tab({ to, active, children }: { readonly to: string; readonly active: boolean; readonly children: ReactNode }) {
  return (
    <Link
      to={to}
      aria-current={active ? "page" : undefined}
      className={`shrink-0 rounded-md px-2 py-1 text-[13px] ${active ? "bg-raised font-medium" : "text-muted hover:text-fg"}`}
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
