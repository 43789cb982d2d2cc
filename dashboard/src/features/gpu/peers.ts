import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Gpu } from "../../api/client";
import { WHOLE_FLEET, wholeFleetQuery } from "../../api/fleet";
import { frameOf, type Frame } from "../../charts/frame";
import { EMPTY } from "../../charts/frame";
import type { CatalogueRow } from "../../charts/panels";
import { MINUTE } from "../../shared/time";
import { peersQuery, type PeersView } from "./history";

export interface Peers {
  readonly count: number;
  /** The median of their values. */
  readonly frame: Frame;
}

/** The GPUs of the same host with the same model, and their median; null where it is not wanted or there are none. */
export function usePeers(gpu: Gpu | undefined, wanted: boolean, rows: readonly CatalogueRow[], view: Omit<PeersView, "gpus" | "columns">): Peers | null {
  const host = gpu?.hostname ?? "";
  const neighbours = useQuery({
    ...wholeFleetQuery({ ...WHOLE_FLEET, host, group: "model" }),
    enabled: wanted && host !== "",
    // Who stands beside a GPU changes rarely.
    refetchInterval: false,
    staleTime: 10 * MINUTE,
  });
  const ids = useMemo(() => {
    const peers = neighbours.data?.gpus.filter((other) => other.id !== gpu?.id && other.group === gpu?.model) ?? [];
    return wanted ? peers.map((peer) => peer.id) : [];
  }, [neighbours.data, gpu?.id, gpu?.model, wanted]);
  // The sum that a counter has come to says nothing about a GPU beside another.
  const columns = useMemo(() => rows.filter((row) => row.instrument !== "counter").map((row) => row.column), [rows]);
  const median = useQuery(peersQuery({ ...view, gpus: ids, columns }));
  const frame = useMemo(() => (median.data === undefined ? EMPTY : frameOf(median.data, "", "p50")), [median.data]);
  return useMemo(() => (ids.length === 0 ? null : { count: ids.length, frame }), [ids.length, frame]);
}
