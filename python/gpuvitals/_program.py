"""The program `gpuvitals`: where it is, and what it answers at once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable
from typing import Any, NoReturn

from ._errors import GpuvitalsError, NoGpu, RecordFailed

#: Names another program than the one of the wheel.
VARIABLE = "GPUVITALS_BIN"
NO_GPU = "no GPU was found"


def program() -> str:
    """Path of the program: what GPUVITALS_BIN names, else the wheel's own, else the one in PATH."""
    named = os.environ.get(VARIABLE)
    if named:
        if not os.access(named, os.X_OK):
            raise GpuvitalsError(f"{VARIABLE} names {named}, which is no program; name another, or unset it")
        return named
    # pip puts programs into one of these: of the environment, of the user, or beside the package with `--target`.
    beside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin")
    user = sysconfig.get_preferred_scheme("user")
    for folder in (sysconfig.get_path("scripts"), sysconfig.get_path("scripts", scheme=user), beside):
        path = os.path.join(folder, "gpuvitals")
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    found = shutil.which("gpuvitals")
    if found is None:
        text = f"the program gpuvitals is not installed; `pip install --force-reinstall gpuvitals`, or name it in {VARIABLE}"
        raise GpuvitalsError(text)
    return found


def refused(lines: Iterable[str], exit_code: int) -> NoReturn:
    """Raises what the program said on standard error."""
    text = "\n".join(line.removeprefix("gpuvitals: ") for line in lines).strip()
    kind = NoGpu if NO_GPU in text else RecordFailed
    raise kind(text or f"gpuvitals ended with {exit_code} and gave no reason", exit_code)


def answer_of(*arguments: str) -> str:
    """What the program prints for these arguments."""
    ended = subprocess.run([program(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if ended.returncode != 0:
        refused(ended.stderr.splitlines(), ended.returncode)
    return ended.stdout


def commands() -> list[str]:
    """The commands that the program has: a build for nodes has fewer than the whole one."""
    names, inside = [], False
    for line in answer_of("--help").splitlines():
        if line.rstrip().endswith(":"):
            inside = line.strip() == "Commands:"
        elif inside and line.startswith("  ") and line[2:3].strip():
            names.append(line.split()[0])
    return names


def sample(*, drivers: Iterable[str] = (), host: bool = False) -> list[dict[str, Any]]:
    """One row of each GPU of this machine, now; with `host` the host's rows, too.

    A value that was not read is missing from its row: never 0. Raises NoGpu, with the remedy, if there is no GPU to read.
    """
    flags = [flag for driver in drivers for flag in ("--driver", driver)]
    text = answer_of("sample", "-n", "1", "--format", "jsonl", *flags, *(["--host"] if host else []))
    rows = [json.loads(line) for line in text.splitlines()]
    if not rows:
        raise NoGpu("the GPUs gave no value; `gpuvitals doctor` says why")
    return rows

