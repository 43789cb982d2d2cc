import { QueryClientProvider } from "@tanstack/react-query";
import { act, render, screen, within } from "@testing-library/react";
import { Profiler } from "react";
import { afterEach, expect, it, vi } from "vitest";
import { makeQueryClient } from "../../app/queryClient";
import { nextZone } from "../../shared/zone";
import { FakeIntersectionObserver } from "../../testing/FakeIntersectionObserver";
import { finding, incident, mockApi } from "../../testing/mockApi";
import { FindingItem } from "./FindingItem";

afterEach(() => {
  vi.useRealTimers();
});

it("is drawn again when its words change, not with each second", () => {
  mockApi({ "/api/v1/metrics": "never" });
  // Its picture is another matter: it is not on the screen.
  FakeIntersectionObserver.isSeen = false;
  vi.useFakeTimers({ now: Date.parse("2026-11-20T12:00:10Z") });
  let commits = 0;
  const one = finding({ since: "2026-11-20T11:50:00Z" });
  const item = () => (
    <QueryClientProvider client={client}>
      <Profiler id="finding" onRender={() => (commits += 1)}>
        <ul>
          <FindingItem finding={one} index={6} />
        </ul>
      </Profiler>
    </QueryClientProvider>
  );
  const client = makeQueryClient();
  render(item());
  expect(screen.getByText(/^for/).textContent).toBe("for 10 min");
  const drawn = commits;
  act(() => void vi.advanceTimersByTime(30_000));
  expect(commits).toBe(drawn);
  act(() => void vi.advanceTimersByTime(20_000));
  expect(screen.getByText(/^for/).textContent).toBe("for 11 min");
  expect(commits).toBe(drawn + 1);
});

it("says its times in the zone that is chosen", () => {
  const before = process.env.TZ;
  process.env.TZ = "Asia/Tokyo";
  try {
    mockApi({ "/api/v1/metrics": "never" });
    const silenced = { type: "finding", id: "xid:GPU-a", note: "", at: "2026-11-20T11:55:00Z", until: "2026-11-20T20:00:00Z" } as const;
    const one = finding({ since: "2026-11-20T11:50:00Z", silenced });
    render(
      <QueryClientProvider client={makeQueryClient()}>
        <ul>
          <FindingItem finding={one} index={6} />
        </ul>
      </QueryClientProvider>,
    );
    expect(screen.getByText(/^Acknowledged/).textContent).toContain("05:00:00");
    act(nextZone);
    expect(screen.getByText(/^Acknowledged/).textContent).toContain("20:00:00");
    expect(screen.getByTitle(/11:50:00 \(2026/)).toBeTruthy();
  } finally {
    process.env.TZ = before;
  }
});

it("names the incidents that it caused, with the GPU that failed first and the command that fetches all of it", () => {
  mockApi({ "/api/v1/metrics": "never" });
  const one = finding({ incidents: [incident(), incident({ id: "20261120T100500Z-lost", first: null, nodes_asked: 1, nodes_had: 0 })] });
  render(
    <QueryClientProvider client={makeQueryClient()}>
      <ul>
        <FindingItem finding={one} index={6} names={new Map([["GPU-b", "node-2 / GPU 1"]])} />
      </ul>
    </QueryClientProvider>,
  );
  const list = within(screen.getByRole("list", { name: "Incidents" }));
  expect(list.getAllByRole("listitem").map(({ textContent }) => textContent)).toEqual([
    "Incident 20261120T100030Z-xid: rows of 2 of 3 nodes. First node-2 / GPU 1 on node-2: it gave no value after that; cannot tell which came first: how far the clocks of node-1 and node-2 are apart is not known. All of it: gpuvitals flight fetch 20261120T100030Z-xid",
    "Incident 20261120T100500Z-lost: rows of 0 of 1 node. All of it: gpuvitals flight fetch 20261120T100500Z-lost",
  ]);
  expect(list.getAllByRole("link").map((link) => link.getAttribute("href"))).toEqual([
    "/gpus/GPU-a?incident=20261120T100030Z-xid",
    "/gpus/GPU-b?incident=20261120T100030Z-xid",
    "/gpus/GPU-a?incident=20261120T100500Z-lost",
  ]);
});
