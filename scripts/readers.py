"""Opens the files of a store with the readers that people have, without a hint, and asks DuckDB what the API is asked."""

import json
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow.parquet

folder, url = Path(sys.argv[1]), sys.argv[2]
files = sorted(str(path) for path in folder.glob("raw/gpu_events/**/*.parquet"))
START, END = "2026-01-01T00:58:00Z", "2026-01-01T01:01:59Z"
passed, failed = 0, 0


def check(what, found, expected, tolerance=0.0):
    """Counts a comparison; numbers may differ by a share."""
    global passed, failed
    numbers = isinstance(found, (int, float)) and isinstance(expected, (int, float))
    same = abs(found - expected) <= tolerance * abs(expected) if numbers else found == expected
    passed, failed = passed + same, failed + (not same)
    if not same:
        print(f"{what}: {found!r}, not {expected!r}")


def api(path, **parameters):
    with urllib.request.urlopen(f"{url}api/v1/{path}?{urllib.parse.urlencode(parameters)}") as answer:
        return json.load(answer)


def steps(metrics, aggregate, group_by, **more):
    """Values of a query with one step: by labels."""
    answer = api("query", metrics=metrics, aggregate=aggregate, group_by=group_by, step="1h", start=START, end=END, **more)
    return {
        (*series["labels"].values(), step): value
        for series in answer["series"]
        for step, value in enumerate(series["values"])
        if value is not None
    }


def sql(query):
    relation = duckdb.sql(query.replace("rows", f"read_parquet({files!r}, union_by_name = true)"))
    return relation.fetchall()


def table(query):
    return {tuple(row[:-1]): float(row[-1]) for row in sql(query)}


def equal(what, found, expected, tolerance=1e-6):
    check(f"{what}: keys", sorted(map(str, found)), sorted(map(str, expected)))
    for key in set(found) & set(expected):
        check(f"{what} of {key}", found[key], expected[key], tolerance)


check("there are files", len(files) > 1, True)
total = api("telemetry", limit=1)["total"]
check("rows in DuckDB", sql("SELECT count(*) FROM rows")[0][0], total)

# The types that the columns are promised to have, in every file.
types = {name: kind for name, kind, *_ in sql("DESCRIBE SELECT * FROM rows")}
promised = {
    "timestamp_ns": "BIGINT",
    "gpu_clock_mhz": "INTEGER",
    "mem_clock_mhz": "INTEGER",
    "memory_used_mb": "BIGINT",
    "temperature_c": "FLOAT",
    "power_w": "FLOAT",
    "utilization_pct": "FLOAT",
    "energy_mj": "BIGINT",
    "pcie_rx_bytes_per_s": "BIGINT",
}
for name, kind in promised.items():
    check(f"type of {name}", types.get(name), kind)
schemas = [pyarrow.parquet.read_schema(file) for file in files]
for name in set().union(*(schema.names for schema in schemas)):
    kinds = {str(schema.field(name).type) for schema in schemas if name in schema.names}
    check(f"types of {name}", len(kinds), 1)

hour = "timestamp_ns // 3600000000000 - (SELECT min(timestamp_ns) // 3600000000000 FROM rows)"
equal("mean power", steps("power_w", "mean", "gpu"), table(f"SELECT uuid, {hour}, avg(power_w::DOUBLE) FROM rows GROUP BY ALL"))
equal("hottest of a host", steps("temperature_c", "max", "node"), table(f"SELECT node, {hour}, max(temperature_c) FROM rows GROUP BY ALL"))
equal("least memory", steps("memory_used_mb", "min", "model"), table(f"SELECT model, {hour}, min(memory_used_mb) FROM rows GROUP BY ALL"))
equal("values", steps("utilization_pct", "count", "all"), table(f"SELECT {hour}, count(utilization_pct) FROM rows GROUP BY ALL"))
equal("newest", steps("gpu_clock_mhz", "last", "gpu"), table(f"SELECT uuid, {hour}, arg_max(gpu_clock_mhz, timestamp_ns) FROM rows GROUP BY ALL"))
equal("median", steps("power_w", "p50", "node"), table(f"SELECT node, {hour}, quantile_disc(power_w, 0.5) FROM rows GROUP BY ALL"), 0.01)
growth = f"""
    SELECT uuid, hour, sum(greatest(energy_mj - before, 0)) FROM (
        SELECT uuid, {hour} AS hour, energy_mj,
               lag(energy_mj, 1, energy_mj) OVER (PARTITION BY uuid ORDER BY timestamp_ns) AS before FROM rows)
    GROUP BY ALL"""
equal("energy", steps("energy_mj", "increase", "gpu"), table(growth))
where = steps("power_w", "mean", "gpu", where="node=~.*-01")
equal("one host", where, table(f"SELECT uuid, {hour}, avg(power_w::DOUBLE) FROM rows WHERE node LIKE '%-01' GROUP BY ALL"))
best = api("query", metrics="power_w", aggregate="mean", step="1d", start=START, end=END, top=3)["series"]
ranked = sql("SELECT uuid FROM rows GROUP BY uuid ORDER BY avg(power_w::DOUBLE) DESC LIMIT 3")
check("hungriest", [series["group"] for series in best], [uuid for (uuid,) in ranked])

mean = sql("SELECT avg(power_w::DOUBLE) FROM rows")[0][0]
frames = [polars.scan_parquet(file) for file in files]
lazy = polars.concat(frames, how="diagonal_relaxed")
found = lazy.select(polars.len(), polars.col("power_w").cast(polars.Float64).mean()).collect().row(0)
check("rows in Polars", found[0], total)
check("mean in Polars", found[1], mean, 1e-6)
check("Polars's type of power", lazy.collect_schema()["power_w"], polars.Float32)
joules = lazy.select((polars.col("energy_mj") / 1000).max()).collect().item()
check("energy in Polars", joules, sql("SELECT max(energy_mj) FROM rows")[0][0] / 1000, 1e-9)
frame = pandas.concat([pandas.read_parquet(file) for file in files])
check("rows in pandas", len(frame), total)
check("mean in pandas", float(frame["power_w"].mean()), mean, 1e-5)
for name in ("power_w", "temperature_c", "utilization_pct", "energy_mj", "pcie_rx_bytes_per_s"):
    found = float((frame[name] * 1.5).max())
    check(f"1.5 times {name} in pandas", found, 1.5 * float(sql(f"SELECT max({name}) FROM rows")[0][0]), 1e-6)

print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
