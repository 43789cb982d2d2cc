"""Stores under one interface: each takes the rows, settles, and answers the same six questions; bench/store.py measures them."""

import concurrent.futures
import http.client
import json
import os
import pwd
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import urlencode

import duckdb
import numpy as np
import psycopg
import pyarrow as pa

from store_rows import METRICS, SCHEMA, START_MS, identities

BATCH = 10_000
LATEST = ("power_w", "utilization_pct", "temperature_c", "memory_used_mb")
MINUTE_MS, TOP_MS = 60_000, 600_000
TICK = os.sysconf("SC_CLK_TCK")


def cpu_of(pid):
    """Seconds of CPU of a process and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / TICK


def peak_of(pid):
    """The most resident memory so far, MiB; none if it has ended."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return found and int(found[1]) / 1024


def bytes_under(folder, pattern="**/*"):
    return sum(file.stat().st_size for file in Path(folder).glob(pattern) if file.is_file())


class Data:
    """The rows, and what is asked about them."""

    def __init__(self, folder, gpus, seconds):
        self.folder, self.gpus, self.seconds, self.rows = folder, gpus, seconds, gpus * seconds
        self.names = identities(gpus)
        self.one = gpus // 2
        self.end_ms = START_MS + seconds * 1000

    def batches(self, rows=BATCH):
        """Whole seconds of all GPUs, or an equal share of the GPUs of one second, of about so many rows."""
        shares = next(shares for shares in range(1, self.gpus + 1) if self.gpus % shares == 0 and self.gpus // shares <= rows)
        length = self.gpus // shares * max(1, rows // self.gpus)
        with pa.OSFile(str(self.folder / "rows.arrow")) as file:
            reader = pa.ipc.open_file(file)
            for place in range(reader.num_record_batches):
                chunk = reader.get_batch(place)
                yield from (chunk.slice(first, length) for first in range(0, len(chunk), length))


class Store:
    """A contestant. `ask` gives an answer, and `number` reduces it to one figure, which must be the same for all."""

    pid, before = None, 0.0

    def __init__(self, data, work):
        self.data, self.home = data, work / type(self).__name__.lower()
        self.home.mkdir()
        os.chmod(self.home, 0o777)

    def cpu(self):
        return cpu_of(self.pid)

    def peak(self):
        return peak_of(self.pid)

    def ingested(self):
        """Takes all rows and settles: seconds of both, seconds of CPU of both, most memory in MiB, bytes at the end."""
        took = self.ingest()
        cpu = self.cpu() - self.before
        began = time.perf_counter()
        size = self.settle()
        settled = time.perf_counter() - began
        return took, settled, cpu, self.cpu() - self.before - cpu, self.peak(), size

    def forget(self):
        """Drops the pages of the store's files from the cache."""
        os.sync()
        for file in self.home.glob("**/*"):
            if file.is_file():
                with file.open("rb") as opened:
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Server(Store):
    """A child process that speaks HTTP."""

    child = None

    def launch(self, *command):
        self.log = (self.home.parent / f"{self.home.name}.log").open("w+")
        self.child = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        self.pid = self.child.pid

    def stop(self):
        """Ends it; gives the seconds of CPU of its whole life, and its peak in MiB."""
        if self.child is not None:
            self.connection.close()
            self.child.send_signal(signal.SIGTERM)
            return self.wait()

    def wait(self):
        # The peak that wait4 tells would be that of this process, if it was larger.
        peak = 0
        while True:
            peak = max(peak, peak_of(self.child.pid) or 0)
            pid, status, usage = os.wait4(self.child.pid, os.WNOHANG)
            if pid:
                assert status == 0, status
                self.child.returncode, self.child = 0, None
                return usage.ru_utime + usage.ru_stime, peak
            time.sleep(0.01)

    def get(self, path, **parameters):
        self.connection.request("GET", path + "?" * bool(parameters) + urlencode(parameters, doseq=True))
        answer = self.connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (answer.status, path, body[:500])
        return body


class Ours(Server):
    """CSV → queue → collector → log, synced → store, in one process: `gpuvitals up`. It is asked for ranges that begin anywhere,
    whose first minute is made of rows, or, if `whole`, for whole minutes, of which it has rollups."""

    whole = False

    def __init__(self, data, work, binary):
        super().__init__(data, work)
        self.binary, self.dir = binary, self.home / "data"

    def start(self, *source):
        source = source or ("--source", "none")
        self.launch(self.binary, "up", *source, "--data-dir", self.dir, "--port", "0", "--log-level", "warn")
        while not (found := re.search(r"http://127.0.0.1:(\d+)/", Path(self.log.name).read_text())):
            assert self.child.poll() is None, Path(self.log.name).read_text()
            time.sleep(0.01)
        self.connection = http.client.HTTPConnection("127.0.0.1", int(found[1]))

    def ingest(self):
        began = time.perf_counter()
        self.start("--replay", self.data.folder / "rows.csv")
        while json.loads(self.get("/stats"))["source"]["rows_stored"] < self.data.rows:
            time.sleep(0.05)
        return time.perf_counter() - began

    def ingested(self):
        took, cpu = self.ingest(), self.cpu()
        began = time.perf_counter()
        whole, peak = self.stop()
        self.child = subprocess.Popen([self.binary, "store", "compact", "--data-dir", self.dir], stdout=subprocess.DEVNULL)
        merge, merge_peak = self.wait()
        settled = time.perf_counter() - began
        size = bytes_under(self.dir, "raw/**/*.parquet")
        rollups = bytes_under(self.dir, "1*/**/*.parquet") / size
        print(
            f"peak of taking rows {peak:.0f} MiB, of the merge {merge_peak:.0f}; not counted: rollups, {rollups:.0%} of the bytes"
        )
        return took, settled, cpu, whole - cpu + merge, max(peak, merge_peak), size

    def ask(self, question, shift):
        one, end = self.data.names[self.data.one][0], self.data.end_ms
        times = lambda start: (start, end * 10**6 - 1 + shift) if self.whole else (start + shift, end * 10**6 - 1)

        def query(start, **more):
            start, end = times(start)
            return self.get("/api/v1/query", metrics="power_w", start=start, end=end, **more)

        match question:
            case "latest":
                # What was asked and nothing else, as the others answer.
                return self.get(
                    "/api/v1/gpus", format="arrow", metrics=",".join(LATEST), limit=min(self.data.gpus + shift, 10_000)
                )
            case "raw":
                return self.get(f"/api/v1/gpus/{one}/telemetry", limit=500, end_time=end - shift)
            case "one":
                return query(START_MS, gpus=one, aggregate="mean,max,p99", step="60s")
            case "fleet":
                return query(START_MS, group_by="all", aggregate="mean,max,p99", step="60s")
            case "fleet avg/max":
                return query(START_MS, group_by="all", aggregate="mean,max", step="60s")
            case "top":
                return query(self.data.end_ms - TOP_MS, aggregate="mean", step="600s", top=10)

    def number(self, question, body):
        if question == "latest":
            return sum(pa.ipc.open_stream(body).read_all()["power_w"].to_pylist())
        answer = json.loads(body)
        match question:
            case "raw":
                return len(answer["data"])
            case "top":
                return sum(sum(series["values"]) for series in answer["series"])
        return sum(sum(series["values"]) for series in answer["series"] if series["aggregate"] != "p99")


class VictoriaMetrics(Server):
    """Prometheus remote write: protobuf under snappy, which is encoded before the clock starts; two connections. As Prometheus
    and vmagent send it, at most 10,000 samples a request; of a series a request has one sample."""

    request_rows = BATCH // len(METRICS)

    def start(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = {
            "storageDataPath": self.home / "data",
            "httpListenAddr": f"127.0.0.1:{self.port}",
            "retentionPeriod": "100y",
            "loggerLevel": "ERROR",
        }
        self.launch("victoria-metrics", *(f"-{name}={value}" for name, value in options.items()))
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port)
        while True:
            try:
                return self.get("/health")
            except OSError:
                self.connection.close()
                assert self.child.poll() is None, Path(self.log.name).read_text()
                time.sleep(0.01)

    def requests(self):
        """Batches of rows as remote write has them: of each series its labels and its few samples, all of a fixed size."""

        def label(name, value):
            pair = b"\x0a" + bytes([len(name)]) + name.encode() + b"\x12" + bytes([len(value)]) + value.encode()
            return b"\x0a" + bytes([len(pair)]) + pair

        def varint(number):
            groups = []
            while number > 127:
                groups.append(number & 127 | 128)
                number >>= 7
            return bytes([*groups, number])

        heads = [
            [
                b"".join(map(label, ("__name__", "index", "model", "node", "uuid"), (name, str(index), model, node, uuid)))
                for uuid, node, model, index in self.data.names
            ]
            for name in METRICS
        ]
        heads = [np.array([list(head) for head in of_metric], np.uint8) for of_metric in heads]
        pool = concurrent.futures.ThreadPoolExecutor(2)

        def encode(batch):
            gpus = min(self.data.gpus, len(batch))
            at = batch["ts"].to_numpy().reshape(-1, gpus).T
            gpu = batch["gpu"].to_numpy()[:gpus]
            groups = [at >> 7 * place & 127 | (128 if place < 5 else 0) for place in range(6)]
            message = []
            for name, head in zip(METRICS, heads):
                values = batch[name].to_numpy().astype("<f8").reshape(-1, gpus).T
                samples = np.empty((*at.shape, 18), np.uint8)
                samples[:, :, :3] = (0x12, 16, 0x09)
                samples[:, :, 3:11] = np.ascontiguousarray(values).view(np.uint8).reshape(*at.shape, 8)
                samples[:, :, 11] = 0x10
                samples[:, :, 12:] = np.stack(groups, axis=2)
                samples = samples.reshape(gpus, -1)
                opening = b"\x0a" + varint(head.shape[1] + samples.shape[1])
                opening = np.tile(np.frombuffer(opening, np.uint8), (gpus, 1))
                message.append(np.hstack([opening, head[gpu], samples]).tobytes())
            return pa.compress(b"".join(message), codec="snappy", asbytes=True)

        return list(pool.map(encode, self.data.batches(self.request_rows)))

    def ingest(self):
        self.start()
        requests = iter(self.requests())
        self.before = self.cpu()
        headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }

        def send():
            connection = http.client.HTTPConnection("127.0.0.1", self.port)
            for body in requests:
                connection.request("POST", "/api/v1/write", body, headers)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 204, answer.status

        began = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for sender in [pool.submit(send), pool.submit(send)]:
                sender.result()
        return time.perf_counter() - began

    def figure(self, name):
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.get("/metrics").decode().splitlines() if line.startswith(name))

    def settle(self):
        # It closes a connection that was idle for a minute.
        self.connection.close()
        self.get("/internal/force_flush")
        time.sleep(2)
        self.get("/internal/force_merge")
        time.sleep(1)
        while self.figure("vm_active_force_merges") + self.figure("vm_active_merges"):
            time.sleep(0.2)
        assert self.figure("vm_rows{") >= self.data.rows * len(METRICS)
        return bytes_under(self.home / "data", "data/**/*") + bytes_under(self.home / "data", "indexdb/**/*")

    def ask(self, question, shift):
        uuid = f'uuid="{self.data.names[self.data.one][0]}"'
        end = self.data.end_ms - 1 + shift
        at = lambda query: self.get("/api/v1/query", query=query, time=end / 1e3, nocache=1)
        steps = lambda query: self.get(
            "/api/v1/query_range",
            query=query,
            start=(START_MS + MINUTE_MS - 1 + shift) / 1e3,
            end=end / 1e3,
            step="60s",
            nocache=1,
        )
        power = f"power_w{{{uuid}}}[1m]"
        alias = lambda query, name: f'alias({query}, "{name}")'
        union = lambda **series: "union(" + ", ".join(alias(query, name) for name, query in series.items()) + ")"
        match question:
            case "latest":
                return at(f'{{__name__=~"{"|".join(LATEST)}"}}')
            case "raw":
                return self.get(
                    "/api/v1/export", **{"match[]": f"{{{uuid}}}", "start": (end - 500_000 + 1) / 1e3, "end": end / 1e3}
                )
            case "one":
                return steps(
                    union(mean=f"avg_over_time({power})", max=f"max_over_time({power})", p99=f"quantile_over_time(0.99, {power})")
                )
            case "fleet":
                p99 = "quantile(0.99, quantile_over_time(0.99, power_w[1m]))"
                return steps(union(mean="avg(avg_over_time(power_w[1m]))", max="max(max_over_time(power_w[1m]))", p99=p99))
            case "fleet avg/max":
                return steps(union(mean="avg(avg_over_time(power_w[1m]))", max="max(max_over_time(power_w[1m]))"))
            case "top":
                return at("topk(10, avg_over_time(power_w[10m]))")

    def number(self, question, body):
        if question == "raw":
            series = [json.loads(line) for line in body.splitlines()]
            assert len(series) == len(METRICS)
            return len(series[0]["values"])
        series = json.loads(body)["data"]["result"]
        match question:
            case "latest":
                return sum(float(one["value"][1]) for one in series if one["metric"]["__name__"] == "power_w")
            case "top":
                return sum(float(one["value"][1]) for one in series)
        return sum(float(value) for one in series if one["metric"]["__name__"] != "p99" for _, value in one["values"])


