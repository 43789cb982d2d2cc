import { act, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it, vi } from "vitest";
import { mockApi, ok, type Answer } from "../../testing/mockApi";
import { group, letter, topic } from "../../testing/queue";
import { renderAt } from "../../testing/render";
import { setToken } from "../../api/access";

const BASE = "/api/v1/queue";
const refused = (status: number, code: string, message: string): Answer => ({ status, body: { error: "no", message, code } });

function stats(part = {}) {
  const groups = { collector: group({ lag: 1200, in_flight: 200, oldest_unacked_seconds: 190 }), idle: group() };
  const topics = { telemetry: topic({ messages: 1200, bytes: 2048, throughput_msg_per_sec: 64, dead_letters: 300, groups, ...part }), "telemetry.dead": topic({ frames: 2, messages: 300 }) };
  return ok({ topics, total_processed: 5000, uptime_seconds: 3700 });
}

function withDead(handlers: Readonly<Record<string, Answer>> = {}) {
  // A dialog of the test's browser has no top layer, only its state.
  HTMLDialogElement.prototype.showModal = function showModal() {
    this.open = true;
  };
  const dead = [letter({ id: 3 }), letter({ id: 4, reason: "took too long", messages_count: 44 })];
  return mockApi({ [`${BASE}/stats`]: stats(), [`${BASE}/topics/telemetry/dead`]: ok({ dead }), ...handlers });
}

