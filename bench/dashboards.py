"""What so many open dashboards ask, each every five seconds: URL PEOPLE SECONDS. Prints the share of answers that were ready."""

import asyncio
import json
import sys
import time
import urllib.request

url, people, seconds = sys.argv[1].rstrip("/"), int(sys.argv[2]), float(sys.argv[3])
first = json.load(urllib.request.urlopen(f"{url}/api/v1/gpus?limit=1"))["gpus"][0]["id"]


def stats():
    found = json.load(urllib.request.urlopen(f"{url}/stats"))
    found = found.get("gateway", found)
    return found["cache_hits"], found["cache_misses"]


def paths():
    """The page's questions: ranges end on whole steps, so that all who look ask the same."""
    end = int(time.time()) // 10 * 10
    charts = ["power_w", "utilization_pct", "temperature_c", "memory_used_mb", "gpu_clock_mhz", "throttled"]
    yield "/api/v1/gpus?limit=1000"
    yield "/api/v1/analysis/findings"
    for metric in charts:
        yield f"/api/v1/query?metrics={metric}&gpus={first}&start={end - 3600}&end={end}&step=10s"


async def person(number):
    took = []
    await asyncio.sleep(5 * number / people)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        round_began = time.monotonic()
        for path in paths():
            began = time.monotonic()
            await asyncio.to_thread(lambda: urllib.request.urlopen(url + path).read())
            took.append(time.monotonic() - began)
        await asyncio.sleep(max(0, 5 - (time.monotonic() - round_began)))
    return took


async def main():
    hits, misses = stats()
    took = sorted(sum(await asyncio.gather(*map(person, range(people))), []))
    now = stats()
    hits, misses = now[0] - hits, now[1] - misses
    print(f"{people} dashboards: {len(took)} answers, {100 * hits / max(hits + misses, 1):.0f} % of them ready, "
          f"p50 {1000 * took[len(took) // 2]:.1f} ms, p99 {1000 * took[int(0.99 * len(took))]:.1f} ms")


asyncio.run(main())
