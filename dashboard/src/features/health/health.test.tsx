import { act, screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { MINUTE } from "../../shared/time";
import { HEALTH, mockApi, ok } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const strip = () => screen.getByRole("region", { name: "Health" });

describe("the health strip", () => {
  it("names gateway, queue, collector and store and when it last looked", async () => {
    mockApi();
    renderAt("/");
    await waitFor(() => expect(strip().textContent).toContain("just now"));
    for (const part of ["Gateway", "Queue", "Collector", "Store"]) expect(strip().textContent).toContain(part);
    expect(strip().querySelectorAll('[data-status="healthy"]')).toHaveLength(4);
  });

  it("says why a part is not well and since when", async () => {
    const collector = { status: "degraded", reason: "no space left on device", since: "2026-11-19T08:30:00Z" };
    mockApi({ "/health": { status: 503, body: { ...HEALTH, status: "degraded", collector } } });
    renderAt("/");
    await waitFor(() => expect(strip().textContent).toMatch(/Collectordegraded since 2026-11-19 .* no space left on device/));
    expect(strip().querySelectorAll('[data-status="healthy"]')).toHaveLength(3);
  });

  it.each([
    ["all collectors and the queue", "unhealthy", "unhealthy", true, 1],
    ["a queue that lives", "unhealthy", "healthy", true, 0],
    ["a collector that lives", "degraded", "unhealthy", true, 0],
    ["a gateway that reaches none of them", "degraded", "degraded", false, 1],
  ])("says once what it means that they are dead: %s", async (_name, collector, queue, reached, notices) => {
    const part = (status: string) => ({ status, reason: "connection refused", since: "2026-11-19T08:30:00Z" });
    const named = (status: string) => [{ ...part(status), name: "a", reached }];
    const health = { ...HEALTH, status: "unhealthy", collector: part(collector), collectors: named(collector), queue: part(queue), queues: named(queue) };
    const hosts = [{ hostname: "node-1", gpu_count: 8, models: [], vendors: [], states: {}, simulated: false, last_seen: "2026-11-19T08:29:26Z" }];
    mockApi({ "/health": { status: 503, body: health }, "/api/v1/hosts": ok({ hosts, total: 1, pagination: { limit: 1000, offset: 0, has_next: false } }) });
    renderAt("/about");
    await waitFor(() => expect(strip().querySelectorAll(`[data-status="${collector}"]`)).not.toHaveLength(0));
    await waitFor(() => expect(screen.queryAllByTestId("standstill")).toHaveLength(notices));
    if (notices > 0) await waitFor(() => expect(screen.getByTestId("standstill").textContent).toMatch(/nothing new arrives\. Everything below is as of 2026-11-19 \d\d:\d\d:26 \(/));
    expect(strip().textContent.includes(" · connection refused")).toBe(notices === 0);
  });

  it("says nothing of parts it cannot see", async () => {
    mockApi({ "/health": "unreachable" });
    renderAt("/");
    await waitFor(() => expect(strip().textContent).toContain("Gatewayunreachable"));
    expect(strip().textContent).toContain("Queueunknown");
  });
});

describe("statistics", () => {
  it("load, then show figures now and charts of the last minutes", async () => {
    const mock = mockApi();
    const { client } = renderAt("/statistics");
    expect(screen.getByRole("status", { name: "Loading statistics" })).toBeTruthy();
    expect(await screen.findByText("1,197")).toBeTruthy();
    expect(screen.getByText("87.5%")).toBeTruthy();
    expect(screen.getAllByText("1 h 1 min")).toHaveLength(2);
    expect(screen.getByText("Memory").parentElement?.textContent).toContain("80 MiB");
    expect(screen.getByText(/The charts begin with the next reading/)).toBeTruthy();
    expect(screen.getByRole("figure", { name: "Lag per group, in messages: 1 values" })).toBeTruthy();
    expect(screen.queryByRole("figure", { name: /^Rows stored/ })).toBeNull();
    mock.set("/stats", ok({ topics: {}, total_processed: 5000, uptime_seconds: 3710, gateway: { cache_hit_rate: null, requests: 70, uptime_seconds: 3710 }, collectors: { "this process": { total_processed: 2000 } } }));
    await act(() => client.refetchQueries());
    expect(await screen.findByRole("figure", { name: "Rows stored a second: 1 values" })).toBeTruthy();
    // What was there before stays in the charts.
    expect(screen.getByRole("figure", { name: "Lag per group, in messages: 1 values" })).toBeTruthy();
  });

  it("are read from the start, also while another page is open", async () => {
    vi.useFakeTimers({ shouldAdvanceTime: true });
    onTestFinished(() => void vi.useRealTimers());
    const mock = mockApi();
    renderAt("/about");
    const readings = () => mock.asked.filter(({ path }) => path === "/metrics").length;
    await waitFor(() => expect(readings()).toBe(1));
    await act(() => vi.advanceTimersByTimeAsync(MINUTE));
    expect(readings()).toBe(3);
    await userEvent.setup({ advanceTimers: vi.advanceTimersByTime }).keyboard("s");
    expect(screen.getByRole("figure", { name: "Lag per group, in messages: 3 values" })).toBeTruthy();
  });

  it("show no number of a queue that runs elsewhere", async () => {
    const elsewhere = { topics: null, total_processed: null, uptime_seconds: null };
    mockApi({ "/stats": ok({ ...elsewhere, gateway: { cache_hit_rate: 0.875, requests: 64, uptime_seconds: 3700 }, collectors: {} }) });
    renderAt("/statistics");
    expect((await screen.findByText("Messages processed")).parentElement?.textContent).toContain("–");
    expect(screen.getByText("Queue uptime").parentElement?.textContent).toContain("–");
    expect(screen.getByText("Processed per second").parentElement?.textContent).toContain("–");
  });

  it("say what could not be read, and that they are old", async () => {
    const denied = { status: 401, body: { error: "unauthorized", message: "a token is needed", code: "unauthorized" } };
    const mock = mockApi({ "/metrics": denied });
    const { client } = renderAt("/statistics");
    expect((await screen.findByRole("alert")).textContent).toContain("Latencies: a token is needed");
    mock.goDown(true);
    await act(() => client.refetchQueries());
    await waitFor(() => expect(screen.getByTestId("statistics").textContent).toContain("Not renewed for"));
    expect(screen.getByText("1,197")).toBeTruthy();
  });

  it("show why they could not be read", async () => {
    mockApi({ "/stats": { status: 500, body: { error: "internal", message: "queue is closed", code: "unavailable" } } });
    renderAt("/statistics");
    expect((await screen.findByRole("alert")).textContent).toContain("queue is closed");
  });
});
