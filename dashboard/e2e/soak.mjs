// node e2e/soak.mjs URL MINUTES PID: pages that stay open. Each minute: the heap of all after a collection, the CPU time of
// each one's main thread, and the memory of the server, whose process is PID.

import { readFileSync } from "node:fs";
import process from "node:process";
import { setTimeout } from "node:timers/promises";
import { chromium } from "@playwright/test";

const [url, minutes, server] = process.argv.slice(2);
const MINUTE_MS = 60_000;
const MIB = 1_048_576;
/** Until then caches and the history of the charts fill. */
const SETTLED = 0.4;
const GROWTH_MAX = 1.25;
const CORE_MAX_PCT = 5;
const PAGES = [
  "/",
  "/?tv",
  "/gpus",
  "/gpus?view=map&colour=temperature_c",
  "/gpus/sim-node-0001:gpu6",
  "/compare?host=sim-node-0001",
  "/hosts",
  "/hosts/sim-node-0001",
  "/jobs",
  "/statistics",
];

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows"],
});

async function open(path) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(error.message));
  await page.goto(url + path);
  const devtools = await context.newCDPSession(page);
  await devtools.send("Performance.enable");
  await devtools.send("HeapProfiler.enable");
  return { path, devtools, faults, heaps: [], work: [] };
}

async function look(page) {
  await page.devtools.send("HeapProfiler.collectGarbage");
  const { metrics } = await page.devtools.send("Performance.getMetrics");
  const of = (name) => metrics.find((metric) => metric.name === name)?.value ?? 0;
  page.heaps.push(of("JSHeapUsedSize") / MIB);
  page.work.push({ at: of("Timestamp"), seconds: of("ThreadTime") });
}

/** Of a core since the pages settled, in per cent. */
function coreOf({ work }) {
  const from = work[Math.floor((work.length - 1) * SETTLED)];
  const to = work.at(-1);
  return (100 * (to.seconds - from.seconds)) / (to.at - from.at);
}

const rssOf = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server}/status`, "utf8"))[1]) / 1024;
const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);
const say = (text) => process.stdout.write(`${text}\n`);
const whole = (number) => number.toFixed(0);

const pages = [];
for (const path of PAGES) pages.push(await open(path));
const heaps = [];
const servers = [];
for (let minute = 1; minute <= Number(minutes); minute += 1) {
  await setTimeout(MINUTE_MS);
  for (const page of pages) await look(page);
  heaps.push(sum(pages.map((page) => page.heaps.at(-1))));
  servers.push(rssOf());
  say(`minute ${minute}: heaps ${whole(heaps.at(-1))} MiB, server ${whole(servers.at(-1))} MiB`);
}

const grown = (course) => course.at(-1) / course[Math.floor((course.length - 1) * SETTLED)];
const failures = [];
for (const page of pages) {
  const core = coreOf(page);
  say(`${page.path}: heap ${whole(page.heaps[0])} → ${whole(page.heaps.at(-1))} MiB, ${core.toFixed(1)} % of a core`);
  if (core > CORE_MAX_PCT) failures.push(`${page.path} takes ${core.toFixed(1)} % of a core`);
  failures.push(...page.faults.map((fault) => `${page.path}: ${fault}`));
}
if (grown(heaps) > GROWTH_MAX) failures.push(`the heaps grew to ${grown(heaps).toFixed(2)} of what they were`);
if (grown(servers) > GROWTH_MAX) failures.push(`the server grew to ${grown(servers).toFixed(2)} of what it was`);
for (const failure of failures) say(`FAILED ${failure}`);
await browser.close();
process.exit(failures.length === 0 ? 0 : 1);
