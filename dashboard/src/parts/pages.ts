/** As many rows of a list as are drawn at once. */
export const PAGE_SIZE = 50;

/** The rows of the page that is asked for; a page beyond the end is the last one. */
export function pageOf<Row>(rows: readonly Row[], asked: number): { readonly shown: readonly Row[]; readonly page: number; readonly hasNext: boolean } {
  const page = Math.min(asked, Math.max(1, Math.ceil(rows.length / PAGE_SIZE)));
  return { shown: rows.slice((page - 1) * PAGE_SIZE, page * PAGE_SIZE), page, hasNext: page * PAGE_SIZE < rows.length };
}
