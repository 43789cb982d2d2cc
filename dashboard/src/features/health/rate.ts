/** A counter as it was read. */
export interface Reading {
  readonly at: number;
  readonly count: number;
}

/** Events a second between two readings; `null` without two, or when the counter began anew. */
export function perSecond(before: Reading | null, after: Reading): number | null {
  if (before === null || after.at <= before.at || after.count < before.count) return null;
  return ((after.count - before.count) * 1000) / (after.at - before.at);
}
