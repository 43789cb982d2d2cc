"""Runs: what is recorded while a block of a program is executed, and the marks in it."""

from __future__ import annotations

import atexit
import functools
import inspect
import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from ._errors import GpuvitalsError
from ._marks import Marks
from ._recorder import SOCKET_VARIABLE, Recorder
from ._sync import Sync, synchroniser

Function = TypeVar("Function", bound=Callable[..., Any])
Item = TypeVar("Item")

log = logging.getLogger("gpuvitals")

#: Longest text of a mark; the recorder cuts at as many bytes.
TEXT_MAX = 1_024
#: Longest name of a phase or a value; the same holds.
NAME_MAX = 128
#: Phases that are no part of a step: one ends a step, and a step ends it.
OUTSIDE = ("idle", "load", "checkpoint", "eval", "evaluation", "validation")
# Of a node's ranks, the first records and sets the marks.
RANK_VARIABLES = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")


class _Session:
    """A recording that this process takes part in: its own, that of the program that started it, or none (another rank)."""

    def __init__(self, directory: str | None, recorder: Recorder | None, marks: Marks | None) -> None:
        self.directory = directory
        self.recorder = recorder
        self.marks = marks
        #: Those that have begun and not ended.
        self.runs: list[Run] = []
        self.summary: dict[str, Any] | None = None

    @classmethod
    def begin(cls, directory: str, flags: list[str]) -> _Session:
        path = os.environ.get(SOCKET_VARIABLE)
        is_parents = path is not None and path == _parents
        if not is_first_rank() or (is_parents and os.path.exists(path or "")):
            return cls(None, None, None)
        if path and not is_parents:
            return cls(None, None, _joined(path))
        recorder = Recorder(directory, flags)
        assert recorder.socket is not None
        try:
            marks = Marks(recorder.socket)
        except OSError:
            recorder.stop()
            raise
        # What this program starts joins, and does not record the same GPUs again.
        os.environ[SOCKET_VARIABLE] = recorder.socket
        return cls(directory, recorder, marks)

    def end(self) -> None:
        marks, self.marks = self.marks, None
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            os.environ.pop(SOCKET_VARIABLE, None)
        try:
            if marks is not None:
                marks.close()
        finally:
            if recorder is not None:
                self.summary = recorder.stop()

    def abandon(self) -> None:
        marks, self.marks = self.marks, None
        recorder, self.recorder = self.recorder, None
        if marks is not None:
            marks.abandon()
        if recorder is not None:
            recorder.abandon()


def _joined(path: str) -> Marks:
    try:
        return Marks(path)
    except OSError as error:
        text = f"{SOCKET_VARIABLE} names {path}, where no recording listens ({error}): it has ended; unset the variable to record anew"
        raise GpuvitalsError(text) from error


def is_first_rank() -> bool:
    """Whether this process is the first of its job on this node, as launchers say."""
    ranks = (os.environ.get(name) for name in RANK_VARIABLES)
    return next((rank for rank in ranks if rank), "0") == "0"


_lock = threading.Lock()
_session: _Session | None = None
# In a forked child the socket of the recording in which its parent was.
_parents: str | None = None


def _enter(run: Run, directory: str, flags: list[str]) -> _Session:
    global _session
    with _lock:
        if _session is None:
            _session = _Session.begin(directory, flags)
        _session.runs.append(run)
        return _session


def _leave(run: Run, session: _Session) -> None:
    global _session
    with _lock:
        session.runs.remove(run)
        if session.runs or session is not _session:
            return
        _session = None
        session.end()


def _forked() -> None:
    """A child counts nothing again: neither the recording nor a mark."""
    global _session, _lock, _parents
    _lock = threading.Lock()
    session, _session = _session, None
    if session is not None:
        _parents = os.environ.get(SOCKET_VARIABLE)
        session.abandon()


def _exiting() -> None:
    """A program that ends within a run, as one with callbacks may, ends it whole."""
    global _session
    with _lock:
        session, _session = _session, None
        try:
            if session is not None:
                session.end()
        except GpuvitalsError as error:
            log.error("%s", error)


os.register_at_fork(after_in_child=_forked)
atexit.register(_exiting)


