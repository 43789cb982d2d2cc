import { test, type Page } from "@playwright/test";

/** The server with the recorded capture, the one whose simulated GPUs report now, the one with thousands, and the one that reads clusters. */
export const RECORDED = (process.env.GPUVITALS_URL ?? "").replace(/\/+$/, "");
export const LIVE = (process.env.GPUVITALS_LIVE_URL ?? "").replace(/\/+$/, "");
export const FLEET = (process.env.GPUVITALS_FLEET_URL ?? "").replace(/\/+$/, "");
export const CLUSTERS = (process.env.GPUVITALS_CLUSTERS_URL ?? "").replace(/\/+$/, "");

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

export async function sidewaysScroll(page: Page): Promise<number> {
  return page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
}
