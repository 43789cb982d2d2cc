"""What can go wrong, each with what to do about it."""

from __future__ import annotations

from os import PathLike


class GpuvitalsError(Exception):
    """Base of all errors of this package."""


class RecordFailed(GpuvitalsError):
    """The program `gpuvitals` refused, or failed. `exit_code` is its own, as docs/running.md lists them."""

    def __init__(self, text: str, exit_code: int | None = None) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class NoGpu(RecordFailed):
    """No GPU can be read here. The text says why for each way of reading one, and what to do."""


class BrokenRecording(GpuvitalsError):
    """A file cannot be read, or is not one of a recording."""

    def __init__(self, file: str | PathLike[str], row_group: int | None, reason: str) -> None:
        where = "" if row_group is None else f", row group {row_group}"
        super().__init__(f"{file}{where}: {reason}")
        self.file = str(file)
        self.row_group = row_group
        self.reason = reason

    def __reduce__(self) -> tuple[type[BrokenRecording], tuple[str, int | None, str]]:
        return type(self), (self.file, self.row_group, self.reason)


class ApiError(GpuvitalsError):
    """The server refused a request, or does not answer. `status` is 0 if there was no answer; `code` is for programs."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def __reduce__(self) -> tuple[type[ApiError], tuple[int, str, str]]:
        return type(self), (self.status, self.code, str(self))
