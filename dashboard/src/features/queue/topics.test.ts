import { describe, expect, it } from "vitest";
import type { DeadLetter } from "../../api/queue";
import { group, topic } from "../../testing/queue";
import { lossesOf, reasonsOf, topicsOf, verdictOf } from "./topics";

describe("topics", () => {
  it("have their dead letters beside them", () => {
    const topics = { b: topic({ dead_letters: 7 }), "b.dead": topic({ frames: 2, messages: 7 }), "lonely.dead": topic({}), a: topic({}) };
    expect(topicsOf({ topics, total_processed: 0, uptime_seconds: 1 }).map(({ name, letters, deadRows }) => [name, letters, deadRows])).toEqual([
      ["a", 0, 0],
      ["b", 2, 7],
      ["lonely.dead", 0, 0],
    ]);
  });

  it("say what they lost", () => {
    expect(lossesOf({ name: "t", stats: topic({}), letters: 0, deadRows: 0 })).toEqual([]);
    const losses = lossesOf({ name: "t", stats: topic({ refused: 1, dropped: 20 }), letters: 0, deadRows: 0 });
    expect(losses.map(({ mood, text }) => [mood, text.split(" ").slice(0, 3).join(" ")])).toEqual([
      ["warn", "1 row refused"],
      ["bad", "20 rows dropped"],
    ]);
  });
});

describe("a group", () => {
  it("keeps up, is late, or has nobody", () => {
    expect(verdictOf(group({ lag: 0 }))).toEqual({ mood: "good", text: "everything is acknowledged" });
    expect(verdictOf(group({ lag: 500, oldest_unacked_seconds: 1 }))).toEqual({ mood: "good", text: "keeps up" });
    expect(verdictOf(group({ lag: 500, oldest_unacked_seconds: 180 }))).toEqual({ mood: "warn", text: "500 rows behind; the oldest has waited 3 min" });
    expect(verdictOf(group({ lag: 1, waiting: 1, oldest_unacked_seconds: 2 }))).toEqual({ mood: "warn", text: "1 row failed and will be delivered again; the oldest has waited 2 s" });
    expect(verdictOf(group({ lag: 9, members: 0 }))).toEqual({ mood: "bad", text: "no consumer: 9 rows wait" });
  });
});

it("reasons are counted, that of most rows first", () => {
  const letter = (reason: string, messages_count: number) => ({ reason, messages_count }) as DeadLetter;
  expect(reasonsOf([letter("a", 1), letter("b", 5), letter("a", 2)])).toEqual([
    { reason: "b", letters: 1, rows: 5 },
    { reason: "a", letters: 2, rows: 3 },
  ]);
});
