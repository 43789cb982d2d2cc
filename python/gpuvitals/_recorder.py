"""The recorder: `gpuvitals record` as a process beside this one."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from ._errors import GpuvitalsError, NoGpu, RecordFailed
from ._program import program, refused

#: Names the socket for marks: set for what is recorded.
SOCKET_VARIABLE = "GPUVITALS_MARK_SOCKET"
#: How long the recorder may take to find the GPUs: drivers that wake take seconds.
PATIENCE_S = 120.0
#: Lines of it that are kept for an error.
LINES_MAX = 40
UNAVAILABLE = 69
#: A run that is shorter may have no row: drivers answer in their own time.
SHORT_S = 1.0
#: How long what it has said on standard error may take to arrive after its end: a tool of a driver that hangs may hold it open.
REST_S = 5.0
#: After how long an end that goes on is told.
TOLD_S = 30.0
#: How long the end of a recording may take: the rows of some hours are copied into one file.
END_S = 900.0

log = logging.getLogger("gpuvitals")


class Recorder:
    """A process that records until it is stopped, or this process has ended."""

    def __init__(self, directory: str, flags: Sequence[str]) -> None:
        """Starts it, and waits until it records."""
        words = [program(), "record", "--output", directory, "--json", "--require-gpus", "--pid", str(os.getpid()), *flags]
        # A summary may be longer than a pipe holds.
        self._summary = tempfile.TemporaryFile()
        self._directory = directory
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._heard = threading.Event()
        #: Path of the socket for marks.
        self.socket: str | None = None
        # A session of its own: Ctrl-C is for this program, which then ends the recording.
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=self._summary, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            self._summary.close()
            text = f"cannot start {words[0]}: {error}; `pip install --force-reinstall gpuvitals`, or GPUVITALS_BIN names another"
            raise GpuvitalsError(text) from error
        self._listener = threading.Thread(target=self._listen, name="gpuvitals-recorder", daemon=True)
        self._listener.start()
        try:
            is_heard = self._heard.wait(PATIENCE_S)
        except BaseException:
            self._process.terminate()
            raise
        self._begun = time.monotonic()
        if self.socket is None:
            if not is_heard:
                self._process.kill()
                self._lines.append(f"the recorder has not begun within {PATIENCE_S:.0f} s; `gpuvitals doctor` says what hangs")
            else:
                # It has refused, or records without marks.
                self._process.terminate()
            code = self._process.wait()
            self._listener.join(REST_S)
            refused(self._lines, code)

    def stop(self) -> dict[str, Any]:
        """Ends the recording and gives its summary. Copying the rows into one file takes a while after some hours."""
        lasted_s = time.monotonic() - self._begun
        self._process.send_signal(signal.SIGTERM)
        code = self._code()
        self._listener.join(REST_S)
        self._summary.seek(0)
        printed = self._summary.read()
        self._summary.close()
        summary: dict[str, Any] | None
        try:
            summary = json.loads(printed)
        except ValueError:
            # It was killed, or the disk is full: there is none, or a part of it.
            summary = None
        if summary is not None and code == UNAVAILABLE and not summary.get("gpu_rows"):
            text = f"no value of a GPU was read in {lasted_s:.3g} s"
            if lasted_s >= SHORT_S:
                raise NoGpu("\n".join([f"{text}; `gpuvitals doctor` says why", *self._lines]), code)
            log.warning("%s: the run was too short", text)
            return summary
        if code < 0:
            self._lines.append(f"the recorder was ended by signal {-code}; `gpuvitals repair {self._directory}` restores what was written")
        if code != 0 or summary is None:
            refused(self._lines, code)
        return summary

    def _code(self) -> int:
        """Its exit code, when it has ended."""
        try:
            return self._process.wait(TOLD_S)
        except subprocess.TimeoutExpired:
            log.warning("the recording in %s is still being ended; this program waits for it", self._directory)
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            text = f"the recorder has not ended within {TOLD_S + END_S:.0f} s and is left alone, its disk may hang"
            remedy = f"once it has ended, `gpuvitals repair {self._directory}` restores what was written"
            raise RecordFailed(f"{text}; {remedy}") from None

    def abandon(self) -> None:
        """In a child that was forked: the process is the parent's, who waits for it."""
        self._process.returncode = 0

    def _listen(self) -> None:
        """Takes what it says on standard error: first that it records, and where marks go."""
        stream = self._process.stderr
        assert stream is not None
        with stream:
            for raw in stream:
                line = raw.decode(errors="replace").rstrip("\n")
                if not self._heard.is_set() and line.startswith("gpuvitals: recording to "):
                    _, found, path = line.partition(f"{SOCKET_VARIABLE}=")
                    self.socket = path if found else None
                    self._heard.set()
                    continue
                self._lines.append(line)
                log.info("%s", line.removeprefix("gpuvitals: "))
        self._heard.set()


