"""Marks on their way to the recorder.

A datagram costs microseconds, since it wakes another process. So a mark is put into a list with its time, and a thread sends
what is there some times a second. docs/recording.md has the form of a datagram.
"""

from __future__ import annotations

import json
import logging
import math
import select
import socket
import threading
import time
from collections import deque

#: Most marks that wait to be sent; more are counted and dropped.
WAITING_MAX = 100_000
#: Between two looks at what waits.
PAUSE_S = 0.05
#: How long one mark may wait for a recorder that does not keep up.
PATIENCE_S = 5.0
#: How long all that wait may take at the end.
END_S = 5.0
#: What the thread may take beyond that: it ends within moments, unless the machine is very busy.
REST_S = 5.0

_Mark = tuple[int, str | None, int | None, str | None, float | None, str | None]

log = logging.getLogger("gpuvitals")


class Marks:
    """Sends marks to the socket of a recording, in the order in which they were set."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.connect(path)
        self._socket.setblocking(False)
        self._waiting: deque[_Mark] = deque()
        self._is_over = threading.Event()
        # When no mark waits for the recorder any more.
        self._end = math.inf
        #: Marks that the recorder has not got.
        self.lost = 0
        self._thread = threading.Thread(target=self._run, name="gpuvitals-marks", daemon=True)
        self._thread.start()

    def put(
        self,
        phase: str | None = None,
        step: int | None = None,
        name: str | None = None,
        value: float | None = None,
        text: str | None = None,
    ) -> None:
        """Sets a mark at this moment."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append((time.monotonic_ns(), phase, step, name, value, text))
        else:
            self.lost += 1

    def close(self) -> None:
        """Sends what still waits, as far as the recorder takes it within some seconds."""
        self._end = time.monotonic() + END_S
        self._is_over.set()
        self._thread.join(END_S + REST_S)
        if self._thread.is_alive():
            log.warning("marks may be lost: their thread has not ended within %.0f s", END_S + REST_S)
            return
        self._socket.close()
        if self.lost:
            log.warning("%d marks are lost: the recorder did not keep up, or had ended", self.lost)

    def abandon(self) -> None:
        """In a child that was forked: the parent sends its own marks, and the thread is not here."""
        self._waiting.clear()
        self._socket.close()

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._is_over.wait(PAUSE_S)
            while self._waiting:
                self._send(self._waiting.popleft())

    def _send(self, mark: _Mark) -> None:
        keys = ("monotonic_ns", "phase", "step", "value_name", "value", "text")
        said = {key: value for key, value in zip(keys, mark) if value is not None}
        datagram = json.dumps(said, ensure_ascii=False).encode(errors="replace")
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._socket.send(datagram)
                return
            except BlockingIOError:
                left = min(until, self._end) - time.monotonic()
                if left > 0:
                    # Not for long: the end may come meanwhile.
                    select.select((), (self._socket,), (), min(left, PAUSE_S))
                    continue
            except OSError as error:
                if not self.lost:
                    log.warning("marks are lost, the recorder is gone: %s", error)
            self.lost += 1
            return
