import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { mockApi, ok } from "../testing/mockApi";
import { renderAt } from "../testing/render";

/** A server that has never received a row. */
const pagination = { limit: 10_000, offset: 0, has_next: false };
const energy = { group: null, energy_kwh: null, counted_kwh: null, source: null, gpu_hours: null, busy_gpu_hours: null, throttled_gpu_hours: null, gpus: 0 };
const idle = { group: null, held_gpu_hours: null, idle_gpu_hours: null, idle_energy_kwh: null, idle_cost: null, gpus: 0 };
const EMPTY = {
  "/api/v1/hosts": ok({ hosts: [], total: 0, pagination }),
  "/api/v1/analysis/energy": ok({ groups: [], whole: energy, start: "", end: "", total: 0, pagination }),
  "/api/v1/analysis/idle": ok({ groups: [], whole: idle, start: "", end: "", total: 0, pagination }),
};

it.each([
  ["Now", "/", ["No GPUs yet", "They appear here with their first sample."]],
  ["GPUs", "/gpus", ["No GPUs yet", /^The store is empty\./]],
  ["the heat map", "/gpus?view=map", ["No GPUs yet", /^The store is empty\./]],
  ["Hosts", "/hosts", ["No host has reported a GPU yet"]],
  ["Jobs by namespace", "/jobs", ["No values in this range", "No GPU reported anything in this time."]],
  ["Jobs", "/jobs?by=job", ["No values in this range", "No job with several GPUs runs now."]],
  ["a comparison", "/compare", ["No GPUs to compare"]],
] as const)("%s says that there are no GPUs", async (_name, path, sentences) => {
  mockApi(EMPTY);
  renderAt(path);
  for (const sentence of sentences) expect(await screen.findByText(sentence)).toBeTruthy();
  expect(screen.queryByRole("alert")).toBeNull();
});
