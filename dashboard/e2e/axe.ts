import AxeBuilder from "@axe-core/playwright";
import type { Page } from "@playwright/test";

/** What nobody may meet on any page. */
const GRAVE = new Set(["serious", "critical"]);

/** What axe finds grave on a page, in words. */
export async function graveFlaws(page: Page): Promise<string[]> {
  const { violations } = await new AxeBuilder({ page }).analyze();
  return violations
    .filter(({ impact }) => GRAVE.has(impact ?? ""))
    .flatMap(({ id, help, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${help} at ${target.join(" ")}: ${failureSummary ?? ""}`));
}
