"""Readers of an API for a while: URL PID SECONDS STREAMS POLLERS DEAF.

STREAMS live streams of everything are read; POLLERS ask what the pages of the dashboard ask, as often as these do; DEAF streams of
everything read nothing, for the second third of the time. Prints the memory of the server: before, every ten seconds at most, and
80 seconds after the deaf ones have gone."""

import asyncio
import datetime
import sys
import time

url, pid, seconds, streams, pollers, deaf = sys.argv[1].rstrip("/"), *map(int, sys.argv[2:])
host, port = url.removeprefix("http://").split(":")
GIVEN_BACK_S = 80
# Path, and seconds between two questions. {hour}: an hour ago; {day}: a day ago.
ASKED = [
    ("/api/v1/analysis/findings", 5),
    ("/api/v1/gpus?limit=100&include=metrics", 5),
    ("/api/v1/gpus?limit=10000", 10),
    ("/api/v1/gpus?limit=10000&metrics=power_w", 5),
    ("/api/v1/gpus?state=stale&limit=1", 10),
    ("/api/v1/hosts?limit=1000", 60),
    ("/api/v1/schedule/hints?limit=1000", 60),
    ("/api/v1/query?metrics=power_w,utilization_pct&start={hour}&group_by=node&step=60s", 60),
    ("/api/v1/analysis/energy?start={day}&by=namespace", 60),
    ("/api/v1/analysis/idle?start={day}&by=namespace", 60),
]


def memory(which="VmRSS"):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(which))


async def send(path, limit):
    reader, writer = await asyncio.open_connection(host, int(port), limit=limit)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\naccept-encoding: gzip\r\nconnection: close\r\n\r\n".encode())
    return reader, writer


async def follow(until):
    reader, writer = await send("/api/v1/stream", 1 << 22)
    while time.monotonic() < until:
        try:
            if not await asyncio.wait_for(reader.read(1 << 16), until - time.monotonic()):
                break
        except asyncio.TimeoutError:
            break
    writer.close()


async def poll(path, every, until, refused):
    while time.monotonic() < until:
        now = datetime.datetime.now(datetime.timezone.utc)
        ago = lambda hours: (now - datetime.timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
        reader, writer = await send(path.format(hour=ago(1), day=ago(24)), 1 << 20)
        status = (await reader.readline()).split()[1:2]
        while await reader.read(1 << 16):
            pass
        writer.close()
        if status != [b"200"]:
            refused[path.split("?")[0]] = refused.get(path.split("?")[0], 0) + 1
        await asyncio.sleep(min(every, max(until - time.monotonic(), 0)))


async def hold_deaf(began):
    await asyncio.sleep(seconds / 3)
    before = memory()
    open_ones = [await send("/api/v1/stream", 1 << 12) for _ in range(deaf)]
    while time.monotonic() < began + 2 * seconds / 3:
        await asyncio.sleep(5)
    held = memory()
    for _, writer in open_ones:
        writer.transport.abort()
    await asyncio.sleep(GIVEN_BACK_S)
    print(f"{deaf} streams that read nothing: RSS {before:.0f} MiB before, {held:.0f} with them, "
          f"{memory():.0f} {GIVEN_BACK_S} s after they went", flush=True)


async def watch(began):
    while (left := began + seconds - time.monotonic()) > 0:
        await asyncio.sleep(min(60, left))
        print(f"after {time.monotonic() - began:4.0f} s: RSS {memory():.0f} MiB, peak {memory('VmHWM'):.0f}", flush=True)


async def main():
    began, refused = time.monotonic(), {}
    until = began + seconds
    work = [follow(until) for _ in range(streams)]
    work += [poll(path, every, until, refused) for _ in range(pollers) for path, every in ASKED]
    work += [hold_deaf(began)] if deaf else []
    await asyncio.gather(watch(began), *work)
    print(f"{streams} streams, {pollers} pollers: not answered with 200: {refused or 'none'}")


asyncio.run(main())
