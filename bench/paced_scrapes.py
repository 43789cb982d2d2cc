"""Scrapes a URL 50 times a second over one connection: `paced_scrapes.py NAME URL`. Prints how long the answers took.

wrk cannot do this: with a delay between two requests it counts its own timers in.
"""
import http.client
import sys
import time
from urllib.parse import urlsplit

PERIOD, SCRAPES = 0.02, 1000

name, url = sys.argv[1], urlsplit(sys.argv[2])
connection = http.client.HTTPConnection(url.hostname, url.port)
took, size, series = [], 0, 0
start = time.perf_counter()
for scrape in range(SCRAPES):
    time.sleep(max(0.0, start + scrape * PERIOD - time.perf_counter()))
    asked = time.perf_counter()
    connection.request("GET", url.path)
    body = connection.getresponse().read()
    took.append((time.perf_counter() - asked) * 1e3)
    if not scrape:
        size, series = len(body), sum(not line.startswith(b"#") for line in body.splitlines())
took.sort()
at = lambda share: took[min(len(took) - 1, int(len(took) * share))]
print(f"{name:<44} p50 {at(0.5):.2f} ms  p99 {at(0.99):.2f} ms  longest {took[-1]:.2f} ms  {series} series {size} bytes")
