import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Gpu } from "../../api/client";
import type { Finding } from "../../api/findings";
import { gpuQuery } from "../../api/queries";

/** As many GPUs as a finding names; and as many as are asked for by themselves, since a page with more findings is a page of the fleet. */
export const NAMED_MAX = 8;
const ASKED_MAX = 32;

/** What the GPUs of findings are called, by id: those that the page knows already, and the few others that work of theirs runs on. */
export function useGpuNames(findings: readonly Finding[], known: readonly Pick<Gpu, "id" | "name">[]): ReadonlyMap<string, string> {
  const ids = useMemo(() => {
    const has = new Set(known.map(({ id }) => id));
    const named = findings.flatMap(({ subject, reach }) => (subject.type === "gpu" ? [] : reach.gpus.slice(0, NAMED_MAX)));
    return [...new Set(named)].filter((id) => !has.has(id)).slice(0, ASKED_MAX);
  }, [findings, known]);
  const others = useQueries({ queries: ids.map((id) => ({ ...gpuQuery(id, 0), refetchInterval: false as const, staleTime: Infinity })), combine: namesOf });
  return useMemo(() => new Map([...known.map(({ id, name }) => [id, name] as const), ...others]), [known, others]);
}

function namesOf(answers: readonly { readonly data?: { readonly gpu: Gpu } | undefined }[]): (readonly [string, string])[] {
  return answers.flatMap(({ data }) => (data === undefined ? [] : [[data.gpu.id, data.gpu.name] as const]));
}
