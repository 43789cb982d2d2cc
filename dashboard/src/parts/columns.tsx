import { ArrowDown, ArrowUp } from "lucide-react";
import { memo, type MouseEvent, type ReactNode } from "react";
import { goTo } from "../shared/location";
import { useMedia } from "../shared/media";
import { csvOf, type CsvValue } from "./csv";
import { Named } from "./gpuLook";
import { ariaSort, nextSort, unreadSort, type Sort } from "./order";
import { SaveCsv } from "./saveCsv";
import { UnreadNotice } from "./UnreadNotice";

/** A column of a list: a cell of a table, or a part of a card. */
export interface Column<Row> {
  readonly id: string;
  readonly title: string;
  /** Where the title is no word. */
  readonly spoken?: string;
  /** Absent: the list is not ordered by it. */
  readonly sort?: Sort<Row>;
  /** What stands in a file, where it is not that by which the list is ordered. A column with neither is in none. */
  readonly value?: (row: Row) => CsvValue;
  readonly cell: (row: Row) => ReactNode;
  /** Of the cell. */
  readonly className?: string;
  /** In a table: how wide the header is, and how wide a cell may be. */
  readonly width?: string;
  readonly limit?: string;
  /** Where a card has it: as its name, beside that, in a line of its own, or else with its title among the others. */
  readonly card?: "name" | "corner" | "line";
}

interface Filed<Row> {
  readonly id: string;
  readonly value: (row: Row) => CsvValue;
}

/** What a list is made of. The same object each time, so that only rows that have changed are drawn again. */
export interface ListOf<Row> {
  /** What is in it. */
  readonly label: string;
  readonly columns: readonly Column<Row>[];
  /** What a file has beside the columns: each of what a cell says together, in small. */
  readonly filed?: readonly Filed<Row>[];
  /** Unique among the rows. */
  readonly keyOf: (row: Row) => string;
  /** What marks a row in the document. */
  readonly mark: (row: Row) => Readonly<Record<`data-${string}`, string | number>>;
  /** Where a row leads; absent or null: nowhere. Its name has a link (`data-row`) to the same. */
  readonly pathOf?: (row: Row) => string | null;
  /** What stands below a row, over its whole width; null: nothing. */
  readonly below?: (row: Row) => ReactNode;
  readonly isChosen?: (row: Row) => boolean;
  /** The order that no column has, in words; absent: there is none. */
  readonly unsorted?: string;
}

interface ListProps<Row> {
  readonly of: ListOf<Row>;
  readonly rows: readonly Row[];
  /** Columns that are left out. */
  readonly without?: readonly string[];
  /** A column, with `-` before it for descending; empty: the order of the list itself. One that the list does not have is said. */
  readonly sort?: string;
  readonly onSort?: (sort: string) => void;
  /** What is shown is the answer to another question, until that to this one has come. */
  readonly dim?: boolean;
  /** The whole list, of which the rows are a part: for the file. Or what the server says of it. */
  readonly whole?: readonly Row[] | (() => Promise<string>);
}

/** Rows as a table, or on a phone as cards. */
export function List<Row>({ of, rows, without = [], sort = "", onSort, dim = false, whole = rows }: ListProps<Row>) {
  const isNarrow = useMedia("(max-width: 760px)");
  const hidden = without.join(" ");
  const look = `transition-opacity ${dim ? "opacity-60" : ""}`;
  const columns = of.columns.filter(({ id }) => !without.includes(id));
  const unread = <UnreadNotice unread={unreadSort(of.columns, sort)} />;
  if (isNarrow) {
    return (
      <div className={look}>
        {unread}
        {onSort !== undefined && <SortSelect columns={columns} unsorted={of.unsorted} sort={sort} onSort={onSort} />}
        <ul className="space-y-2" aria-label={of.label}>
          {rows.map((row) => (
            <Card key={of.keyOf(row)} of={of} row={row} hidden={hidden} />
          ))}
        </ul>
        <CsvButton of={of} columns={columns} whole={whole} />
      </div>
    );
  }
  // Where no row has a link, the table itself is what a keyboard reaches to move it sideways.
  const stop = of.pathOf === undefined ? { role: "group", "aria-label": of.label, tabIndex: 0 } : {};
  const body = rows.map((row) => <TableRow key={of.keyOf(row)} of={of} row={row} hidden={hidden} />);
  return (
    <>
      {unread}
      <div className={`card overflow-x-auto ${look}`} {...stop}>
        <table className="w-full min-w-[740px] text-[13px]">
          <caption className="sr-only">{of.label}</caption>
          <thead>
            <tr className="border-b border-line text-left text-xs text-muted">
              {columns.map((column) => (
                <HeaderCell key={column.id} column={column} sort={sort} onSort={onSort} />
              ))}
            </tr>
          </thead>
          {of.below === undefined ? <tbody>{body}</tbody> : body}
        </table>
      </div>
      <CsvButton of={of} columns={columns} whole={whole} />
    </>
  );
}

