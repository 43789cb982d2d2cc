import { describe, expect, it } from "vitest";
import { finding } from "../../testing/mockApi";
import { DAY, formatClock, formatDay, HOUR } from "../../shared/time";
import { endOf, silencedBy, silencedWords } from "./silenced";

const now = Date.parse("2026-11-20T16:00:00Z");
const { reach } = finding();

describe("what can be silenced", () => {
  it.each([
    ["a GPU's finding, its host and job", finding(), ["finding xid:GPU-a", "host node-1", "job /research/train-7"]],
    ["with the cluster", finding({ reach: { ...reach, cluster: "a", job: null } }), ["finding xid:GPU-a", "host a/node-1", "job a/research/train-7-0"]],
    ["a node's finding", finding({ subject: { type: "node", id: "a/n2", name: "a/n2" }, reach: { ...reach, hostname: null, job: null, pod: null } }), ["finding xid:GPU-a", "host a/n2"]],
    ["that of several hosts in a cluster", finding({ reach: { ...reach, cluster: "a", hostname: null, job: null, pod: null } }), ["finding xid:GPU-a"]],
  ])("is %s", (_, of, expected) => {
    expect(silencedBy(of).map(({ type, id }) => `${type} ${id}`)).toEqual(expected);
  });

  it("is called by its name", () => {
    expect(silencedWords({ type: "job", id: "/research/train-7" })).toBe("job research/train-7");
    expect(silencedWords({ type: "host", id: "a/node-1" })).toBe("host a/node-1");
  });
});

describe("when a silence ends", () => {
  it("is never, in so many hours, or at an instant", () => {
    expect(endOf("closes", "", now)).toBeNull();
    expect(endOf("1h", "", now)).toBe(now + HOUR);
    expect(endOf("8h", "", now)).toBe(now + 8 * HOUR);
    const tomorrow = endOf("tomorrow", "", now) ?? 0;
    expect([formatDay(tomorrow), formatClock(tomorrow)]).toEqual([formatDay(now + DAY), "09:00:00"]);
    const typed = endOf("typed", "2026-11-21T23:30", now) ?? 0;
    expect([formatDay(typed), formatClock(typed)]).toEqual(["2026-11-21", "23:30:00"]);
    expect(endOf("typed", "", now)).toBeNaN();
  });
});
