import { QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import { vi } from "vitest";
import { App } from "../app/App";
import { codeQuery } from "../app/PageOf";
import { PAGES } from "../app/pages";
import { makeQueryClient } from "../app/queryClient";
import { FakeEventSource } from "./FakeEventSource";
import { FakePlot } from "./FakePlot";

// The code of the pages is here before a test begins: how long it takes to come is no part of what is tested.
const codes = await Promise.all(PAGES.map(async (page) => ({ key: codeQuery(page).queryKey, code: { Shown: await page.load() } })));

/** The whole page at an address, with a client cache of its own. */
export function renderAt(path: string) {
  FakeEventSource.made = [];
  FakePlot.made = [];
  vi.stubGlobal("EventSource", FakeEventSource);
  window.history.replaceState(null, "", path);
  const client = makeQueryClient();
  for (const { key, code } of codes) client.setQueryData(key, code);
  const shown = render(
    <QueryClientProvider client={client}>
      <App />
    </QueryClientProvider>,
  );
  return { ...shown, client };
}