interface CsvButtonProps<Row> {
  readonly of: ListOf<Row>;
  readonly columns: readonly Column<Row>[];
  readonly whole: readonly Row[] | (() => Promise<string>);
}

/** Gives the list as a file, with its columns and in its order. */
function CsvButton<Row>({ of: { label, filed = [] }, columns, whole }: CsvButtonProps<Row>) {
  if (typeof whole !== "function" && whole.length === 0) return null;
  return <SaveCsv label={label} text={typeof whole === "function" ? whole : () => tableOf([...filedOf(columns), ...filed], whole)} />;
}

function filedOf<Row>(columns: readonly Column<Row>[]): Filed<Row>[] {
  return columns.flatMap(({ id, value: own, sort }) => {
    const value = own ?? sort?.by;
    return value === undefined ? [] : [{ id, value }];
  });
}

function tableOf<Row>(filed: readonly Filed<Row>[], rows: readonly Row[]): string {
  return csvOf(filed.map(({ id }) => id), rows.map((row) => filed.map(({ value }) => value(row))));
}

interface RowProps<Row> {
  readonly of: ListOf<Row>;
  readonly row: Row;
  /** Ids of the columns that are left out, with spaces between them: a text, so that it is the same each time. */
  readonly hidden: string;
}

function shownOf<Row>({ of, hidden }: RowProps<Row>): readonly Column<Row>[] {
  const without = hidden.split(" ");
  return of.columns.filter(({ id }) => !without.includes(id));
}

const CELL = "px-2 py-1.5 lg:px-3";

/** Its link is for keyboard, screen reader and new tabs; the rest of the row is a larger target for the same. */
const TableRow = memo(function TableRow<Row>(props: RowProps<Row>) {
  const { of, row } = props;
  const columns = shownOf(props);
  const path = of.pathOf?.(row) ?? null;
  const open = (event: MouseEvent) => {
    const isSelecting = window.getSelection()?.isCollapsed === false;
    if (path !== null && !isSelecting && event.target instanceof Element && event.target.closest("a, button") === null) goTo(path);
  };
  const line = "border-b border-line last:border-0";
  const own = of.below === undefined ? { className: `${line} focus-within:bg-raised hover:bg-raised/60 ${path === null ? "" : "cursor-pointer"}`, ...of.mark(row) } : {};
  const cells = (
    <tr {...own} onClick={open}>
      {columns.map(({ id, cell, className = "", limit = "", card }) =>
        card === "name" ? (
          <th key={id} scope="row" className={`${CELL} text-left ${className} ${limit}`}>
            {cell(row)}
          </th>
        ) : (
          <td key={id} className={`${CELL} ${className} ${limit}`}>
            {cell(row)}
          </td>
        ),
      )}
    </tr>
  );
  if (of.below === undefined) return cells;
  const below = of.below(row);
  return (
    <tbody className={`${line} ${of.isChosen?.(row) === true ? "bg-raised" : ""}`} {...of.mark(row)}>
      {cells}
      {below !== null && (
        <tr>
          <td colSpan={columns.length} className="px-2 pb-2 lg:px-3">
            {below}
          </td>
        </tr>
      )}
    </tbody>
  );
}) as <Row>(props: RowProps<Row>) => ReactNode;

/** All of it is the way to where the row leads. */
const COVERED = "[&_[data-row]]:after:absolute [&_[data-row]]:after:inset-0 [&_[data-row]]:after:rounded-lg";

