import { Gauge, MemoryStick, Thermometer, Zap, type LucideIcon } from "lucide-react";
import { reading, formatValue } from "../../shared/format";
import { MEMORY_TOTAL, MEMORY_USED, POWER, POWER_LIMIT, TEMPERATURE, UTILIZATION } from "../../shared/headline";
import { formatAge, MINUTE } from "../../shared/time";
import { Bar, heatColour } from "../../parts/gpuLook";
import type { LatestValues } from "./latest";

interface TilesProps {
  readonly latest: LatestValues;
  readonly memoryMb: number | null;
  readonly now: number;
}

/** A value that is older is no longer the present: it is grey, with its age. */
const OLD_MS = 2 * MINUTE;

/** The four values everybody looks for first. */
export function Tiles({ latest, memoryMb, now }: TilesProps) {
  const value = (column: string) => {
    const held = latest.get(column)?.value;
    return typeof held === "number" ? held : null;
  };
  const ageOf = (column: string) => {
    const at = latest.get(column)?.at ?? null;
    return at === null || now - at < OLD_MS ? null : formatAge(at, now);
  };
  const limit = value(POWER_LIMIT);
  const memory = memoryMb ?? value(MEMORY_TOTAL);
  const celsius = value(TEMPERATURE);
  return (
    <dl className="mt-4 grid grid-cols-2 gap-3 md:grid-cols-4">
      <Tile name="Utilization" icon={Gauge} value={value(UTILIZATION)} unit="%" whole={100} wholeText="" column={UTILIZATION} age={ageOf(UTILIZATION)} />
      <Tile name="Power" icon={Zap} value={value(POWER)} unit="W" whole={limit} wholeText={limit === null ? "" : `of ${formatValue(limit, "W")}`} column={POWER} age={ageOf(POWER)} />
      <Tile name="Temperature" icon={Thermometer} value={celsius} unit="°C" whole={100} wholeText="" column={TEMPERATURE} age={ageOf(TEMPERATURE)} colour={heatColour(celsius)} />
      <Tile
        name="Memory"
        icon={MemoryStick}
        value={value(MEMORY_USED)}
        unit="MiB"
        whole={memory}
        wholeText={memory === null ? "" : `of ${formatValue(memory, "MiB")}`}
        column={MEMORY_USED} age={ageOf(MEMORY_USED)}
      />
    </dl>
  );
}

interface TileProps {
  readonly name: string;
  readonly icon: LucideIcon;
  readonly value: number | null;
  readonly unit: string;
  readonly whole: number | null;
  readonly wholeText: string;
  readonly column: string;
  /** Null: it is of the present. */
  readonly age: string | null;
  readonly colour?: string;
}

function Tile({ name, icon: Icon, value, unit, whole, wholeText, column, age, colour }: TileProps) {
  const shown = reading(value, unit);
  return (
    <div className="card px-3.5 py-3" data-metric={column} {...(age !== null && { "data-old": "" })}>
      <dt className="flex items-center gap-1.5 text-xs text-muted">
        <Icon size={13} aria-hidden />
        {name}
        {age !== null && <span className="ml-auto text-faint">{age}</span>}
      </dt>
      <dd className="mt-0.5">
        <span className="num text-2xl font-semibold tracking-tight">{shown.text}</span>
        <span className="ml-1 text-[13px] text-muted">{shown.unit}</span>
        {wholeText !== "" && <span className="num ml-1.5 text-xs text-faint">{wholeText}</span>}
        <span className="mt-2 block">
          <Bar share={value === null || whole === null ? null : value / whole} label={name} {...(colour === undefined ? {} : { colour })} />
        </span>
      </dd>
    </div>
  );
}
