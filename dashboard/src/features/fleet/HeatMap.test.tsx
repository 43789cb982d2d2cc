import { fireEvent, screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { gpu, listOf, metric, mockApi, ok } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";

const LIST = "/api/v1/gpus";
const fleet = listOf([
  gpu({ id: "GPU-a", name: "node-1 / GPU 0", metrics: { power_w: 0 } }),
  gpu({ id: "GPU-b", name: "node-1 / GPU 1", index: 1, state: "unhealthy", state_reason: "XID 79", metrics: { power_w: 512.25 } }),
  gpu({ id: "GPU-c", name: "node-2 / GPU 0", hostname: "node-2", metrics: {} }),
]);

/** A box of a test has no size: this one is 800 px wide. */
beforeEach(() => {
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(800);
});

async function openMap(path: string, handlers = {}) {
  const mock = mockApi({ [LIST]: fleet, ...handlers });
  renderAt(path);
  const canvas = await screen.findByTestId("heatmap");
  await waitFor(() => expect(canvas.getAttribute("data-cells")).toBe("3"));
  canvas.focus();
  return { mock, canvas };
}

const wholeAsks = (mock: ReturnType<typeof mockApi>) => mock.asked.filter(({ path, params }) => path === LIST && params.get("limit") === "10000");

describe("the heat map", () => {
  it("asks for all GPUs with nothing but what it shows, not for the list", async () => {
    const { mock } = await openMap("/gpus?view=map&colour=power_w&group=job&search=node&where=vendor%3Dnvidia");
    expect(Object.fromEntries(wholeAsks(mock)[0]?.params ?? [])).toEqual({ limit: "10000", metrics: "power_w", labels: "job", search: "node", where: "vendor=nvidia" });
    expect(mock.asked.some(({ params }) => params.get("include") === "metrics")).toBe(false);
  });

  it("reaches to the limit of each part unless it shall fit, and shows the change since an hour ago; the address has both", async () => {
    const heat = metric("temperature_c", "°C", "temperature");
    const limit = metric("temperature_slowdown_c", "°C", "temperature");
    const labels = { sensor: "gpu" };
    const catalogue = ok({ metrics: [{ ...heat, prometheus: { ...heat.prometheus, labels } }, { ...limit, prometheus: { ...limit.prometheus, labels: { ...labels, limit: "slowdown" } } }] });
    const gpus = listOf([gpu({ id: "GPU-a", metrics: { temperature_c: 61, temperature_slowdown_c: 89 } }), gpu({ id: "GPU-b", metrics: { temperature_c: 70 } }), gpu({ id: "GPU-c", metrics: {} })]);
    const series = [{ metric: "temperature_c", gpu: "GPU-a", hostname: "node-1", unit: "°C", values: [51] }];
    const { mock } = await openMap("/gpus?view=map&colour=temperature_c", { [LIST]: gpus, "/api/v1/metrics": catalogue, "/api/v1/query": ok({ times: [0], step_ms: 300_000, series }) });
    const legend = () => screen.getByTestId("legend").textContent;
    await waitFor(() => expect(legend()).toBe("20 °Cto89 °C1not read"));
    expect(wholeAsks(mock).filter(({ params }) => params.get("metrics") === "temperature_slowdown_c")).toHaveLength(1);
    await userEvent.click(screen.getByRole("button", { name: "Fit" }));
    expect(window.location.search).toBe("?view=map&colour=temperature_c&fit=1");
    expect(legend()).toBe("61 °Cto70 °C1not read");
    await userEvent.click(screen.getByRole("button", { name: "Since an hour ago" }));
    await waitFor(() => expect(legend()).toBe("-10 °Cto+10 °C2not known"));
    const asked = mock.asked.find(({ path }) => path === "/api/v1/query")?.params;
    const back = Date.now() - Date.parse(asked?.get("start") ?? "");
    expect([asked?.has("gpus"), back > 3_600_000, back < 3_600_000 + 11 * 60_000]).toEqual([false, true, true]);
    screen.getByTestId("heatmap").focus();
    await userEvent.keyboard("{ArrowRight}");
    expect(await screen.findByText(/Temperature 61 °C, \+10 °C in an hour/)).toBeTruthy();
  });

  it("shows how the GPUs do where the catalogue does not have the colour of the address", async () => {
    const refused = { status: 400, body: { error: "bad request", message: 'metrics is "x"', code: "bad_parameter" } };
    await openMap("/gpus?view=map&colour=x", { [LIST]: (params: URLSearchParams) => (params.get("metrics") === "x" ? refused : fleet) });
    expect(screen.getByRole<HTMLSelectElement>("combobox", { name: "Colour" }).value).toBe("state");
  });

  it("says in words what its colours say", async () => {
    await openMap("/gpus?view=map&colour=power_w");
    await waitFor(() => expect(screen.getByTestId("legend").textContent).toBe("0 Wto550 W1not read"));
    expect(screen.getByTestId("summary").textContent).toMatch(/^Power from 0 W \(node-1 \/ GPU 0\) to 512 W \(node-1 \/ GPU 1\), median 512 W, not read of 1\. The same GPUs as a list$/);
  });

  it("is coloured by any metric of the catalogue, by how the GPUs do, and grouped; the address has it", async () => {
    const host = { ...metric("load_1m", "", "host"), table: "system_events" };
    const { mock } = await openMap("/gpus?view=map", { "/api/v1/metrics": ok({ metrics: [metric("power_w", "W", "power"), metric("fan_speed_pct", "%", "board"), host] }) });
    const colour = screen.getByRole("combobox", { name: "Colour" });
    await waitFor(() => expect([...colour.querySelectorAll("option")].map((option) => option.textContent)).toEqual(["State", "Power (W)", "Fan speed (%)"]));
    expect(screen.getByTestId("legend").textContent).toMatch(/1unhealthy.*2active/);
    await userEvent.selectOptions(colour, "fan_speed_pct");
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Group by" }), "namespace");
    expect(window.location.search).toBe("?view=map&colour=fan_speed_pct&group=namespace");
    await waitFor(() => expect(wholeAsks(mock).at(-1)?.params.get("labels")).toBe("namespace"));
    await waitFor(() => expect(screen.getByTestId("summary").textContent).toContain("Fan speed: not read of any GPU"));
  });

  it("says how racks become known where none is", async () => {
    const { mock } = await openMap("/gpus?view=map&group=rack");
    expect((await screen.findByRole("note", { name: "About racks" })).textContent).toContain("api.rack_pattern");
    expect(wholeAsks(mock)[0]?.params.get("labels")).toBe("rack");
  });

  it("is walked by keys, which say what is there; Enter opens, Space picks to compare", async () => {
    await openMap("/gpus?view=map");
    await userEvent.keyboard("{ArrowRight}{ArrowRight}");
    expect(await screen.findByText("node-1 / GPU 1: unhealthy, XID 79")).toBeTruthy();
    await userEvent.keyboard(" {ArrowRight} ");
    expect(window.location.search).toBe("?view=map&picked=GPU-b%2CGPU-c");
    expect(screen.getByRole("link", { name: "Compare 2 GPUs" }).getAttribute("href")).toBe("/compare?gpus=GPU-b%2CGPU-c");
    await userEvent.click(screen.getByRole("button", { name: "Unpick node-1 / GPU 1" }));
    expect(window.location.search).toBe("?view=map&picked=GPU-c");
    screen.getByTestId("heatmap").focus();
    await userEvent.keyboard("{Enter}");
    expect(window.location.pathname).toBe("/gpus/GPU-c");
  });

  it("shows a finger what is there, opens by mouse, picks by Shift and click", async () => {
    const { canvas } = await openMap("/gpus?view=map");
    // Below the name of its group, in the first cell.
    const at = { clientX: 5, clientY: 20, button: 0, pointerId: 1 };
    const tap = (pointerType: string, more = {}) => {
      fireEvent.pointerDown(canvas, { ...at, pointerType });
      fireEvent.pointerUp(canvas, { ...at, pointerType, ...more });
    };
    tap("touch");
    expect(screen.getByText("node-1 / GPU 0: active")).toBeTruthy();
    const open = screen.getByRole("link", { name: "Open" });
    expect(open.getAttribute("href")).toBe("/gpus/GPU-a");
    // Also on a tablet, whose screen is wide.
    expect(open.parentElement?.className).not.toContain("hidden");
    await userEvent.click(screen.getByRole("button", { name: "Pick" }));
    expect(window.location.search).toContain("picked=GPU-a");
    await userEvent.click(screen.getByRole("button", { name: "Clear" }));
    tap("mouse", { shiftKey: true });
    expect(window.location.search).toContain("picked=GPU-a");
    tap("mouse");
    expect(window.location.pathname).toBe("/gpus/GPU-a");
  });

  it("takes filters like the list, and says when none fits", async () => {
    mockApi({ [LIST]: listOf([]) });
    renderAt("/gpus?view=map&colour=power_w&where=namespace%3Dresearch");
    expect(await screen.findByText("No GPU fits these filters")).toBeTruthy();
    expect(screen.getByRole("button", { name: "namespace research ×" })).toBeTruthy();
    await userEvent.click(screen.getByRole("button", { name: "Show all GPUs" }));
    expect(window.location.search).toBe("?view=map&colour=power_w");
  });

  it("says what part of a larger fleet it is, and that it is old", async () => {
    mockApi({ [LIST]: listOf([gpu()], 12_000) });
    renderAt("/gpus?view=map");
    expect(await screen.findByText(/^The first 1 of 12,000 GPUs by host/)).toBeTruthy();
  });
});
