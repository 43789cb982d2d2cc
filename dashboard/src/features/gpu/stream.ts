import { useEffect, useState } from "react";
import type { TelemetryEntry } from "../../api/client";
import type { Sample } from "../../charts/frame";
import { API_BASE_URL } from "../../shared/config";
import { useIsShown } from "../../shared/hidden";
import { MINUTE, parseInstant } from "../../shared/time";

/** `connecting` until the first answer; `polling` while the stream cannot be had and the page asks by itself. */
export type StreamStatus = "off" | "connecting" | "live" | "polling";

export interface Stream {
  readonly status: StreamStatus;
  readonly samples: readonly Sample[];
  /** What the server could not read of the fleet, in its words. */
  readonly partial: readonly string[];
}

/** Samples kept beside the history; it is renewed each minute, so at 10 samples a second this is enough. */
export const SAMPLES_MAX = 900;
const KEEP_MS = 5 * MINUTE;
const AGAIN_AFTER_MS = 15_000;
const OFF: Stream = { status: "off", samples: [], partial: [] };
const CONNECTING: Stream = { status: "connecting", samples: [], partial: [] };

/** The samples of one event. What is not a row of this GPU is left out; a broken event is no reason to lose the stream. */
export function parseSamples(data: string, gpu: string): Sample[] {
  let rows: unknown;
  try {
    rows = JSON.parse(data);
  } catch {
    return [];
  }
  if (!Array.isArray(rows)) return [];
  return rows.flatMap((row: Partial<TelemetryEntry> | null) => {
    const timestamp = parseInstant(row?.timestamp);
    if (row === null || timestamp === null || row.gpu_id !== gpu || typeof row.metrics !== "object") return [];
    return [{ timestamp, metrics: row.metrics }];
  });
}

/** What a stream says that it lacks; nothing if the event is broken. */
export function parsePartial(data: string): string[] {
  try {
    const words: unknown = JSON.parse(data);
    return Array.isArray(words) ? words.filter((word) => typeof word === "string") : [];
  } catch {
    return [];
  }
}

/** Newest last, bounded in number and age. */
export function keep(held: readonly Sample[], fresh: readonly Sample[]): readonly Sample[] {
  if (fresh.length === 0) return held;
  const all = [...held, ...fresh].sort((a, b) => a.timestamp - b.timestamp);
  const oldest = (all.at(-1)?.timestamp ?? 0) - KEEP_MS;
  return all.filter((sample) => sample.timestamp >= oldest).slice(-SAMPLES_MAX);
}

/** The samples as of when the last step began: a chart is drawn again for a new point, not for each reading that falls into one. */
export function usePoints(samples: readonly Sample[], stepMs: number): readonly Sample[] {
  const [held, setHeld] = useState(samples);
  const stepOf = (of: readonly Sample[]) => Math.floor((of.at(-1)?.timestamp ?? 0) / stepMs);
  if (held !== samples && stepOf(held) !== stepOf(samples)) setHeld(samples);
  return held;
}

/**
 * Samples of a GPU as they arrive. EventSource reconnects by itself after a broken connection; after a refusal it does
 * not, and a new one is made later. Until then the status is `polling`. A hidden page has none: what it missed it reads from the history.
 */
export function useStream(gpu: string, enabled: boolean): Stream {
  const [stream, setStream] = useState<Stream>(OFF);
  const isOn = useIsShown() && enabled;
  useEffect(() => {
    if (!isOn) return;
    let source: EventSource | null = null;
    let again: ReturnType<typeof setTimeout> | undefined;
    const connect = () => {
      const made = new EventSource(`${API_BASE_URL}/api/v1/stream?gpus=${encodeURIComponent(gpu)}`);
      source = made;
      // Each connection says anew what it lacks.
      made.addEventListener("open", () => setStream((held) => ({ ...held, status: "live", partial: [] })));
      made.addEventListener("partial", (event: MessageEvent<string>) => {
        setStream((held) => ({ ...held, partial: parsePartial(event.data) }));
      });
      made.addEventListener("samples", (event: MessageEvent<string>) => {
        const fresh = parseSamples(event.data, gpu);
        setStream((held) => ({ ...held, status: "live", samples: keep(held.samples, fresh) }));
      });
      made.addEventListener("error", () => {
        setStream((held) => ({ ...held, status: "polling" }));
        if (made.readyState !== EventSource.CLOSED) return;
        made.close();
        again = setTimeout(connect, AGAIN_AFTER_MS);
      });
    };
    connect();
    return () => {
      clearTimeout(again);
      source?.close();
      setStream(OFF);
    };
  }, [gpu, isOn]);
  return enabled && stream.status === "off" ? CONNECTING : stream;
}
