import { expect, it } from "vitest";
import { MINUTE } from "../../shared/time";
import { gpu, listOf, mockApi, ok, type Handler } from "../../testing/mockApi";
import { fetchCourses, type CoursesAsk, type Whose } from "./together";

const QUERY = "/api/v1/query";
const AT = 1_800_000_000_000;
const host = (name: string): Whose => ({ of: "host", host: name });
const job = (name: string, namespace: string | null): Whose => ({ of: "job", job: name, namespace });
const asked = (whose: Whose, from = 0, part: Partial<CoursesAsk> = {}): CoursesAsk => ({ metrics: ["power_w"], whose, stepMs: MINUTE, span: { start: AT + from * MINUTE, end: AT + (from + 4) * MINUTE }, ...part });

/** As the server answers: whole steps of the span, each series with its place in it. */
const server =
  (series: readonly object[]): Handler =>
  (params) => {
    const [start, end] = [Date.parse(params.get("start") ?? ""), Date.parse(params.get("end") ?? "")];
    const times = Array.from({ length: (end - start) / MINUTE + 1 }, (_, place) => start + place * MINUTE);
    return ok({ times, step_ms: MINUTE, series: series.map((one) => ({ metric: "power_w", values: times.map((time) => (time - AT) / MINUTE), ...one })) });
  };
const told = async (asks: readonly CoursesAsk[]) => (await Promise.all(asks.map((ask) => fetchCourses(ask)))).map(({ series }) => series.map(({ gpu, values }) => [gpu, values]));

it("asks once for the hosts of all, and each has its own GPUs in its own span", async () => {
  const mock = mockApi({ [QUERY]: server([{ gpu: "a", hostname: "node-1" }, { gpu: "b", hostname: "node-2" }, { gpu: "c", hostname: "node-2" }]) });
  expect(await told([asked(host("node-1")), asked(host("node-2"), 2), asked(host("node-1"), 1)])).toEqual([
    [["a", [0, 1, 2, 3, 4]]],
    [["b", [2, 3, 4, 5, 6]], ["c", [2, 3, 4, 5, 6]]],
    [["a", [1, 2, 3, 4, 5]]],
  ]);
  expect(mock.asked.map(({ params }) => [params.get("hosts"), params.get("start"), params.get("end")])).toEqual([["node-1,node-2", new Date(AT).toISOString(), new Date(AT + 6 * MINUTE).toISOString()]]);
});

it("tells jobs of one name apart by their namespaces, and names their GPUs: the server need not look at others", async () => {
  const labels = (name: string, namespace: string | null) => ({ job: name, namespace });
  const held = [{ id: "a", labels: labels("train", "x") }, { id: "b", labels: labels("train", "y") }, { id: "c", labels: labels("eval", null) }];
  const mock = mockApi({ "/api/v1/gpus": listOf(held.map(gpu)), [QUERY]: server(held.map((one) => ({ gpu: one.id, labels: one.labels }))) });
  const values = [0, 1, 2, 3, 4];
  expect(await told([asked(job("train", "y")), asked(job("eval", null))])).toEqual([[["b", values]], [["c", values]]]);
  const where = "job=train,eval";
  expect(mock.asked.map(({ path, params }) => [path, params.get("where"), params.get("gpus"), params.get("group_by")])).toEqual([
    ["/api/v1/gpus", where, null, null],
    [QUERY, where, "b,c", "gpu,namespace,job"],
  ]);
});

it("has no GPU that was not read in the span", async () => {
  mockApi({ [QUERY]: server([{ gpu: "a", hostname: "node-1" }, { gpu: "b", hostname: "node-1", values: [5, null, null, null, null, null, null] }]) });
  expect(await told([asked(host("node-1")), asked(host("node-1"), 2)])).toEqual([[["a", [0, 1, 2, 3, 4]], ["b", [5, null, null, null, null]]], [["a", [2, 3, 4, 5, 6]]]]);
});

it("asks apart for other metrics, steps and owners, for what is hours apart, and for more than an answer has room for", async () => {
  const mock = mockApi({ [QUERY]: server([]) });
  await told([
    asked(host("node-1")),
    asked(host("node-2"), 0, { metrics: ["temperature_c"] }),
    asked(host("node-3"), 0, { stepMs: MINUTE / 2 }),
    asked({ of: "gpus", gpus: ["a"] }),
    asked(host("node-4"), 600),
  ]);
  expect(mock.asked).toHaveLength(5);
  await told(Array.from({ length: 20 }, (_, place) => asked(host(`node-${place}`))));
  expect(mock.asked.slice(5).map(({ params }) => params.get("hosts")?.split(",").length)).toEqual([16, 4]);
});

it("leaves the others their pictures where one names what is not known", async () => {
  const gone = { status: 404, body: { error: "not found", message: "no host gone", code: "unknown_host" } };
  const known = server([{ gpu: "a", hostname: "node-1" }]);
  mockApi({ [QUERY]: (params) => (params.get("hosts")?.includes("gone") === true ? gone : typeof known === "function" ? known(params) : known) });
  const [first, second] = await Promise.allSettled([asked(host("node-1")), asked(host("gone"))].map((ask) => fetchCourses(ask)));
  expect([first?.status === "fulfilled" && first.value.series.length, second?.status]).toEqual([1, "rejected"]);
});

it("asks no more where the server is too busy", async () => {
  const mock = mockApi({ [QUERY]: { status: 503, body: { error: "unavailable", message: "too busy", code: "busy" } } });
  const answers = await Promise.allSettled([asked(host("node-1")), asked(host("node-2"))].map((ask) => fetchCourses(ask)));
  expect([answers.map(({ status }) => status), mock.asked.length]).toEqual([["rejected", "rejected"], 1]);
});
