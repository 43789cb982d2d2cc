import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { mockApi } from "../testing/mockApi";
import { renderAt } from "../testing/render";
import { PageOf } from "./PageOf";
import { PAGES, type Page } from "./pages";
import { makeQueryClient } from "./queryClient";

function show(load: Page["load"]) {
  render(
    <QueryClientProvider client={makeQueryClient()}>
      <PageOf route={{ page: { path: "/late/:id", unread: () => [], title: "Late", load }, named: { id: "a" } }} />
    </QueryClientProvider>,
  );
}

it("a page is waited for until its code is there, and is given what its path names", async () => {
  show(() => Promise.resolve((named: unknown) => <p>{JSON.stringify(named)}</p>));
  expect(screen.getByRole("status", { name: "Loading the page" })).toBeTruthy();
  expect(await screen.findByText('{"id":"a"}')).toBeTruthy();
});

it("code that does not come is said", async () => {
  show(() => Promise.reject(new Error("Failed to fetch dynamically imported module")));
  expect((await screen.findByRole("alert")).textContent).toContain("This page could not be readFailed to fetch");
});

it("an unknown address is named, and the pages are offered", () => {
  mockApi({});
  renderAt("/gpuz");
  const main = within(screen.getByRole("main"));
  expect(main.getByText("/gpuz")).toBeTruthy();
  expect(main.getAllByRole("link").map((link) => link.getAttribute("href"))).toEqual(PAGES.filter(({ tab }) => tab !== undefined).map(({ path }) => path));
});
