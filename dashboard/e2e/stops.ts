import { expect, type Page } from "@playwright/test";
import { readFileSync } from "node:fs";
import { APART, CLUSTERS, FLEET, judged, LIVE } from "./servers";

/** A page, the server that has something for it, and what is to be seen when it is there. */
export interface Stop {
  readonly name: string;
  readonly path: string;
  readonly server: string;
  readonly variable: string;
  readonly ready: (page: Page) => Promise<void>;
}

const visible = (selector: string) => async (page: Page) => expect(page.locator(selector).first()).toBeVisible();

/** The page of something that a finding is about. */
const found = (server: string) => async (page: Page) => {
  await judged(page, server);
  await expect(page.locator("[data-finding]").first()).toBeVisible();
};

/** Sums that agents make: the first come ten seconds after the first sample, and the page asks for them once a minute. */
const summed = async (page: Page) => {
  const rows = page.locator("[data-group]:visible");
  await expect(async () => {
    if ((await rows.count()) === 0) await page.reload();
    await expect(rows.first()).toBeVisible();
  }).toPass({ timeout: 60_000 });
};

/** The paths of all pages, of which those that name something cannot be gone to as they stand. */
const PATHS = readFileSync(new URL("../../crates/api/src/route/pages.txt", import.meta.url), "utf8").trim().split("\n");

/** Pages that need something to be there before they are looked at. */
const READY: readonly Stop[] = [
  { name: "Now", path: "/", server: FLEET, variable: "GPUVITALS_FLEET_URL", ready: found(FLEET) },
  { name: "Now on a wall", path: "/?tv", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: found(LIVE) },
  { name: "GPUs", path: "/gpus", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("[data-gpu]:visible") },
  { name: "Heat map", path: "/gpus?view=map&colour=temperature_c", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("[data-cells]:not([data-cells='0'])") },
  { name: "a GPU", path: "/gpus/sim-node-0001:gpu6", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: found(LIVE) },
  { name: "GPUs compared", path: "/compare?host=sim-node-0001", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("[data-testid=chart] canvas") },
  { name: "Hosts", path: "/hosts", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("[data-host]") },
  { name: "a host", path: "/hosts/sim-node-0001", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("[data-gpu]:visible") },
  { name: "Fleet over time", path: "/fleet?range=1h", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("[data-testid=chart] canvas") },
  { name: "Jobs", path: "/jobs?price=2", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("[data-group]") },
  { name: "Holders", path: "/jobs?by=holder&range=1h&price=2", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: summed },
  { name: "Users", path: "/jobs?by=user&range=1h", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: summed },
  { name: "Queue", path: "/queue", server: APART, variable: "GPUVITALS_APART_URL", ready: visible("[data-group]") },
  { name: "Statistics", path: "/statistics", server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("[data-testid=chart] canvas") },
  { name: "Clusters", path: "/clusters", server: CLUSTERS, variable: "GPUVITALS_CLUSTERS_URL", ready: visible("main h1, main h2") },
  { name: "a node", path: "/clusters/east/node-0", server: CLUSTERS, variable: "GPUVITALS_CLUSTERS_URL", ready: visible("main h1") },
];

/** Every page there is. */
export const STOPS: readonly Stop[] = [
  ...READY,
  ...PATHS.filter((path) => !path.includes(":") && !READY.some((stop) => stop.path.split("?")[0] === path)).map(
    (path): Stop => ({ name: path, path, server: LIVE, variable: "GPUVITALS_LIVE_URL", ready: visible("main h1, main h2, main dl") }),
  ),
];
