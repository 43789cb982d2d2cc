import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, it } from "vitest";
import { gpu, listOf, mockApi } from "../testing/mockApi";
import { renderAt } from "../testing/render";

const here = () => window.location.pathname + window.location.search;

it.each(["/", "/queue", "/statistics", "/gpus/GPU-a", "/nowhere"])("from %s a name leads to the GPUs that have it", async (path) => {
  const mock = mockApi({ "/api/v1/gpus": listOf([gpu()]) });
  renderAt(path);
  await userEvent.keyboard("/");
  const field = screen.getByRole<HTMLInputElement>("searchbox", { name: "Search GPUs" });
  expect(document.activeElement).toBe(field);
  await userEvent.keyboard("node-1 / GPU 6");
  expect(here(), "typing leaves no page").toBe(path);
  await userEvent.keyboard("{Enter}");
  expect(here()).toBe("/gpus?search=node-1+%2F+GPU+6");
  await waitFor(() => expect(mock.asked.some(({ params }) => params.get("search") === "node-1 / GPU 6")).toBe(true));
  expect(screen.getByRole<HTMLInputElement>("searchbox", { name: "Search GPUs" }).value).toBe("node-1 / GPU 6");
});

it("where there is no room a button opens the field, and what is searched for is always seen", async () => {
  mockApi({ "/api/v1/gpus": listOf([gpu()]) });
  renderAt("/about");
  const box = () => screen.getByRole("search", { name: "Of all GPUs" });
  const button = screen.getByRole("button", { name: "Search" });
  expect([button.getAttribute("aria-expanded"), box().classList.contains("hidden")]).toEqual(["false", true]);
  await userEvent.click(button);
  expect([button.getAttribute("aria-expanded"), box().classList.contains("hidden")]).toEqual(["true", false]);
  await userEvent.keyboard("{Escape}");
  expect([button.getAttribute("aria-expanded"), box().classList.contains("hidden")]).toEqual(["false", true]);
  await userEvent.keyboard("/");
  expect(box().classList.contains("hidden")).toBe(false);
  await userEvent.keyboard("h100{Enter}");
  expect(box().classList.contains("hidden")).toBe(false);
  await userEvent.click(await screen.findByTitle(/^Only GPUs that the search above finds/));
  expect(here()).toBe("/gpus");
  await waitFor(() => expect(box().classList.contains("hidden")).toBe(true));
});
