// node e2e/screenshots.mjs URL FOLDER: the pictures of the documentation, from a server that shows a simulated fleet.

import process from "node:process";
import { chromium } from "@playwright/test";

const [url, folder] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

const context = await browser.newContext({ colorScheme: "dark", viewport: { width: 1440, height: 900 } });
const now = await context.newPage();
await now.goto(url);
await now.locator("[data-finding^='xid_nonfatal:']").waitFor({ timeout: 60_000 });
await now.locator("[data-cells]:not([data-cells='0'])").waitFor();
await now.screenshot({ path: `${folder}/now.png` });

const map = await context.newPage();
await map.goto(`${url}/gpus?view=map&colour=temperature_c`);
await map.locator("[data-testid='heatmap']:not([data-cells='0'])").waitFor();
// The hot GPU of the first node.
await map.getByTestId("heatmap").focus();
for (let press = 0; press < 5; press += 1) await map.keyboard.press("ArrowRight");
await map.screenshot({ path: `${folder}/heatmap.png` });

// The page of a made-up run, as the program's own tests have it.
const report = await context.newPage();
await report.setViewportSize({ width: 1080, height: 1420 });
await report.goto(new URL("../../crates/report/tests/report/run.html", import.meta.url).href);
await report.screenshot({ path: `${folder}/report.png` });
await browser.close();
