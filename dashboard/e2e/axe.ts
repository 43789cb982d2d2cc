import AxeBuilder from "@axe-core/playwright";
import type { Page } from "@playwright/test";

/** The rules that look at colours: only in these can two themes of a page differ. */
const OF_COLOURS = ["color-contrast", "link-in-text-block"];

interface Look {
  /** On a screen that is touched, targets of less than 24 px are flaws, too. */
  readonly isTouched?: boolean;
  /** By the rules of colours alone: at the other theme of a page that was looked at by all. */
  readonly isOfColours?: boolean;
}

/**
 * What axe finds on a page, in words. Only flaws are described: axe spends four fifths of its time on a path to each element that a
 * rule has found in order. It skips these in one call for the whole page, which reads no frame of another site. No page has a frame.
 */
export async function flaws(page: Page, { isTouched = false, isOfColours = false }: Look = {}): Promise<string[]> {
  const look = new AxeBuilder({ page }).options({ resultTypes: ["violations"], rules: { "target-size": { enabled: isTouched } } }).setLegacyMode();
  const { violations } = await (isOfColours ? look.withRules(OF_COLOURS) : look).analyze();
  return violations.flatMap(({ id, impact, help, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${impact ?? "minor"}, ${id}: ${help} at ${target.join(" ")}: ${failureSummary ?? ""}`),
  );
}
