"""What the GPUs of this machine did while your program ran, and what a fleet of them does.

    with gpuvitals.record("run") as run:
        for n, batch in enumerate(loader):
            run.phase("step", n)
            train(batch)

The package is Python alone. Everything that touches a GPU is the program `gpuvitals` beside it, which samples in a process of
its own. Nothing is imported before it is used, so that `import gpuvitals` costs next to nothing.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Where each public name stands. The one list: `__all__` and the lazy import follow from it.
_HOMES = {
    "ApiError": "_errors",
    "BrokenRecording": "_errors",
    "GpuvitalsError": "_errors",
    "NoGpu": "_errors",
    "RecordFailed": "_errors",
    "Answer": "_client",
    "Client": "_client",
    "Entries": "_client",
    "connect": "_client",
    "RecordedTable": "_recording",
    "Recording": "_recording",
    "load": "_recording",
    "Run": "_run",
    "current": "_run",
    "record": "_run",
    "commands": "_program",
    "program": "_program",
    "sample": "_program",
}

if TYPE_CHECKING:
    from ._client import Answer as Answer
    from ._client import Client as Client
    from ._client import Entries as Entries
    from ._client import connect as connect
    from ._errors import ApiError as ApiError
    from ._errors import BrokenRecording as BrokenRecording
    from ._errors import GpuvitalsError as GpuvitalsError
    from ._errors import NoGpu as NoGpu
    from ._errors import RecordFailed as RecordFailed
    from ._program import commands as commands
    from ._program import program as program
    from ._program import sample as sample
    from ._recording import RecordedTable as RecordedTable
    from ._recording import Recording as Recording
    from ._recording import load as load
    from ._run import Run as Run
    from ._run import current as current
    from ._run import record as record
else:
    __all__ = list(_HOMES)

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_HOMES})
