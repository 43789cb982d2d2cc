"""Adds up an LCOV file by crate: coverage.py FILE [crates]. Tests are not counted, neither files of their own nor the modules below the code."""

import pathlib
import re
import sys

LEAST = 80
# Crates that only tests use.
TESTS_ALONE = {"rig", "suite"}
ROOT = pathlib.Path(__file__).resolve().parent.parent
wanted = {name.removeprefix("gpuvitals-") for name in sys.argv[2:]}


def shipped_lines(path):
    """How many lines a file has before the module of its tests."""
    text = path.read_text()
    begin = re.search(r"^#\[cfg\(test\)\]\nmod \w+ \{", text, re.MULTILINE)
    return text[: begin.start()].count("\n") if begin else sys.maxsize


found = {}
for record in pathlib.Path(sys.argv[1]).read_text().split("end_of_record\n"):
    source = re.search(r"^SF:(.+)$", record, re.MULTILINE)
    if not source:
        continue
    path = pathlib.Path(source[1])
    try:
        place = path.relative_to(ROOT).parts
    except ValueError:
        continue
    if place[0] != "crates" or place[1] in TESTS_ALONE or place[2] != "src" or path.name == "tests.rs" or "tests" in place[3:-1]:
        continue
    if wanted and place[1] not in wanted:
        continue
    last = shipped_lines(path)
    for line, hits in re.findall(r"^DA:(\d+),(\d+)", record, re.MULTILINE):
        if int(line) <= last:
            total = found.setdefault(place[1], [0, 0])
            total[0] += int(hits) > 0
            total[1] += 1

for name, (covered, lines) in sorted(found.items()):
    print(f"{name:<12} {covered:6} of {lines:6} lines  {100 * covered / lines:5.1f} %")
covered, lines = (sum(total[at] for total in found.values()) for at in (0, 1))
share = 100 * covered / max(lines, 1)
print(f"{'all':<12} {covered:6} of {lines:6} lines  {share:5.1f} %")
sys.exit(share < LEAST)