class VictoriaMetricsInBulk(VictoriaMetrics):
    """The same with 10,000 rows a request, several samples of a series, whose labels are sent and parsed once."""

    request_rows = BATCH


class Sql(Store):
    """Stores that are asked in SQL."""

    rows, gpu, time, unit, divide = "rows", "gpu", "ts", 1, "//"
    connection = None

    def sql(self, question, shift):
        """The question; `shift` milliseconds make each a new one."""
        start, end = (START_MS + shift) * self.unit, self.data.end_ms * self.unit
        within = lambda least, most=end: f"FROM {self.rows} WHERE {self.time} >= {least} AND {self.time} < {most}"
        minute = f"SELECT {self.time} {self.divide} {MINUTE_MS * self.unit}, avg(power_w), max(power_w)"
        grouped = "GROUP BY 1 ORDER BY 1"
        match question:
            case "latest":
                return self.latest(end - (MINUTE_MS - shift) * self.unit)
            case "raw":
                rows = f"SELECT {self.time}, {', '.join(METRICS)} {within(start, end - shift * self.unit)}"
                return f"{rows} AND {self.one()} ORDER BY {self.time} DESC LIMIT 500"
            case "one":
                return f"{minute}, {self.p99} {within(start)} AND {self.one()} {grouped}"
            case "fleet":
                return f"{minute}, {self.p99} {within(start)} {grouped}"
            case "fleet avg/max":
                return f"{minute} {within(start)} {grouped}"
            case "top":
                start = end - (TOP_MS - shift) * self.unit
                return f"SELECT {self.gpu}, avg(power_w) {within(start)} GROUP BY 1 ORDER BY 2 DESC LIMIT 10"

    def one(self):
        return f"gpu = {self.data.one}"

    def ask(self, question, shift):
        return self.connection.execute(self.sql(question, shift)).fetchall()

    def number(self, question, rows):
        match question:
            case "raw":
                return len(rows)
            case "latest" | "top":
                return float(sum(row[1] for row in rows))
        return float(sum(float(row[1]) + float(row[2]) for row in rows))


