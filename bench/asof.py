"""Asks for the fleet as of instants of the past: asof.py URL END DAYS INSTANT...; END is the newest row, and
rows go back so many days; times are RFC 3339.

Each instant is asked for first, when nothing of it is ready, then others around it, each another one.
"""

import datetime
import http.client
import json
import statistics
import sys
import time
from urllib.parse import urlencode, urlsplit

url, end, history_days, instants = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
# How many others are asked for, and how far they are apart: none is kept from the one before.
OTHERS, APART_S = 6, 7
CARDS = 20
# How many of them the page asks for with one question (`dashboard/src/parts/findings/together.ts`).
TOGETHER = 16
place = urlsplit(url).netloc
connection = http.client.HTTPConnection(place, timeout=120)


def ask(path, **question):
    """The answer, and the seconds that it took."""
    began = time.perf_counter()
    connection.request("GET", f"/api/v1/{path}?{urlencode(question)}")
    response = connection.getresponse()
    body = response.read()
    took = time.perf_counter() - began
    if response.status != 200:
        sys.exit(f"{path}: {response.status} {body[:300].decode()}")
    return body, took


def moved(instant, seconds):
    moment = datetime.datetime.fromisoformat(instant.replace("Z", "+00:00")) + datetime.timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def judged(at):
    """All that a page asks of an instant: the state of the fleet alone, findings, the map with judgements and a value, hosts, free GPUs."""
    took = {}
    _, took["state"] = ask("gpus", at=at, limit=10_000, metrics="power_w", format="csv")
    findings, took["findings"] = ask("analysis/findings", at=at, limit=500)
    _, took["map"] = ask("gpus", at=at, limit=10_000, metrics="power_w")
    _, took["hosts"] = ask("hosts", at=at, limit=10_000)
    _, took["hints"] = ask("schedule/hints", at=at, limit=1000)
    return json.loads(findings), took


def until_found(took):
    """What somebody waits for the findings of an instant that nobody has asked about: the state is read for them, too."""
    return took["state"] + took["findings"]


def verdict(what, seconds, bound):
    word = "met" if seconds <= bound else "NOT MET"
    print(f"{what:<58}{seconds * 1e3:9.0f} ms  of {bound * 1e3:5.0f} ms, ratio {seconds / bound:5.2f}: {word}")


def charts(findings, instant):
    """The pictures of the first cards: the power of each one's host around its beginning, a step a minute."""
    hosts = [found["reach"]["hostname"] for found in findings["findings"] if found["reach"]["hostname"] is not None][:CARDS]
    if not hosts:
        print(f"as of {instant} nothing is found on a host: no chart is measured")
        return
    took = 0
    for first in range(0, len(hosts), TOGETHER):
        some = ",".join(hosts[first : first + TOGETHER])
        took += ask("query", metrics="power_w", host=some, start=moved(instant, -3600), end=instant, step="60s")[1]
    verdict(f"charts of {len(hosts)} findings, asked for as the page does", took, 0.05)


found = None
for instant in instants:
    findings, first = judged(instant)
    found = found or (findings, instant)
    print(f"as of {instant}: {findings['total']} findings; first " + ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in first.items()))
    others = [judged(moved(instant, -APART_S * (number + 1)))[1] for number in range(OTHERS)]
    verdict("  first, state and findings", until_found(first), 1)
    verdict(f"  others, state and findings: the slowest of {OTHERS}", max(until_found(other) for other in others), 1)
    for name in first:
        verdict(f"  others, {name} alone: the slowest", max(other[name] for other in others), 1)
    median = statistics.median(sum(other.values()) for other in others)
    verdict("  others, all five questions: median", median, 1)
charts(*found)
for days in (days for days in (1, 7, 30) if days <= history_days):
    step = {1: "900s", 7: "3600s", 30: "21600s"}[days]
    question = {"by": "namespace", "top": 5, "step": step, "start": moved(end, -86_400 * days), "end": end}
    took = [ask("analysis/usage", **{**question, "end": moved(end, -number)})[1] for number in range(4)]
    verdict(f"the fleet over {days} days, by namespace: first", took[0], 1)
    verdict("  again, each another end: median", statistics.median(took[1:]), 1)
