"""What the tests share: simulated GPUs, a folder of their own, a server, and readers of what was recorded."""

import contextlib
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

import gpuvitals

#: Samples of a GPU a second: enough rows, and little work for a program that was built to be debugged.
RATE = 20


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine with simulated GPUs, and a folder to be in."""
    for name in ("GPUVITALS_MARK_SOCKET", "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "GPUVITALS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPUVITALS_SAMPLING_DRIVERS", "simulated")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Address of a server with a simulated fleet."""
    words = [gpuvitals.program(), "up", "--source", "simulated", "--gpus", "8", "--hosts", "2", "--port", "0"]
    words += ["--data-dir", str(tmp_path_factory.mktemp("data"))]
    environment = {name: value for name, value in os.environ.items() if name != "GPUVITALS_SAMPLING_DRIVERS"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as process:
        said = []
        for line in process.stdout:
            said.append(line)
            _, found, url = line.partition("dashboard and API: ")
            if found:
                break
        else:
            pytest.fail("".join(said))
        # Keep reading, so that the server never blocks on its output.
        threading.Thread(target=process.stdout.read, daemon=True).start()
        url = url.split('"')[0].strip()
        client = gpuvitals.connect(url)
        until("rows of GPUs", lambda: client.query("power_w", last="10m")["series"])
        yield url
        process.terminate()


def until(what, look):
    """Asks until the answer is yes, and gives it."""
    end = time.monotonic() + 60
    while True:
        # A server that starts refuses at first.
        with contextlib.suppress(gpuvitals.ApiError):
            found = look()
            if found:
                return found
        assert time.monotonic() < end, f"no {what} within a minute"
        time.sleep(0.02)


def has_rows(directory):
    """Waits until a recording that runs has rows of a GPU."""
    journal = Path(directory, "unfinished", "gpu_events.000001.rows")
    until("rows of a GPU", lambda: journal.exists() and journal.stat().st_size > 0)


def marks(directory):
    """The marks of a recording: phase, step, name and value, text. What its mark did not say is None."""
    table = gpuvitals.load(directory).marks.arrow()
    names = ("phase", "step", "value_name", "value", "text")
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


def texts(directory):
    """The texts of its marks."""
    return [text for *_, text in marks(directory)]
