import { cleanup } from "@testing-library/react";
import { afterEach, beforeEach, vi } from "vitest";
import { answered } from "../api/reachability";
import { FakeIntersectionObserver } from "./FakeIntersectionObserver";

// Charts are drawn by uPlot on a canvas, which the test's browser lacks: tests see what the plot is told.
vi.mock("uplot", async () => ({ default: (await import("./FakePlot")).FakePlot }));

beforeEach(() => {
  FakeIntersectionObserver.isSeen = true;
  FakeIntersectionObserver.made = [];
  vi.stubGlobal("IntersectionObserver", FakeIntersectionObserver);
  window.history.replaceState(null, "", "/");
  window.localStorage.clear();
});

afterEach(() => {
  cleanup();
  answered();
});
