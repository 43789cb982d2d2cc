"""A loop of COPY, as people write it: postgres.py HOST DBNAME USER GPUS SECONDS; the rows of crates/postgres/examples/ingest.rs.

The rows are text before the clock starts, ten seconds of all GPUs a transaction, into a table with the same columns and keys.
"""

import sys
import time

import psycopg

host, dbname, user = sys.argv[1:4]
gpus, seconds = int(sys.argv[4]), int(sys.argv[5])
START = 1_795_132_800_000_000_000
METRICS = (
    ("gpu_clock_mhz", 1_200, 700),
    ("mem_clock_mhz", 1_500, 3),
    ("temperature_c", 40, 40),
    ("power_w", 100, 600),
    ("memory_used_mb", 1_000, 70_000),
    ("utilization_pct", 0, 100),
    ("energy_mj", 1_000_000, 1_000_000),
    ("encoder_utilization_pct", 0, 100),
    ("memory_total_mb", 81_559, 1),
    ("encoder_sessions", 0, 8),
)


def block(first):
    lines = []
    for second in range(first, first + 10):
        for gpu in range(gpus):
            values = [least + (gpu * 7 + second * place) % many for place, (_, least, many) in enumerate(METRICS, 1)]
            head = (gpu + 1, START + second * 1_000_000_000, gpu // 8 + 1)
            lines.append("\t".join(map(str, (*head, *values))))
    return ("\n".join(lines) + "\n").encode()


blocks = [block(first) for first in range(0, seconds, 10)]
with psycopg.connect(host=host, dbname=dbname, user=user, autocommit=True) as connection:
    connection.execute("DROP TABLE IF EXISTS plain")
    connection.execute("CREATE TABLE plain (LIKE gpu_events INCLUDING ALL) PARTITION BY RANGE (timestamp_ns)")
    day = f"FROM ({START}) TO ({START + 86_400_000_000_000})"
    connection.execute(f"CREATE TABLE plain_day PARTITION OF plain FOR VALUES {day}")
    columns = ", ".join(["subject_id", "timestamp_ns", "identity_id"] + [column for column, *_ in METRICS])
    start = time.perf_counter()
    for rows in blocks:
        with connection.transaction(), connection.cursor() as cursor, cursor.copy(f"COPY plain ({columns}) FROM STDIN") as copy:
            copy.write(rows)
    took = time.perf_counter() - start
    print(f"{gpus * seconds / took:.0f} rows/s, a loop of COPY")
