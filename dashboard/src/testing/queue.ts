import type { DeadLetter, GroupStats, TopicStats } from "../api/queue";

export function group(part: Partial<GroupStats> = {}): GroupStats {
  return { members: 1, lag: 0, in_flight: 0, waiting: 0, redelivered: 0, acked: 0, ...part };
}

export function topic(part: Partial<TopicStats> = {}): TopicStats {
  return {
    messages: 0,
    subscribers: 1,
    throughput_msg_per_sec: 0,
    acked_msg_per_sec: 0,
    bytes: 0,
    frames: 0,
    published: 0,
    acked: 0,
    redelivered: 0,
    dead: 0,
    dropped: 0,
    refused: 0,
    duplicates: 0,
    dead_letters: 0,
    dead_dropped: 0,
    groups: {},
    ...part,
  };
}

export function letter(part: Partial<DeadLetter> = {}): DeadLetter {
  return {
    id: 0,
    group: "collector",
    offset: 4,
    reason: "rejected by consumer: no such column",
    attempts: 1,
    published_at: "2026-11-20T10:00:00Z",
    died_at: "2026-11-20T10:00:01Z",
    content_type: "batch",
    encoding: "identity",
    messages_count: 256,
    payload_bytes: 4096,
    ...part,
  };
}
