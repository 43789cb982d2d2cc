import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, it } from "vitest";
import { finding, findingsOf, gpu, listOf, mockApi } from "../testing/mockApi";
import { renderAt } from "../testing/render";

const notice = () => screen.findByRole("list", { name: "Not understood in the address" });

it.each([
  ["/gpus?state=x", "state=x is not understood and changes nothing. Known are: critical, lost, unhealthy, warning, notice, unconfirmed, stale, unknown, active, idle."],
  ["/?severity=x", "severity=x is not understood and changes nothing. Known are: critical, warning, notice."],
  ["/hosts?state=critical", "state=critical is not understood and changes nothing. This page knows the parameters: search, sort, page."],
  ["/gpus/GPU-a?range=3y", "range=3y is not understood and changes nothing. Known are: range 5m,"],
  ["/gpus?sort=-x", "sort=-x is not understood and changes nothing. Known are: model, hostname, index, judgement,"],
  ["/gpus?view=map&colour=x", "colour=x is not understood and changes nothing. Known are: state, and the columns that Colour offers."],
  ["/about?a=b", "a=b is not understood and changes nothing. This page has no parameters."],
])("%s is said, with what is known", async (path, words) => {
  mockApi({ "/api/v1/gpus": listOf([gpu()]) });
  renderAt(path);
  expect((await notice()).textContent).toContain(words);
});

it("a wrong filter stays beside others, and is taken away alone", async () => {
  const mock = mockApi({ "/api/v1/gpus": listOf([gpu()]), "/api/v1/analysis/findings": findingsOf([finding()]) });
  renderAt("/?severity=x&at=2026-11-20T03:10:00Z");
  await userEvent.selectOptions(await screen.findByRole("combobox", { name: "Kind" }), "xid");
  const said = () => Object.fromEntries(new URLSearchParams(window.location.search));
  expect(said()).toEqual({ kind: "xid", severity: "x", at: "2026-11-20T03:10:00Z" });
  await userEvent.click(within(await notice()).getByRole("button", { name: "Without severity" }));
  await waitFor(() => expect(said()).toEqual({ kind: "xid", at: "2026-11-20T03:10:00Z" }));
  expect(screen.queryByRole("list", { name: "Not understood in the address" })).toBeNull();
  expect(mock.asked.some(({ params }) => params.get("severity") === "x")).toBe(false);
});
