"""The package: what its import costs, its types, its version and its program."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpuvitals

ROOT = Path(__file__).resolve().parents[2]


def test_its_import_takes_fifty_milliseconds_at_most_and_brings_nothing():
    script = """
import sys, time
before = set(sys.modules)
start = time.perf_counter()
import gpuvitals
print((time.perf_counter() - start) * 1000, *sorted(set(sys.modules) - before))
"""
    told = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split() for _ in range(5)]
    assert min(float(words[0]) for words in told) <= 50
    modules = {name.partition(".")[0] for words in told for name in words[1:]}
    assert not modules & {"subprocess", "json", "urllib", "pyarrow", "pandas", "polars", "torch", "numpy"}, modules


def test_every_public_name_is_there_and_has_a_text():
    for name in gpuvitals.__all__:
        assert getattr(gpuvitals, name).__doc__, name
    assert set(gpuvitals.__all__) <= set(dir(gpuvitals))
    with pytest.raises(AttributeError, match="nothing"):
        _ = gpuvitals.nothing


def test_its_types_are_whole():
    mypy = pytest.importorskip("mypy.api")
    said, failed, code = mypy.run(["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", os.devnull, str(ROOT / "python/gpuvitals")])
    assert code == 0, said + failed
    assert (Path(gpuvitals.__file__).parent / "py.typed").exists()


def test_its_version_is_that_of_the_program():
    manifest = (ROOT / "Cargo.toml").read_text()
    version = re.search(r'^version = "(.*)"$', manifest, re.MULTILINE)[1]
    assert gpuvitals.__version__ == version
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    said = subprocess.run([gpuvitals.program(), "--version"], capture_output=True, text=True, check=True).stdout
    assert said.split()[1] == version


def test_it_says_which_commands_the_program_has():
    assert {"record", "mark", "sample", "agent", "doctor"} <= set(gpuvitals.commands())


def test_a_sample_has_a_row_of_each_gpu_and_no_value_that_was_not_read():
    rows = gpuvitals.sample()
    assert len({row["uuid"] for row in rows}) == len(rows) > 1
    assert all(row["power_w"] > 0 for row in rows)
    assert all(value is not None for row in rows for value in row.values())
    assert len(gpuvitals.sample(host=True)) == len(rows) + 1


def test_a_program_that_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUVITALS_BIN", str(tmp_path / "none"))
    with pytest.raises(gpuvitals.GpuvitalsError, match="GPUVITALS_BIN"):
        gpuvitals.sample()
    with pytest.raises(gpuvitals.GpuvitalsError, match="GPUVITALS_BIN"):
        gpuvitals.record().start()