class PostgreSQL(Sql):
    """Its own server with the default settings; COPY BINARY into one table, a transaction a batch."""

    divide = "/"
    p99 = "percentile_disc(0.99) WITHIN GROUP (ORDER BY power_w)"
    types = {
        pa.float32(): ("real", ">f4"),
        pa.float64(): ("double precision", ">f8"),
        pa.int32(): ("integer", ">i4"),
        pa.int64(): ("bigint", ">i8"),
    }

    def __init__(self, data, work, programs):
        super().__init__(data, work)
        self.programs, self.folder = programs, self.home / "data"
        # The server refuses to run as root.
        group = pwd.getpwnam("nobody").pw_gid
        self.user = {"user": "nobody", "group": group, "extra_groups": []} if os.getuid() == 0 else {}
        self.program("initdb", "--auth=trust", "--username=gpu", "--encoding=UTF8", "--locale=C", "-D", self.folder)
        settings = f"unix_socket_directories = '{self.home}'\nlisten_addresses = ''\n"
        with (self.folder / "postgresql.conf").open("a") as file:
            file.write(settings)

    def program(self, name, *arguments):
        command = [f"{self.programs}/{name}", *map(str, arguments)]
        subprocess.run(
            command,
            check=True,
            cwd=self.home,
            env=os.environ | {"TZ": "UTC"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self.user,
        )

    def start(self):
        self.program("pg_ctl", "start", "-w", "-D", self.folder, "-l", self.home / "log")
        self.pid = int((self.folder / "postmaster.pid").read_text().split()[0])
        self.connection = psycopg.connect(host=str(self.home), dbname="postgres", user="gpu", autocommit=True)

    def stop(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None
            self.program("pg_ctl", "stop", "-m", "fast", "-w", "-D", self.folder)

    def latest(self, start):
        newest = f"SELECT {', '.join(LATEST)} FROM rows WHERE gpu = fleet.gpu AND ts >= {start} ORDER BY ts DESC LIMIT 1"
        fleet = f"generate_series(0, {self.data.gpus - 1}) AS fleet(gpu)"
        return f"SELECT fleet.gpu, newest.* FROM {fleet}, LATERAL ({newest}) AS newest"

    def children(self):
        return Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()

    def cpu(self):
        return sum(map(cpu_of, [self.pid, *self.children()]))

    def peak(self):
        return peak_of(self.connection.info.backend_pid)

    def ingest(self):
        self.start()
        columns = {"gpu": pa.int32(), "ts": pa.int64()} | METRICS
        self.connection.execute(
            f"CREATE TABLE rows ({', '.join(f'{name} {self.types[kind][0]}' for name, kind in columns.items())})"
        )
        self.connection.execute("CREATE INDEX ON rows (gpu, ts)")
        self.connection.execute("CREATE INDEX ON rows USING brin (ts)")
        form = [("fields", ">i2")]
        for name, kind in columns.items():
            form += [(f"{name} length", ">i4"), (name, self.types[kind][1])]

        def encode(batch):
            rows = np.empty(len(batch), np.dtype(form))
            rows["fields"] = len(columns)
            for name in columns:
                rows[name] = batch[name].to_numpy()
                rows[f"{name} length"] = rows.dtype[name].itemsize
            return b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows.tobytes() + b"\xff\xff"

        batches = [encode(batch) for batch in self.data.batches()]
        began = time.perf_counter()
        for batch in batches:
            with self.connection.cursor() as cursor, cursor.copy("COPY rows FROM STDIN BINARY") as copy:
                copy.write(batch)
        return time.perf_counter() - began

    def settle(self):
        self.connection.execute("VACUUM ANALYZE rows")
        self.connection.execute("CHECKPOINT")
        return self.connection.execute("SELECT pg_total_relation_size('rows')").fetchone()[0]


class DuckDB(Sql):
    """In the process that asks: an INSERT of Arrow rows a batch, each a transaction. Memory and CPU include Python's."""

    p99 = "quantile_disc(power_w, 0.99)"

    def start(self):
        self.pid = os.getpid()
        self.connection = duckdb.connect(self.home / "rows.duckdb")

    def stop(self):
        if self.connection is not None:
            self.connection.close()

    def ingest(self):
        self.start()
        self.connection.from_arrow(SCHEMA.empty_table()).create("rows")
        self.before = self.cpu()
        began = time.perf_counter()
        for batch in self.data.batches():
            self.connection.from_arrow(pa.Table.from_batches([batch])).insert_into("rows")
        return time.perf_counter() - began

    def settle(self):
        self.connection.execute("CHECKPOINT")
        return bytes_under(self.home)

    def latest(self, start):
        newest = ", ".join(f"arg_max({name}, {self.time})" for name in LATEST)
        return f"SELECT {self.gpu}, {newest} FROM {self.rows} WHERE {self.time} >= {start} GROUP BY 1"


class OurFiles(DuckDB):
    """DuckDB over the Parquet files of our store."""

    gpu, time, unit = "uuid", "timestamp_ns", 1_000_000

    def __init__(self, data, work, ours):
        super().__init__(data, work)
        self.home = ours.home
        self.rows = f"read_parquet('{ours.dir}/raw/gpu_events/*/*.parquet', union_by_name = true)"

    def start(self):
        self.connection = duckdb.connect()

    def one(self):
        return f"uuid = '{self.data.names[self.data.one][0]}'"
