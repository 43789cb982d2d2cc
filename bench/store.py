"""Measures stores beside each other: store.py GPUVITALS PROGRAMS_OF_POSTGRESQL DIRECTORY GPUS SECONDS; the rows are in DIRECTORY.

Every store takes all rows; then every question is asked once in a fresh process, and again and again over other ranges in one.
"""

import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path

from store_peers import Data, DuckDB, OurFiles, Ours, PostgreSQL, VictoriaMetrics, VictoriaMetricsInBulk
from store_rows import METRICS

QUESTIONS = {
    "latest": "latest of all GPUs, 4 metrics",
    "raw": "one GPU, newest 500 rows",
    "one": "one GPU, avg/max/p99 by minute",
    "fleet": "fleet, avg/max/p99 by minute",
    "fleet avg/max": "fleet, avg/max by minute",
    "top": "top 10 by mean power, 10 min",
}
BY_MINUTE = ("one", "fleet", "fleet avg/max", "top")
REPEATS, PATIENCE_S = 20, 6


def ended(task, store, *arguments):
    try:
        return task(store, *arguments)
    finally:
        store.stop()


def apart(task, store, *arguments):
    """Runs a task in a process of its own, so that nothing of it is warm or in memory for the next; stops the store."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(ended, (task, store, *arguments))


def ingest(store):
    return store.ingested()


def timed(store, question, shift):
    began = time.perf_counter()
    answer = store.ask(question, shift)
    return (time.perf_counter() - began) * 1e3, answer


def cold(store, question):
    """The first question in a fresh process, and what its answer comes to."""
    store.start()
    took, answer = timed(store, question, 0)
    return took, store.number(question, answer)


def warm(store, questions):
    """The median of each question, every time over another range."""
    store.start()
    medians = {}
    for question in questions:
        times, until = [], time.perf_counter() + PATIENCE_S
        for shift in range(1, REPEATS + 3):
            times.append(timed(store, question, shift)[0])
            if time.perf_counter() > until and len(times) > 4:
                break
        medians[question] = statistics.median(times[2:])
    return medians


def load():
    return f"load {os.getloadavg()[0]:.1f}"


def main():
    binary, programs, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    data = Data(folder, int(sys.argv[4]), int(sys.argv[5]))
    ours = Ours(data, folder, binary)
    stores = {
        "gpuvitals": ours,
        "VictoriaMetrics": VictoriaMetrics(data, folder),
        "PostgreSQL": PostgreSQL(data, folder, programs),
        "DuckDB": DuckDB(data, folder),
    }
    in_bulk = VictoriaMetricsInBulk(data, folder)
    taken, firsts, medians = {}, {}, {}
    for name, store in (stores | {"VictoriaMetrics, bulk": in_bulk}).items():
        print(f"{name}: takes the rows; {load()}")
        taken[name] = apart(ingest, store)
    stores["DuckDB, our files"] = OurFiles(data, folder, ours)
    for name, store in stores.items():
        print(f"{name}: is asked; {load()}")
        for question in QUESTIONS:
            store.forget()
            firsts[name, question] = apart(cold, store, question)
        medians[name] = apart(warm, store, QUESTIONS)
    ours.whole = True
    medians["whole minutes"] = apart(warm, ours, BY_MINUTE)
    for question in QUESTIONS:
        numbers = {name: firsts[name, question][1] for name in stores}
        if any(abs(number - numbers["gpuvitals"]) > 1e-4 * abs(number) for number in numbers.values()):
            print(f"answers differ: {QUESTIONS[question]}: {numbers}")
    report(data, taken, firsts, medians)


def report(data, taken, firsts, medians):
    samples = data.rows * len(METRICS)
    rate = {name: data.rows / took for name, (took, *_) in taken.items()}
    size = {name: bytes / samples for name, (*_, bytes) in taken.items()}
    heads = ("rows/s", "of ours", "CPU s", "settling s", "CPU s", "peak MiB", "bytes a sample", "of ours")
    widths = (10, 9, 8, 12, 8, 10, 16, 9)
    line = lambda name, cells: print(f"{name:<24}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths)))
    line("taking rows", heads)
    for name, (_, settled, cpu, settled_cpu, peak, _) in taken.items():
        speed, bytes = rate[name] / rate["gpuvitals"], size[name] / size["gpuvitals"]
        cells = (f"{rate[name]:,.0f}", f"{speed:.2f}", f"{cpu:.1f}", f"{settled:.1f}", f"{settled_cpu:.1f}", f"{peak:.0f}")
        line(name, (*cells, f"{size[name]:.3f}", f"{bytes:.2f}"))
    names = [name for name in medians if name != "whole minutes"]
    print("\nms, first in a fresh process with pages dropped / p50 warm, of ours")
    print(f"{'':<34}" + "".join(f"{name:>26}" for name in [*names, "ours, whole minutes"]))
    for question, text in QUESTIONS.items():
        ours = medians["gpuvitals"][question]
        cells = [
            f"{firsts[name, question][0]:.1f} / {medians[name][question]:.2f}{medians[name][question] / ours:>7.2f}"
            for name in names
        ]
        whole = medians["whole minutes"].get(question)
        cells.append(f"{whole:.2f}{whole / ours:>7.2f}" if whole else "")
        print(f"{text:<34}" + "".join(f"{cell:>26}" for cell in cells))
    print()

    def verdict(what, ratio, must, aim, least=False):
        met = lambda bound: ratio >= bound if least else ratio <= bound
        word = "aim met" if met(aim) else "met, aim missed" if met(must) else "MISSED"
        print(f"{what:<62}{ratio:8.2f}  must {must}, aim {aim}: {word}")

    peers = [name for name in names if name != "gpuvitals"]
    verdict("bytes, of VictoriaMetrics", size["gpuvitals"] / size["VictoriaMetrics"], 1.0, 0.85)
    verdict("rows/s, of VictoriaMetrics", rate["gpuvitals"] / rate["VictoriaMetrics"], 4, 8, least=True)
    verdict("rows/s, of VictoriaMetrics in bulk", rate["gpuvitals"] / rate["VictoriaMetrics, bulk"], 4, 8, least=True)
    for ours, words in (("gpuvitals", "any start"), ("whole minutes", "whole minutes")):
        of = lambda peer, *questions: max(medians[ours][question] / medians[peer][question] for question in questions)
        verdict(f"one GPU by minute, {words}, of VictoriaMetrics", of("VictoriaMetrics", "one"), 0.5, 0.25)
        for peer, must, aim in (("VictoriaMetrics", 0.5, 0.3), ("DuckDB, our files", 1.0, 0.6)):
            verdict(f"fleet by minute (the worse), {words}, of {peer}", of(peer, "fleet", "fleet avg/max"), must, aim)
    latest = min(medians[peer]["latest"] for peer in peers)
    verdict("latest, of the best other", medians["gpuvitals"]["latest"] / latest, 0.1, 0.1)
    verdict("peak, MiB", taken["gpuvitals"][4], 200, 200)


if __name__ == "__main__":
    main()
