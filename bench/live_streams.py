"""Opens many live streams of an API and reads them for a while: URL CLIENTS SECONDS [PID].

Every stream follows one GPU. One client reads nothing, so that what is kept for it must stay bounded. Prints how many events came, the longest
silence of any stream, and the most memory of the server."""

import asyncio
import json
import sys
import time
import urllib.request

url, clients, seconds = sys.argv[1].rstrip("/"), int(sys.argv[2]), float(sys.argv[3])
host, port = url.removeprefix("http://").split(":")
gpus = [gpu["id"] for gpu in json.load(urllib.request.urlopen(f"{url}/api/v1/gpus?limit=10000"))["gpus"]]


def memory(which):
    with open(f"/proc/{sys.argv[4]}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(which))


def cpu():
    with open(f"/proc/{sys.argv[4]}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100


async def follow(number, until):
    """Events, refusals and the longest silence of one stream."""
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 22)
    gpu = gpus[number % len(gpus)]
    writer.write(f"GET /api/v1/stream?gpus={gpu}&metrics=power_w HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
    events, silence, last = 0, 0.0, time.monotonic()
    is_open = b" 200 " in await reader.readline()
    while is_open and (left := until - time.monotonic()) > 0:
        try:
            line = await asyncio.wait_for(reader.readline(), left)
        except asyncio.TimeoutError:
            break
        if not line:
            is_open = False
        if line.startswith(b"event: samples"):
            now = time.monotonic()
            events, silence, last = events + 1, max(silence, now - last), now
    writer.close()
    return events, silence, is_open


async def main():
    before, used = memory("VmRSS"), cpu()
    began = time.monotonic()
    # Reads nothing at all, of everything.
    deaf = await asyncio.open_connection(host, int(port), limit=1 << 12)
    deaf[1].write(f"GET /api/v1/stream HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
    told = await asyncio.gather(*(follow(number, began + seconds) for number in range(clients - 1)))
    took, peak, used = time.monotonic() - began, memory("VmHWM"), cpu() - used
    events = sum(events for events, _, _ in told)
    print(f"{clients} streams of {len(gpus)} GPUs for {took:.0f} s, one of which reads nothing: of the {len(told)} others "
          f"{sum(is_open for *_, is_open in told)} still open, "
          f"{events / took:.0f} events/s, longest silence {max(silence for _, silence, _ in told):.1f} s, "
          f"{used / took:.2f} of a core, memory {before:.0f} MiB before, {peak:.0f} MiB at most")


asyncio.run(main())
