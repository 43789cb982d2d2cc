import type { ReactNode } from "react";

interface TileProps {
  readonly name: string;
  readonly value: string;
  /** What belongs to the value: its whole, a bar. */
  readonly children?: ReactNode;
}

/** A number that is looked at before everything else. */
export function Tile({ name, value, children }: TileProps) {
  return (
    <div className="card px-3.5 py-3">
      <dt className="text-xs text-muted">{name}</dt>
      <dd className="num mt-0.5">
        <span className="text-xl font-semibold tracking-tight">{value}</span>
        {children}
      </dd>
    </div>
  );
}

export const TILES = "grid grid-cols-2 gap-3 md:grid-cols-3 xl:grid-cols-6";
const SIX = ["a", "b", "c", "d", "e", "f"];

export function WaitingTiles({ label }: { readonly label: string }) {
  return (
    <div role="status" aria-label={label} className={TILES}>
      {SIX.map((key) => (
        <div key={key} className="waiting h-16" />
      ))}
    </div>
  );
}
