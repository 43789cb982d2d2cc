"""The README's examples, word for word."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def test_there_are_three():
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(example, server, monkeypatch, machine):
    monkeypatch.setenv("GPUVITALS_URL", server)
    # The later ones read what the first records.
    words = "\n".join(EXAMPLES[: EXAMPLES.index(example) + 1])
    ended = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert (machine / "run" / "gpu_events.parquet").exists()
