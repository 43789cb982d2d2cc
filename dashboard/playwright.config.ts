import { defineConfig } from "@playwright/test";

// The tests drive Debian's Chromium against servers that are already running:
//   GPUVITALS_URL       gpuvitals with a recorded capture (all GPUs last seen long ago)
//   GPUVITALS_LIVE_URL  gpuvitals with simulated GPUs that report now
//   GPUVITALS_FLEET_URL  gpuvitals with 4,096 simulated GPUs on 512 hosts, one of them sick
//   GPUVITALS_CLUSTERS_URL  gpuvitals that reads clusters: east, a double of a Kubernetes API server with 4 nodes of 8 GPUs and
//                           one that hangs; lab, the same with a wrong token and no verification; web, without GPUs
//   GPUVITALS_APART_URL  gpuvitals whose API and broker (GPUVITALS_APART_QUEUE_URL) let the page at GPUVITALS_APART_PAGE_URL in
// To develop them without gpuvitals: npm run build, then node e2e/mock/server.mjs (see there).
export default defineConfig({
  testDir: "e2e",
  testMatch: "*.spec.ts",
  fullyParallel: false,
  workers: 1,
  retries: 0,
  forbidOnly: true,
  timeout: 45_000,
  expect: { timeout: 15_000 },
  reporter: [["list"]],
  use: {
    browserName: "chromium",
    launchOptions: { executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] },
    viewport: { width: 1440, height: 900 },
    screenshot: "only-on-failure",
  },
});
