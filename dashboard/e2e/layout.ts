import type { Page } from "@playwright/test";

/**
 * What a person would see to be broken: a page that scrolls sideways, text that is cut off or runs out of its box, text on text,
 * controls on controls; on a screen that is touched, targets too small for a finger. Text that ends in an ellipsis, and what can be scrolled
 * to, is meant so.
 */
export async function layoutFlaws(page: Page, { isTouched = false }: { readonly isTouched?: boolean } = {}): Promise<string[]> {
  return page.evaluate((isTouched) => {
    /** Distances in px that nobody sees. */
    const SLACK = 2;
    const BOXES = ".card, .button, .badge, .key";
    const CONTROLS = "a[href], button, input, select, summary";
    /** Px that a target has in each direction (WCAG 2.2, 2.5.8), or else around its middle for itself. */
    const TARGET = 24;

    interface Box {
      left: number;
      top: number;
      right: number;
      bottom: number;
    }
    interface Piece extends Box {
      readonly element: Element;
      readonly name: string;
    }

    const flaws: string[] = [];
    const sideways = document.documentElement.scrollWidth - window.innerWidth;
    if (sideways > 0) flaws.push(`the page scrolls ${sideways} px sideways`);

    const short = (text: string) => JSON.stringify(text.trim().replace(/\s+/g, " ").slice(0, 60));
    const isSeen = (element: Element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    // Only for screen readers: a box of a pixel.
    const isForEyes = (element: Element) => element.closest(".sr-only, svg, option, [aria-hidden=true]") === null;

    /** As much of a box as its ancestors let through, and the first that hides some of it though nothing says so; null: none of it. */
    const seenOf = (box: Box, element: Element): { readonly box: Box; readonly cutBy: Element | null } | null => {
      const seen = { left: box.left, top: box.top, right: box.right, bottom: box.bottom };
      let cutBy: Element | null = null;
      let isMeant = false;
      for (let each: Element | null = element; each !== null && each !== document.documentElement; each = each.parentElement) {
        const style = getComputedStyle(each);
        if (style.textOverflow === "ellipsis" || style.webkitLineClamp !== "none") isMeant = true;
        if (style.overflowX === "visible" && style.overflowY === "visible") continue;
        if (/auto|scroll/.test(style.overflowX + style.overflowY)) isMeant = true;
        const edge = each.getBoundingClientRect();
        const hidden = Math.max(edge.left - seen.left, seen.right - edge.right, edge.top - seen.top, seen.bottom - edge.bottom);
        if (hidden > SLACK && !isMeant) cutBy ??= each;
        seen.left = Math.max(seen.left, edge.left);
        seen.top = Math.max(seen.top, edge.top);
        seen.right = Math.min(seen.right, edge.right);
        seen.bottom = Math.min(seen.bottom, edge.bottom);
      }
      return seen.right - seen.left > 1 && seen.bottom - seen.top > 1 ? { box: seen, cutBy } : null;
    };

    const texts: Piece[] = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode() !== null) {
      const node = walker.currentNode;
      const element = node.parentElement;
      const name = short(node.textContent ?? "");
      if (element === null || name === '""' || !isSeen(element) || !isForEyes(element)) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const rect of range.getClientRects()) {
        const seen = seenOf(rect, element);
        if (seen === null) continue;
        if (seen.cutBy !== null) flaws.push(`${name} is cut off by ${seen.cutBy.tagName.toLowerCase()}.${seen.cutBy.className}`);
        const around = element.closest(BOXES)?.getBoundingClientRect();
        if (around !== undefined && (seen.box.right > around.right + SLACK || seen.box.left < around.left - SLACK)) flaws.push(`${name} runs out of its box`);
        texts.push({ ...seen.box, element, name });
      }
    }

    const controls: Piece[] = [];
    for (const element of document.querySelectorAll(CONTROLS)) {
      if (!isSeen(element)) continue;
      const name = `<${element.tagName.toLowerCase()}> ${short(element.getAttribute("aria-label") ?? element.textContent)}`;
      for (const rect of element.getClientRects()) {
        const seen = seenOf(rect, element);
        if (seen !== null) controls.push({ ...seen.box, element, name });
      }
    }

    for (const pieces of [texts, controls]) {
      pieces.sort((a, b) => a.top - b.top);
      pieces.forEach((one, place) => {
        for (const two of pieces.slice(place + 1)) {
          if (two.top >= one.bottom) break;
          if (one.element === two.element || one.element.contains(two.element) || two.element.contains(one.element)) continue;
          const across = Math.min(one.right, two.right) - Math.max(one.left, two.left);
          const down = Math.min(one.bottom, two.bottom) - two.top;
          // The boxes of letters have air above and below.
          const air = pieces === texts ? 0.35 * Math.min(one.bottom - one.top, two.bottom - two.top) : 0;
          if (across > SLACK && down > Math.max(SLACK, air)) flaws.push(`${one.name} and ${two.name} lie over each other`);
        }
      });
    }
    /** A label is pressed for its field, and a card for the link that covers it. */
    const targetOf = (element: Element): Box => {
      const covered = getComputedStyle(element, "::after").position === "absolute" ? element.closest(".card") : null;
      return (covered ?? element.closest("label") ?? element).getBoundingClientRect();
    };
    /** A link in a line of text is as high as the line. */
    const isInText = (element: Element) =>
      getComputedStyle(element).display === "inline" && [...(element.parentElement?.childNodes ?? [])].some((node) => node.nodeType === Node.TEXT_NODE && (node.textContent ?? "").trim() !== "");
    const targets = [...document.querySelectorAll(CONTROLS)]
      .filter((element) => isSeen(element) && element.closest(".sr-only") === null)
      .map((element) => {
        const box = targetOf(element);
        const [width, height] = [box.right - box.left, box.bottom - box.top];
        return { element, box, width, height, x: box.left + width / 2, y: box.top + height / 2, isSmall: Math.min(width, height) < TARGET - 0.5 };
      });
    for (const { element, width, height, x, y, isSmall } of isTouched ? targets : []) {
      if (!isSmall || width <= 1 || height <= 1 || isInText(element)) continue;
      // One that stands alone may be small.
      const isNear = targets.some(({ element: other, box, x: otherX, y: otherY, isSmall: isOtherSmall }) => {
        if (other === element || other.contains(element) || element.contains(other)) return false;
        const distance = Math.hypot(Math.max(box.left - x, x - box.right, 0), Math.max(box.top - y, y - box.bottom, 0));
        return distance < TARGET / 2 || (isOtherSmall && Math.hypot(otherX - x, otherY - y) < TARGET);
      });
      const name = short(element.getAttribute("aria-label") ?? element.textContent);
      if (isNear) flaws.push(`<${element.tagName.toLowerCase()}> ${name} is ${Math.round(width)} × ${Math.round(height)} px, too small for a finger`);
    }
    return [...new Set(flaws)];
  }, isTouched);
}
