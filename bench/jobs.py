"""Asks for jobs and what they used: jobs.py URL DAYS; the rows end on 2026-02-01 (bench/jobs).

Each question is asked several times, each time with another end, so that no answer is ready. One that is refused is said.
"""

import datetime
import http.client
import json
import statistics
import sys
import time
from urllib.parse import quote, urlencode, urlsplit

url, days = sys.argv[1], int(sys.argv[2])
TIMES = 7
END = datetime.datetime(2026, 2, 1, tzinfo=datetime.timezone.utc)
connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=300)


def ask(path, hours, number, question):
    """The answer, its status and its seconds; of a range that ends some seconds earlier for each number."""
    end = END - datetime.timedelta(seconds=number)
    instants = {"start": end - datetime.timedelta(hours=hours), "end": end}
    question = {**question, **{name: instant.strftime("%Y-%m-%dT%H:%M:%SZ") for name, instant in instants.items()}}
    began = time.perf_counter()
    connection.request("GET", f"/api/v1/{path}?{urlencode(question)}")
    response = connection.getresponse()
    body = response.read()
    return json.loads(body), response.status, time.perf_counter() - began


def measure(what, path, hours, bound=None, **question):
    times = []
    for number in range(TIMES):
        answer, status, took = ask(path, hours, number, question)
        if status != 200:
            print(f"{what:<48} REFUSED: {status} {answer.get('message')}")
            return None
        if answer.get("total") == 0:
            sys.exit(f"{what}: there are no jobs")
        times.append(took)
    median = statistics.median(times[1:])
    verdict = ""
    if bound is not None:
        word = "met" if median <= bound else "MISSED"
        verdict = f"  of {bound * 1e3:5.0f} ms, ratio {median / bound:5.2f}: {word}"
    print(f"{what:<48} first {times[0] * 1e3:7.0f} ms, then {median * 1e3:7.0f} ms{verdict}")
    return answer


page = {"limit": 50}
last = measure("jobs of the last hour, a page of 50", "jobs", 1, 0.05, **page)
measure("the same, most wasted first", "jobs", 1, 0.05, sort="-wasted_gpu_hours", **page)
measure("jobs of a day, a page of 50", "jobs", 24, **page)
if last and last["jobs"]:
    measure("one of them, over a week", f"jobs/{quote(last['jobs'][0]['group'], safe='')}", 24 * 7)
measure("a day by user", "jobs", 24, by="user", **page)
measure("a week by user", "jobs", 24 * 7, by="user", **page)
measure(f"{days} days by user", "jobs", 24 * days, 1, by="user", **page)
measure(f"{days} days by node", "jobs", 24 * days, by="node", **page)
