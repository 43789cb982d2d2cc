import { Ban, CircleCheck, CircleDashed, CircleHelp, CircleSlash, Clock, Hourglass, KeyRound, ShieldOff, TriangleAlert, Unplug, type LucideIcon } from "lucide-react";
import type { ClusterState, NodeState } from "../../api/clusters";
import { formatSpan, formatInstant, MINUTE, parseInstant, SECOND, useClock } from "../../shared/time";
import { LookBadge, type Look } from "../../parts/gpuLook";

interface NamedLook extends Look {
  readonly name: string;
}

function look(name: string, icon: LucideIcon, colour: string, meaning: string): NamedLook {
  return { name, icon, colour, meaning };
}

const CLUSTER_LOOKS: Readonly<Record<ClusterState, NamedLook>> = {
  ok: look("ok", CircleCheck, "text-good", "All GPU nodes were read at the last attempt"),
  degraded: look("degraded", TriangleAlert, "text-warn", "Some GPU nodes were not read at the last attempt"),
  starting: look("starting", CircleDashed, "text-calm", "Not everything was read yet"),
  no_gpu: look("no GPUs", CircleSlash, "text-faint", "By configuration it has no GPUs; it is never asked"),
  no_gpu_nodes: look("no GPU nodes", CircleSlash, "text-faint", "No node of it has GPUs"),
  no_gpu_operator: look("no GPU operator", CircleSlash, "text-warn", "It has GPU nodes and no driver pods in which they could be read"),
  unreachable: look("unreachable", Unplug, "text-bad", "Its API server does not answer, or its certificate is not accepted"),
  unauthorized: look("unauthorized", KeyRound, "text-bad", "Its API server refuses the token"),
  forbidden: look("forbidden", Ban, "text-bad", "The role of the token lacks a right"),
  throttled: look("throttled", Hourglass, "text-warn", "Its API server asks for patience"),
  failed: look("failed", TriangleAlert, "text-bad", "Its answers, or the files of its configuration, cannot be used"),
};

export const NODE_LOOKS: Readonly<Record<NodeState, NamedLook>> = {
  partial: look("partial", TriangleAlert, "text-warn", "It was read at the last attempt, but for GPUs that the tool cannot reach"),
  failing: look("failing", TriangleAlert, "text-bad", "The last attempt to read it failed"),
  no_driver_pod: look("no driver pod", CircleSlash, "text-warn", "No driver pod runs on it"),
  driver_pod_not_ready: look("driver pod not ready", Clock, "text-warn", "Its driver pod is not ready; the driver may be building"),
  waiting: look("waiting", CircleDashed, "text-calm", "It was not read yet"),
  no_tool: look("agent needed", CircleSlash, "text-faint", "Its GPUs cannot be read from outside; the agent reads them"),
  ok: look("ok", CircleCheck, "text-good", "It was read at the last attempt"),
};

/** A state of a newer server is shown by its own word. */
function found(looks: Readonly<Record<string, NamedLook>>, state: string): NamedLook {
  return looks[state] ?? look(state.replaceAll("_", " "), CircleHelp, "text-faint", "This page does not know this state");
}

export function clusterLook(state: string): NamedLook {
  return found(CLUSTER_LOOKS, state);
}

export function nodeLook(state: string): NamedLook {
  return found(NODE_LOOKS, state);
}

export function ClusterBadge({ state }: { readonly state: string }) {
  const shown = clusterLook(state);
  return <LookBadge look={shown} state={state} text={shown.name} reason={null} />;
}

export function NodeBadge({ state }: { readonly state: string }) {
  const shown = nodeLook(state);
  return <LookBadge look={shown} state={state} text={shown.name} reason={null} />;
}

/** Since when a state holds. */
export function Since({ since }: { readonly since: string }) {
  const now = useClock(MINUTE);
  const instant = parseInstant(since);
  if (instant === null) return null;
  return (
    <span className="num text-xs whitespace-nowrap text-muted" title={new Date(instant).toISOString()}>
      since {formatInstant(instant, now)}
    </span>
  );
}

export function Unverified() {
  return (
    <span className="inline-flex items-start gap-1.5 text-warn">
      <ShieldOff size={13} className="mt-0.5 shrink-0" aria-hidden />
      <span>Its certificate is not verified: anybody on the way could read the token.</span>
    </span>
  );
}

/** The age in ms of what was `seconds` old when the server answered; the page's clock may lag behind the answer. */
export function ageNow(seconds: number, at: number, now: number): number {
  return seconds * SECOND + Math.max(0, now - at);
}

interface AgeProps {
  /** Seconds, when the server answered. */
  readonly seconds: number | null;
  /** When the server answered. */
  readonly at: number;
  readonly stale: boolean;
}

/** How old a reading is now; an old one that is shown for want of a newer says so. */
export function Age({ seconds, at, stale }: AgeProps) {
  const now = useClock(SECOND);
  if (seconds === null) return <span className="text-faint">never read</span>;
  const text = `${formatSpan(ageNow(seconds, at, now))} ago`;
  if (!stale) return <span className="num whitespace-nowrap text-muted">{text}</span>;
  return (
    <span className="num inline-flex items-center gap-1 whitespace-nowrap text-warn" title="The last good reading; later attempts failed">
      <Clock size={12} aria-hidden /> stale, {text}
    </span>
  );
}
