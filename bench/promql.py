"""bench/promql: the samples of a gateway as OpenMetrics, and the same PromQL asked of it and of Prometheus."""

import json
import math
import statistics
import sys
import time
from urllib.parse import urlencode
from urllib.request import urlopen

START = 1767225600  # 2026-01-01T00:00:00Z, where bench/rows.awk begins
METRICS = ("gpu_power_watts", "gpu_utilization_ratio")
QUESTIONS = (
    ("one GPU, 1 h by minute", 'gpu_power_watts{uuid=~".*000012"}', 60),
    ("one GPU, mean of 5 min by minute", 'avg_over_time(gpu_power_watts{uuid=~".*000012"}[5m])', 60),
    ("all GPUs, sum by minute", "sum(gpu_power_watts)", 60),
    ("all GPUs, mean by host, by minute", "avg by (node) (gpu_utilization_ratio)", 60),
    ("all GPUs, p99 by minute", "quantile(0.99, gpu_power_watts)", 60),
    ("top 10 of all GPUs by minute", "topk(10, gpu_power_watts)", 60),
    ("all GPUs, sum by 15 s", "sum(gpu_power_watts)", 15),
    ("all GPUs, largest of 5 min by minute", "max(max_over_time(gpu_power_watts[5m]))", 60),
    ("all GPUs, p99 of 5 min of each by 5 min", "avg(quantile_over_time(0.99, gpu_power_watts[5m]))", 300),
)


def ask(url, path, parameters):
    with urlopen(f"{url}{path}?{urlencode(parameters)}") as answer:
        answer = json.load(answer)
    assert not answer.get("warnings"), answer["warnings"]
    return answer["data"]["result"]


def samples(url):
    base = url + "api/v1/prom/api/v1/"
    end = START + 7200
    for metric in METRICS:
        names = ask_series(base, metric)
        for uuid in names:
            for line in ask(base, "query", {"query": f'{metric}{{uuid="{uuid}"}}[2h]', "time": end}):
                labels = ",".join(f'{k}="{v}"' for k, v in sorted(line["metric"].items()) if k != "__name__")
                for at, value in line["values"]:
                    print(f"{metric}{{{labels}}} {value} {at}.0001")
    print("# EOF")


def ask_series(base, metric):
    with urlopen(f"{base}series?{urlencode({'match[]': metric})}") as answer:
        return sorted(series["uuid"] for series in json.load(answer)["data"])


def timed(url, query, step, seconds):
    """Milliseconds of each of several questions, each for another range, and the values of the first."""
    taken, values = [], None
    for shift in range(7):
        begin = time.perf_counter()
        # Between two samples: version 2 has one at the beginning of a range in it, ours and version 3 have not.
        start = START + 300.5 + shift
        parameters = {"query": query, "start": start, "end": start + seconds - 600, "step": step}
        found = ask(url, "query_range", parameters)
        taken.append((time.perf_counter() - begin) * 1e3)
        if values is None:
            values = sorted(float(value) for series in found for _, value in series["values"])
    return taken, values


def main():
    if sys.argv[1] == "samples":
        return samples(sys.argv[2])
    ours, theirs, seconds = sys.argv[2] + "api/v1/prom/api/v1/", sys.argv[3] + "api/v1/", int(sys.argv[4])
    print(f"{'':44} {'ours ms':>9} {'theirs ms':>9} {'ratio':>6}  (median of 7, the first of each apart)")
    for name, query, step in QUESTIONS:
        own, values = timed(ours, query, step, seconds)
        peer, others = timed(theirs, query, step, seconds)
        same = len(values) == len(others) and all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(values, others))
        assert same, f"{name}: the answers differ"
        a, b = statistics.median(own[1:]), statistics.median(peer[1:])
        print(f"{name:44} {a:9.1f} {b:9.1f} {b / a:6.2f}  first {own[0]:.0f} and {peer[0]:.0f}, {len(values)} points")


main()
