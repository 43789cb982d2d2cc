import { QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import { vi } from "vitest";
import { App } from "../app/App";
import { makeQueryClient } from "../app/queryClient";
import { FakeEventSource } from "./FakeEventSource";
import { FakePlot } from "./FakePlot";

/** The whole page at an address, with a client cache of its own. */
export function renderAt(path: string) {
  FakeEventSource.made = [];
  FakePlot.made = [];
  vi.stubGlobal("EventSource", FakeEventSource);
  window.history.replaceState(null, "", path);
  const client = makeQueryClient();
  const shown = render(
    <QueryClientProvider client={client}>
      <App />
    </QueryClientProvider>,
  );
  return { ...shown, client };
}