class Run:
    """A part of a program that is recorded: a context manager and a decorator. `record` makes one."""

    def __init__(self, directory: str, flags: list[str], sync: Sync | None) -> None:
        self._asked = (directory, flags, sync)
        self._sync = sync
        self._waits: dict[Sync, Callable[[], object]] = {}
        self._session: _Session | None = None
        self._is_over = False
        self._pid = 0
        self._phase = ""

    @property
    def is_running(self) -> bool:
        """Whether it has begun and not ended."""
        return self._session is not None and not self._is_over

    @property
    def directory(self) -> str | None:
        """Where the files are; None if another program, or another rank, records."""
        return None if self._session is None else self._session.directory

    @property
    def summary(self) -> dict[str, Any] | None:
        """After its end, what `gpuvitals record --json` prints: of each GPU its energy, power, clocks, throttling. None while it
        runs, and if another program records."""
        return None if self._session is None else self._session.summary

    def start(self) -> Run:
        """Begins, as `with` does, and returns when it records."""
        if self.is_running:
            raise GpuvitalsError("this run has begun already; make another by gpuvitals.record")
        directory, flags, sync = self._asked
        # What cannot be waited for fails here, not at the first mark.
        if sync is not None:
            self._wait_of(sync)
        self._session = _enter(self, directory, flags)
        self._is_over = False
        self._pid = os.getpid()
        self._phase = ""
        return self

    def stop(self) -> None:
        """Ends it. The outermost run of this process ends the recording."""
        if self._session is None or self._is_over:
            return
        self._is_over = True
        # A child that was forked has left already.
        if self._pid == os.getpid():
            _leave(self, self._session)

    def phase(self, name: str, number: int | None = None, *, sync: Sync | None = None) -> Phase:
        """Marks that a phase begins: `run.phase("load")`, `run.phase("checkpoint")`. It lasts until the next, or as long as a
        `with run.phase(…):`. `run.phase("step", n)` marks that step n begins.

        `sync` first waits for work that is queued on the GPU, so that the mark stands where the work ends and not where Python
        queued it. It has a price: the GPU runs empty at each such mark, for as long as the program takes to queue more.
        """
        if sync is None:
            sync = self._sync
        if sync is not None:
            self._wait_of(sync)()
        name = name[:NAME_MAX]
        if name == "step" and self._phase in OUTSIDE:
            self._phase = ""
        outer = self._phase
        if name == "step":
            if number is None:
                raise ValueError('a step has a number: run.phase("step", n)')
            # NumPy's and PyTorch's numbers are no JSON.
            self._put(None, int(number))
        else:
            self._phase = name
            self._put(name, None, None, None, None if number is None else f"{name} {number}")
        return Phase(self, outer, sync)

    def value(self, name: str, value: float) -> None:
        """Marks a value of this moment: tokens of the step, its loss. A tensor is read from its GPU, which waits for it."""
        name = name[:NAME_MAX]
        number = float(value)
        if math.isfinite(number):
            self._put(None, None, name, number)
        else:
            # A loss that is no number is an event, and no value that can be added up.
            self._put(None, None, None, None, f"{name} {number}")

    def mark(self, text: str) -> None:
        """Marks an event in words."""
        self._put(None, None, None, None, text[:TEXT_MAX])

    def steps(self, items: Iterable[Item], *, start: int = 0, sync: Sync | None = None) -> Iterator[Item]:
        """The same items, each of them a step: `for batch in run.steps(loader):`."""
        for number, item in enumerate(items, start):
            self.phase("step", number, sync=sync)
            yield item
        self.phase("", sync=sync)

    def __enter__(self) -> Run:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.stop()
        except GpuvitalsError as failed:
            # What went wrong in the block matters more.
            if error is None:
                raise
            log.error("%s", failed)

    def __call__(self, function: Function) -> Function:
        """Records each call of a function."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__qualname__} is a generator, whose call does nothing yet: use `with` inside it")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def coroutine(*arguments: Any, **named: Any) -> Any:
                with Run(*self._asked):
                    return await function(*arguments, **named)

            return coroutine  # type: ignore[return-value]

        @functools.wraps(function)
        def recorded(*arguments: Any, **named: Any) -> Any:
            with Run(*self._asked):
                return function(*arguments, **named)

        return recorded  # type: ignore[return-value]

    def _wait_of(self, sync: Sync) -> Callable[[], object]:
        wait = self._waits.get(sync)
        if wait is None:
            wait = self._waits[sync] = synchroniser(sync)
        return wait

    def _put(
        self,
        phase: str | None,
        step: int | None,
        name: str | None = None,
        value: float | None = None,
        text: str | None = None,
    ) -> None:
        session = self._session
        if session is None or self._is_over:
            raise GpuvitalsError("a mark needs a run that records: set it within `with gpuvitals.record(…) as run:`")
        marks = session.marks
        # None: another rank sets them, or this is a forked child.
        if marks is not None:
            marks.put(phase, step, name, value, text)


class Phase:
    """What `Run.phase` returns: with it, `with` marks the end of the phase, too, and the phase around it goes on."""

    __slots__ = ("_outer", "_run", "_sync")

    def __init__(self, run: Run, outer: str, sync: Sync | None) -> None:
        self._run = run
        self._outer = outer
        self._sync = sync

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._run.phase("", sync=self._sync)
        if self._outer:
            self._run.phase(self._outer)


def record(
    directory: str | os.PathLike[str] = "telemetry",
    *,
    rate: float | None = None,
    system_rate: float | None = None,
    drivers: Iterable[str] = (),
    force: bool = False,
    keep_arguments: bool = False,
    all_gpus: bool = False,
    sync: Sync | None = None,
) -> Run:
    """Records the GPUs and the host of this machine into a directory while a block, or each call of a function, runs.

    `rate`, `system_rate`, `drivers`, `force`, `keep_arguments` and `all_gpus` are the flags of `gpuvitals record`. `sync` is that of
    `Run.phase` for every mark; off by default, because it costs.

    Nested runs, runs of several threads, and those of programs that this one starts take part in the recording that is there:
    one recorder, each joule once. A forked child, and other ranks of the same job on this node, set no marks.
    Raises NoGpu, with the remedy, where no GPU can be read: there is no recording without one.
    """
    flags = ["--force"] if force else []
    flags += ["--keep-arguments"] if keep_arguments else []
    flags += ["--all-gpus"] if all_gpus else []
    for flag, value in (("--rate", rate), ("--system-rate", system_rate)):
        flags += [] if value is None else [flag, str(value)]
    for driver in drivers:
        flags += ["--driver", driver]
    return Run(os.fspath(directory), flags, sync)


def current() -> Run | None:
    """A run that this process is in, for code that is called within one; None outside."""
    with _lock:
        return None if _session is None else _session.runs[-1]
