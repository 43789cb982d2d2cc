import { expect, test, type Page } from "@playwright/test";

/** The server with the recorded capture, the one whose simulated GPUs report now, the one with thousands, and the one that reads clusters. */
export const RECORDED = (process.env.GPUVITALS_URL ?? "").replace(/\/+$/, "");
export const LIVE = (process.env.GPUVITALS_LIVE_URL ?? "").replace(/\/+$/, "");
export const FLEET = (process.env.GPUVITALS_FLEET_URL ?? "").replace(/\/+$/, "");
export const CLUSTERS = (process.env.GPUVITALS_CLUSTERS_URL ?? "").replace(/\/+$/, "");

/** The gateway whose page is hosted elsewhere, its broker, and that page. */
export const APART = (process.env.GPUVITALS_APART_URL ?? "").replace(/\/+$/, "");
export const APART_QUEUE = (process.env.GPUVITALS_APART_QUEUE_URL ?? "").replace(/\/+$/, "");
export const APART_PAGE = (process.env.GPUVITALS_APART_PAGE_URL ?? "").replace(/\/+$/, "");

/** Skips with the reason; a test that never ran must not look like one that passed. */
export function needs(url: string, name: string): void {
  test.skip(url === "", `${name} is not set: start gpuvitals and say where it listens`);
}

/** What the page says to the console in anger, and errors nobody caught. */
export function complaints(page: Page): string[] {
  const heard: string[] = [];
  page.on("pageerror", (error) => heard.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") heard.push(message.text());
  });
  return heard;
}

/** A page lays itself out some frames after its width or its content has changed: that is waited for. */
export async function expectNoSidewaysScroll(page: Page): Promise<void> {
  const scrolled = () => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  await expect.poll(scrolled, { message: "px that the page scrolls sideways" }).toBeLessThanOrEqual(0);
}

/** The XID of the simulated fleet's sick GPU, among findings. */
export const XID = "[data-finding^='xid_nonfatal:']";

/** The fleet is judged every 15 s: after the start the first findings come with the second judgement at the latest. */
const JUDGED_WITHIN_MS = 40_000;

/** Waits until the simulated fleet's sick GPU is found. */
export async function judged(page: Page, url: string): Promise<void> {
  await expect
    .poll(async () => ((await (await page.request.get(`${url}/api/v1/analysis/findings?kind=xid_nonfatal`)).json()) as { total: number }).total, { timeout: JUDGED_WITHIN_MS })
    .toBe(1);
}

/** Measured times stand in the output of the run. */
export function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** An answer with so many GPUs on nodes of eight, as the server writes it. */
export function madeUp(count: number, more: (gpu: number) => object): string {
  const gpus = Array.from({ length: count }, (_, gpu) => {
    const host = `n${String(Math.floor(gpu / 8)).padStart(4, "0")}`;
    const isSick = gpu % 997 === 0;
    const state = isSick ? "unhealthy" : gpu % 3 === 0 ? "idle" : "active";
    const reason = isSick ? "XID 79" : null;
    return {
      id: `GPU-${gpu}`, name: `${host} / GPU ${gpu % 8}`, model: "NVIDIA H100 80GB HBM3", vendor: "nvidia", hostname: host, index: gpu % 8, memory_mb: 81_559, driver_version: "570.86.15",
      state, state_reason: reason, judgement: state, judgement_reason: reason, last_seen: new Date().toISOString(), simulated: true, ...more(gpu),
    };
  });
  const judgements: Record<string, number> = Object.fromEntries(["critical", "lost", "unhealthy", "warning", "notice", "unconfirmed", "stale", "unknown", "active", "idle"].map((word) => [word, 0]));
  for (const { judgement } of gpus) judgements[judgement] = (judgements[judgement] ?? 0) + 1;
  return JSON.stringify({ gpus, judgements, total: count, pagination: { limit: 10_000, offset: 0, has_next: false } });
}
