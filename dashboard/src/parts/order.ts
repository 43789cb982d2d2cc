/** Sorting by the column of a header: first its natural direction, then the other, then the order of the list itself. */
export function nextSort(sort: string, column: string, highestFirst: boolean): string {
  const [first, second] = highestFirst ? [`-${column}`, column] : [column, `-${column}`];
  if (sort === first) return second;
  return sort === second ? "" : first;
}

export function ariaSort(sort: string, column: string): "ascending" | "descending" | "none" {
  if (sort === column) return "ascending";
  return sort === `-${column}` ? "descending" : "none";
}
