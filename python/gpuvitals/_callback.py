"""What the callbacks of training frameworks share: a run that begins and ends with the training."""

from __future__ import annotations

import logging
from typing import Any

from ._errors import GpuvitalsError
from ._run import Run, record

log = logging.getLogger("gpuvitals")


class Training:
    """The run of a training whose framework says when it begins and ends. Takes what `gpuvitals.record` takes."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.run: Run = record(*arguments, **named)

    def begin(self) -> None:
        self.run.start()

    def end(self) -> None:
        """A recording that fails at its end must not cost the model that was trained."""
        try:
            self.run.stop()
        except GpuvitalsError as error:
            log.error("%s", error)

    def values(self, named: dict[str, Any], prefix: str = "") -> None:
        """Those that are numbers of Python: reading one from a GPU would wait for it."""
        for name, value in named.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self.run.value(prefix + name, value)
