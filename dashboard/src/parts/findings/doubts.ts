import { formatAge, formatClock, parseInstant } from "../../shared/time";

/** Age of a judgement of the fleet from which it may not be true any more: four of them were missed. */
const OLD_JUDGEMENT_MS = 60_000;

/** What is known of an answer that is asked for again and again. */
export interface RenewedAnswer {
  readonly data?: { readonly partial: string | null } | undefined;
  readonly isError: boolean;
  readonly dataUpdatedAt: number;
}

/** Why an answer may not be all, or not be true any more. */
export function answerDoubts({ data, isError, dataUpdatedAt }: RenewedAnswer): string[] {
  if (data === undefined) return [];
  return [
    ...(data.partial === null ? [] : [`Not everything could be read: ${data.partial}.`]),
    ...(isError ? [`Not renewed: as of ${formatClock(dataUpdatedAt)}.`] : []),
  ];
}

interface JudgedAnswer extends RenewedAnswer {
  readonly data?: { readonly judged_at: string; readonly partial: string | null } | undefined;
}

/** Why the findings may not be all, or not be true any more. */
export function findingDoubts(answer: JudgedAnswer, now: number): string[] {
  const judged = parseInstant(answer.data?.judged_at);
  const isOld = !answer.isError && judged !== null && now - judged > OLD_JUDGEMENT_MS;
  return [...answerDoubts(answer), ...(isOld ? [`The fleet was last judged ${formatAge(judged, now)}.`] : [])];
}
