import { render, screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { useMemo } from "react";
import { expect, it, vi } from "vitest";
import { Link } from "../shared/location";
import { useShared } from "../shared/same";
import { savedFiles } from "../testing/files";
import { List, type ListOf } from "./columns";
import { highestFirst } from "./order";

interface Card {
  readonly name: string;
  readonly heat: number;
}

const drawn: string[] = [];
const LIST: ListOf<Card> = {
  label: "Cards",
  unsorted: "As they come",
  keyOf: ({ name }) => name,
  mark: ({ name }) => ({ "data-card": name }),
  pathOf: ({ name }) => `/${name}`,
  columns: [
    { id: "place", title: "#", spoken: "Place", cell: () => 0 },
    {
      id: "name",
      title: "Name",
      card: "name",
      cell: ({ name }) => {
        drawn.push(name);
        return (
          <Link to={`/${name}`} data-row="">
            {name}
          </Link>
        );
      },
    },
    { id: "heat", title: "Heat", sort: highestFirst(({ heat }) => heat), cell: ({ heat }) => `${heat} °C` },
    { id: "note", title: "Note", card: "line", value: ({ name }) => (name === "a" ? 'so, "so"' : null), cell: () => "fine" },
  ],
};
const ROWS = [{ name: "a", heat: 1 }, { name: "b", heat: 2 }];
const onSort = vi.fn();

it("is a table whose headers sort and whose rows lead on", async () => {
  render(<List of={LIST} rows={ROWS} without={["note"]} sort="-heat" onSort={onSort} />);
  const table = within(screen.getByRole("table", { name: "Cards" }));
  expect(table.getAllByRole("columnheader").map((cell) => cell.textContent)).toEqual(["#", "Name", "Heat"]);
  expect(table.getByRole("columnheader", { name: "Heat" }).getAttribute("aria-sort")).toBe("descending");
  await userEvent.click(table.getByRole("button", { name: "Heat" }));
  expect(onSort).toHaveBeenCalledWith("heat");
  await userEvent.click(table.getByText("2 °C"));
  expect(window.location.pathname).toBe("/b");
});

it("is cards on a phone, with the same and a choice of the order", async () => {
  vi.spyOn(window, "matchMedia").mockImplementation((media) => Object.assign(new EventTarget(), { media, matches: true }) as unknown as MediaQueryList);
  render(<List of={LIST} rows={ROWS} sort="" onSort={onSort} />);
  expect(screen.queryByRole("table")).toBeNull();
  const cards = within(screen.getByRole("list", { name: "Cards" })).getAllByRole("listitem");
  expect(cards.map((card) => card.textContent)).toEqual(["afinePlace0Heat1 °C", "bfinePlace0Heat2 °C"]);
  const order = screen.getByRole("combobox", { name: "Order" });
  expect(within(order).getAllByRole("option").map((option) => option.textContent)).toEqual(["As they come", "Heat, highest first"]);
  await userEvent.selectOptions(order, "-heat");
  expect(onSort).toHaveBeenLastCalledWith("-heat");
});

it.each([
  ["heat", "Heat, lowest first"],
  ["-name", "As they come"],
  ["none", "As they come"],
])("shows the order %s of an address as %s", (sort, shown) => {
  vi.spyOn(window, "matchMedia").mockImplementation((media) => Object.assign(new EventTarget(), { media, matches: true }) as unknown as MediaQueryList);
  render(<List of={LIST} rows={ROWS} sort={sort} onSort={onSort} />);
  const order = screen.getByRole<HTMLSelectElement>("combobox", { name: "Order" });
  expect(order.selectedOptions[0]?.textContent).toBe(shown);
});

it("draws again only the rows that have changed", () => {
  const { rerender } = render(<List of={LIST} rows={ROWS} without={["place"]} />);
  drawn.length = 0;
  rerender(<List of={LIST} rows={[...ROWS.slice(0, 1), { name: "b", heat: 3 }]} without={["place"]} />);
  expect(drawn).toEqual(["b"]);
});

it.each([
  ["the whole list, not only the page, by its columns", [...ROWS, { name: "c", heat: 2.5 }], "heat,note\r\n1,\"so, \"\"so\"\"\"\r\n2,\r\n2.5,\r\n"],
  ["what the server says of it", () => Promise.resolve("id,power_w\r\n"), "id,power_w\r\n"],
])("gives as a file %s", async (_name, whole, text) => {
  const saved = savedFiles();
  render(<List of={LIST} rows={ROWS} whole={whole} />);
  await userEvent.click(screen.getByRole("button", { name: "CSV" }));
  expect(await saved[0]?.text()).toBe(text);
});

it("says why there is no file", async () => {
  render(<List of={LIST} rows={ROWS} whole={() => Promise.reject(new Error("disk on fire"))} />);
  await userEvent.click(screen.getByRole("button", { name: "CSV" }));
  expect(await screen.findByText("The file could not be made: disk on fire")).toBeTruthy();
});

it("draws only the rows again whose values are others, though all are made anew", () => {
  function Heats({ heats }: { readonly heats: readonly number[] }) {
    const rows = useShared(useMemo(() => heats.map((heat, place) => ({ name: `card-${place}`, heat })), [heats]));
    return <List of={LIST} rows={rows} />;
  }
  drawn.length = 0;
  const { rerender } = render(<Heats heats={[10, 20, 30]} />);
  expect(drawn).toEqual(["card-0", "card-1", "card-2"]);
  rerender(<Heats heats={[10, 21, 30]} />);
  expect(drawn).toEqual(["card-0", "card-1", "card-2", "card-1"]);
  expect(screen.getByText("21 °C")).toBeTruthy();
});
