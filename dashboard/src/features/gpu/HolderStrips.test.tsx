import { screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { gpu, listOf, metric, mockApi, ok, type Handler } from "../../testing/mockApi";
import { renderAt } from "../../testing/render";
import { holderLines } from "./HolderStrips";

const FROM = Date.parse("2026-11-20T15:00:00Z");
const times = [0, 1, 2, 3].map((minute) => FROM + minute * 60_000);
const labels = (id: string, part: Record<string, string | null> = {}) => ({ gpu: id, namespace: null, pod: null, job: null, ...part });

it("names who had a GPU from one step to another, nobody, and several at once", () => {
  const lines = [
    { labels: labels("a", { namespace: "research", job: "7" }), values: [1, 1, null, null] },
    { labels: labels("a", { namespace: "team", pod: "p" }), values: [null, 1, null, null] },
    { labels: labels("a"), values: [null, null, 1, null] },
    { labels: labels("b", { job: "8" }), values: [1, 1, 1, 1] },
  ];
  const [a, b, c] = holderLines({ times, stepMs: 60_000, lines }, ["a", "b", "c"].map((id) => ({ id, name: id })), false);
  expect(a?.stretches.map(({ what }) => what)).toEqual(["research / 7", "research / 7, team / p", "nobody"]);
  expect(b?.stretches).toEqual([{ start: FROM, end: FROM + 240_000, what: "8" }]);
  expect(c?.stretches).toEqual([]);
  expect(b?.path).toBe("/gpus/b");
});

it("stands on the page of a host, a strip for each GPU", async () => {
  const query: Handler = (params) => {
    const line = (id: string, of: Record<string, string | null>, values: (number | null)[]) => ({ metric: params.get("metrics"), unit: "%", aggregate: "mean", group: "", labels: labels(id, of), gpu: id, hostname: "node-1", values });
    const series = params.get("group_by") === "gpu,namespace,pod,job" ? [line("g0", { namespace: "research", job: "7" }, [1, 1, null, null]), line("g0", {}, [null, null, 0, 0]), line("g1", { job: "8" }, [1, 1, 1, 1])] : [];
    return ok({ times, series, step_ms: 60_000 });
  };
  const own = (index: number) => gpu({ id: `g${index}`, name: `node-1 / GPU ${index}`, index });
  mockApi({ "/api/v1/gpus": listOf([own(0), own(1)]), "/api/v1/metrics": ok({ metrics: [metric("utilization_pct", "%", "utilization")] }), "/api/v1/query": query });
  renderAt("/hosts/node-1?from=2026-11-20T15:00:00Z&to=2026-11-20T15:04:00Z");
  const strips = within(await screen.findByRole("region", { name: "Who had the GPUs" }));
  expect(strips.getAllByRole("img").map((strip) => [...strip.children].map((part) => part.getAttribute("data-what")))).toEqual([["research / 7", "nobody"], ["8"]]);
  expect(strips.getByRole("link", { name: "GPU 1" }).getAttribute("href")).toBe("/gpus/g1");
  expect(within(strips.getByRole("list", { name: "Legend" })).getAllByRole("listitem").map((item) => item.textContent)).toEqual(["research / 7", "8", "nobody"]);
});
