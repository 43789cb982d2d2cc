import AxeBuilder from "@axe-core/playwright";
import type { Page } from "@playwright/test";

/** What axe finds on a page, in words; on a screen that is touched, also targets of less than 24 px. */
export async function flaws(page: Page, { isTouched = false }: { readonly isTouched?: boolean } = {}): Promise<string[]> {
  const { violations } = await new AxeBuilder({ page }).options({ rules: { "target-size": { enabled: isTouched } } }).analyze();
  return violations.flatMap(({ id, impact, help, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${impact ?? "minor"}, ${id}: ${help} at ${target.join(" ")}: ${failureSummary ?? ""}`),
  );
}