const Card = memo(function Card<Row>(props: RowProps<Row>) {
  const { of, row } = props;
  const columns = shownOf(props);
  const at = (place: Column<Row>["card"]) => columns.filter(({ card }) => card === place);
  const leads = (of.pathOf?.(row) ?? null) !== null;
  const below = of.below?.(row) ?? null;
  return (
    <li className={`card relative p-3 text-[13px] focus-within:bg-raised ${leads ? COVERED : ""} ${of.isChosen?.(row) === true ? "bg-raised!" : ""}`} {...of.mark(row)}>
      <div className="flex items-start gap-2">
        {at("name").map(({ id, cell, className = "" }) => (
          <div key={id} className={`min-w-0 flex-1 ${className}`}>
            {cell(row)}
          </div>
        ))}
        {at("corner").map(({ id, cell }) => (
          <div key={id}>{cell(row)}</div>
        ))}
      </div>
      {at("line").map(({ id, cell }) => (
        <div key={id} className="mt-1 min-w-0">
          {cell(row)}
        </div>
      ))}
      <div className="mt-2 grid grid-cols-2 gap-x-3 gap-y-2">
        {at(undefined).map(({ id, title, spoken, cell, className = "" }) => (
          <Named key={id} name={spoken ?? title}>
            <div className={className}>{cell(row)}</div>
          </Named>
        ))}
      </div>
      {below !== null && <div className="mt-2">{below}</div>}
    </li>
  );
}) as <Row>(props: RowProps<Row>) => ReactNode;

interface HeaderCellProps<Row> {
  readonly column: Column<Row>;
  readonly sort: string;
  readonly onSort: ((sort: string) => void) | undefined;
}

function HeaderCell<Row>({ column: { id, title, spoken, sort: by, width = "" }, sort, onSort }: HeaderCellProps<Row>) {
  if (by === undefined || onSort === undefined) {
    return (
      <th scope="col" className={`px-2 py-2 font-medium whitespace-nowrap lg:px-3 ${width}`}>
        {spoken === undefined ? title : <abbr title={spoken} className="no-underline">{title}</abbr>}
      </th>
    );
  }
  const direction = ariaSort(sort, id);
  const Icon = direction === "descending" ? ArrowDown : ArrowUp;
  return (
    <th scope="col" aria-sort={direction} className={`px-2 py-0 font-medium lg:px-3 ${width}`}>
      <button
        type="button"
        className={`-mx-1.5 flex items-center gap-1 rounded px-1.5 py-2 whitespace-nowrap hover:text-fg ${direction === "none" ? "" : "text-fg"}`}
        title={`Sort by ${(spoken ?? title).toLowerCase()}`}
        aria-label={spoken}
        onClick={() => onSort(nextSort(sort, id, by.highestFirst))}
      >
        {title}
        <Icon size={12} className={direction === "none" ? "opacity-0" : ""} aria-hidden />
      </button>
    </th>
  );
}

interface SortSelectProps<Row> {
  readonly columns: readonly Column<Row>[];
  readonly unsorted: string | undefined;
  readonly sort: string;
  readonly onSort: (sort: string) => void;
}

/** Cards have no headers: their order is chosen here. An address may ask for the other direction of a column; an order that there is not is none. */
function SortSelect<Row>({ columns, unsorted, sort, onSort }: SortSelectProps<Row>) {
  const orders = columns.flatMap(({ id, title, spoken, sort: by }) => {
    if (by === undefined) return [];
    const name = spoken ?? title;
    return by.highestFirst
      ? [{ order: `-${id}`, name: `${name}, highest first` }, { order: id, name: `${name}, lowest first`, isTurned: true }]
      : [{ order: id, name }, { order: `-${id}`, name: `${name}, backwards`, isTurned: true }];
  });
  const shown = orders.filter(({ order, isTurned = false }) => !isTurned || order === sort);
  const value = shown.some(({ order }) => order === sort) ? sort : "";
  return (
    <label className="mb-2 block">
      <span className="sr-only">Order</span>
      <select className="field w-full" value={value} onChange={(event) => onSort(event.target.value)}>
        {unsorted !== undefined && <option value="">{unsorted}</option>}
        {shown.map(({ order, name }) => (
          <option key={order} value={order}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
