import AxeBuilder from "@axe-core/playwright";
import type { Page } from "@playwright/test";

/** What axe finds on a page, in words. It asks for targets of 24 px only where it is told to. */
export async function flaws(page: Page): Promise<string[]> {
  const { violations } = await new AxeBuilder({ page }).options({ rules: { "target-size": { enabled: true } } }).analyze();
  return violations.flatMap(({ id, impact, help, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${impact ?? "minor"}, ${id}: ${help} at ${target.join(" ")}: ${failureSummary ?? ""}`),
  );
}