describe("the queue page", () => {
  it("shows topics with their groups, and why rows are late", async () => {
    mockApi({ [`${BASE}/stats`]: stats() });
    renderAt("/queue");
    expect(screen.getByRole("status", { name: "Loading the queue" })).toBeTruthy();
    const card = await screen.findByRole("region", { name: "Topic telemetry" });
    const row = within(card).getByRole("row", { name: /^collector/ });
    expect(row.textContent).toContain("1,200 rows behind; the oldest has waited 3 min");
    expect(within(card).getByRole("row", { name: /^idle/ }).textContent).toContain("everything is acknowledged");
    expect(card.textContent).toContain("2 dead letters with 300 rows could not be delivered.");
    expect(screen.queryByRole("region", { name: "Topic telemetry.dead" })).toBeNull();
  });

  it("looks at dead letters by row count and reason, and asks for no payload", async () => {
    const mock = withDead();
    renderAt("/queue?dead=telemetry");
    const reasons = await screen.findByRole("list", { name: "Reasons" });
    expect(reasons.textContent).toBe("256 rowsin 1 dead letter: rejected by consumer: no such column44 rowsin 1 dead letter: took too long");
    const asked = mock.asked.find(({ path }) => path.endsWith("/dead"));
    expect(asked?.params.get("content")).toBe("false");
    expect(screen.getByRole("group", { name: "Dead letters" }).textContent).toContain("binary rows, 4 KiB");
  });

  it("gives its groups and all of its dead letters as files, and no part of the letters", async () => {
    const mock = withDead();
    const { client } = renderAt("/queue?dead=telemetry");
    const shown = within(await screen.findByTestId("dead-letters"));
    expect(screen.getByTitle("As a file: Groups of telemetry")).toBeTruthy();
    expect(shown.getByTitle("As a file: Dead letters")).toBeTruthy();
    mock.set(`${BASE}/topics/telemetry/dead`, ok({ dead: [letter({ id: 3 })], next: 4 }));
    await act(() => client.refetchQueries());
    expect(await shown.findByRole("button", { name: /^Next/ })).toBeTruthy();
    expect(shown.queryByTitle("As a file: Dead letters")).toBeNull();
  });

  it("redrives all that are there, and says what became of them", async () => {
    const mock = withDead({ [`${BASE}/topics/telemetry/dead/replay`]: ok({ letters: 1, without_room: 1, unreadable: 0, left: 0 }) });
    renderAt("/queue?dead=telemetry");
    await userEvent.click(await screen.findByRole("button", { name: "Redrive all 300 rows" }));
    expect(await screen.findByText("Published 1 dead letter again; 1 dead letter had no room in the topic.")).toBeTruthy();
    const asked = mock.asked.find(({ path }) => path.endsWith("/replay"));
    expect(JSON.parse(asked?.body ?? "")).toEqual({ oldest: 2 });
  });

  it("purges only after it has said how many rows go, and no letter that dies meanwhile", async () => {
    const mock = withDead();
    renderAt("/queue?dead=telemetry");
    await userEvent.click(await screen.findByRole("button", { name: "Purge all…" }));
    const dialog = screen.getByRole("dialog", { name: "Purge 2 dead letters of telemetry?" });
    expect(dialog.textContent).toContain("300 rows in 2 dead letters will be gone for good");
    expect(mock.asked.some(({ method }) => method === "DELETE")).toBe(false);
    mock.set(`${BASE}/topics/telemetry/dead`, ok({ letters: 2, dead: [] }));
    await userEvent.click(within(dialog).getByRole("button", { name: "Purge 300 rows" }));
    expect(await screen.findByText("Purged 2 dead letters.")).toBeTruthy();
    const purged = mock.asked.find(({ method }) => method === "DELETE");
    expect(purged?.params.toString()).toBe("oldest=2");
    expect(screen.queryByRole("dialog", { name: /^Purge/ })).toBeNull();
  });

  it("asks for a token that may change the queue, and sends it in a header alone", async () => {
    const mock = withDead({ [`${BASE}/topics/telemetry/dead/replay`]: refused(403, "forbidden", "the token lacks the scope admin") });
    renderAt("/queue?dead=telemetry");
    await userEvent.click(await screen.findByRole("button", { name: "Redrive letter 4" }));
    const alert = await screen.findByRole("alert");
    expect(alert.textContent).toContain("the token lacks the scope admin");
    await userEvent.type(within(alert).getByLabelText("Token"), "gpv_secret");
    await userEvent.click(within(alert).getByRole("button", { name: "Use this token" }));
    mock.set(`${BASE}/topics/telemetry/dead/replay`, ok({ letters: 1, without_room: 0, unreadable: 0, left: 0 }));
    await userEvent.click(screen.getByRole("button", { name: "Redrive letter 4" }));
    expect(await screen.findByText("Published 1 dead letter again.")).toBeTruthy();
    const last = mock.asked.findLast(({ path }) => path.endsWith("/replay"));
    expect([JSON.parse(last?.body ?? ""), last?.authorization]).toEqual([{ ids: [4] }, "Bearer gpv_secret"]);
    expect(mock.asked.some(({ params }) => params.toString().includes("secret"))).toBe(false);
    expect(JSON.stringify(window.localStorage)).not.toContain("secret");
    setToken("");
  });

  it("says plainly that there is no broker, that it is away, and that it is empty", async () => {
    const mock = mockApi({ [`${BASE}/stats`]: refused(501, "no_broker", "the queue is nats://n:4222, NATS JetStream; gpuvitals queue looks into it") });
    const { client } = renderAt("/queue");
    expect(await screen.findByText("This queue cannot be shown here")).toBeTruthy();
    expect(screen.getByText(/NATS JetStream/)).toBeTruthy();
    mock.set(`${BASE}/stats`, refused(503, "unavailable", "the queue does not answer: connection refused"));
    await act(() => client.refetchQueries());
    expect(await screen.findByText("The queue could not be read")).toBeTruthy();
    // The gateway answers: it is not the API that is away.
    expect(screen.queryByText(/API unreachable/)).toBeNull();
    mock.set(`${BASE}/stats`, ok({ topics: {}, total_processed: 0, uptime_seconds: 3 }));
    await act(() => client.refetchQueries());
    expect(await screen.findByText("The queue has no topics yet")).toBeTruthy();
    mock.set(`${BASE}/stats`, "unreachable");
    await act(() => client.refetchQueries());
    await waitFor(() => expect(screen.getByRole("alert").textContent).toContain("The queue does not answer."));
    vi.unstubAllGlobals();
  });
});
