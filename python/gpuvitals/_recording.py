"""Reading a recording: its tables as Arrow, pandas and Polars, and what it says of itself.

Files are data: nothing in them is executed. What is damaged or not a recording's is refused with file, row group and reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import BrokenRecording, GpuvitalsError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

#: Before each key of ours in a footer.
PREFIX = b"gpuvitals."
#: The columns of time; the rest of the numbers become floats in pandas.
TIMES = ("timestamp_ns", "monotonic_ns")
UNFINISHED = "unfinished"
#: Last bytes of the checksums, which stand before the footer: crates/record/src/checksums.rs has the layout.
TAG = b"gpuvsums"
#: Bytes that are compared together.
BLOCK = 1 << 20
CHANGED = "its bytes have changed since it was written; restore the file from a copy"


def _needs(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise GpuvitalsError(f"reading recordings this way needs {package}: `pip install {package}`") from error


class RecordedTable:
    """A table of a recording. A value that was not read is null, NaN in pandas: never 0."""

    def __init__(self, files: list[Path], columns: tuple[str, ...]) -> None:
        #: The Parquet files that hold it.
        self.files = files
        self._columns = columns

    def facts(self) -> dict[str, str]:
        """What the footer says of the recording: `node`, `started`, `rate_hz`, `command`, `gpus`."""
        return _facts(_open(self.files[0], self._columns)) if self.files else {}

    def arrow(self) -> pyarrow.Table:
        """As an Arrow table, with the types of the files."""
        arrow = _needs("pyarrow")
        parts = [part for file in self.files for part in _groups(file, self._columns)]
        if not parts:
            return arrow.table({})
        try:
            # A column that had no value yet is not in an earlier piece.
            return arrow.concat_tables(parts, promote_options="default")
        except (arrow.ArrowException, ValueError) as error:
            raise BrokenRecording(self.files[0].parent, None, f"its files do not fit together: {error}") from error

    def pandas(self) -> pandas.DataFrame:
        """As a frame of pandas: times are integers, every other number is a float64 with NaN for what was not read, so that a
        column has the same type in every recording; texts are texts."""
        frame, arrow = _needs("pandas"), _needs("pyarrow")
        table, columns = self.arrow(), {}
        for name in table.column_names:
            column = table.column(name)
            kind = column.type
            if name in TIMES:
                columns[name] = column.to_numpy()
            elif arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_boolean(kind):
                whole = column.cast(arrow.int8()) if arrow.types.is_boolean(kind) else column
                columns[name] = whole.cast(arrow.float64(), safe=False).to_numpy()
            elif arrow.types.is_dictionary(kind):
                columns[name] = column.cast(kind.value_type).to_pandas()
            else:
                columns[name] = column.to_pandas()
        return frame.DataFrame(columns)

    def polars(self) -> polars.DataFrame:
        """As a frame of Polars, with the types of the files."""
        frame = _needs("polars").from_arrow(self.arrow())
        return frame  # type: ignore[no-any-return]


class Recording:
    """What was recorded into a directory. `load` makes one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        #: Whether it has ended. While it runs, or after a kill, rows of the last ten seconds are missing; `gpuvitals repair`
        #: completes one that was killed.
        self.is_finished = not (directory / UNFINISHED).exists()
        #: A row of each GPU and sample.
        self.gpus = self._table("gpu_events")
        #: A row of each sample of the host.
        self.host = self._table("system_events")
        #: A row of each mark: its time, `text`, `phase`, `step`, `value_name`, `value`.
        self.marks = self._table("marks", "text")
        if not self.gpus.files and not (directory / UNFINISHED).is_dir():
            reason = "holds no recording, gpu_events.parquet is missing; name a directory that `gpuvitals record` has written"
            raise BrokenRecording(directory, None, reason)

    @property
    def facts(self) -> dict[str, str]:
        """What the footers say: `node`, `started`, `rate_hz`, `command`, `gpus`; docs/recording.md lists them."""
        return self.gpus.facts()

    def __repr__(self) -> str:
        return f"Recording({str(self.directory)!r})"

    def _table(self, name: str, *columns: str) -> RecordedTable:
        whole = self.directory / f"{name}.parquet"
        pieces = sorted(self.directory.glob(f"{name}.[0-9]*.parquet"))
        return RecordedTable([whole] if self.is_finished and whole.exists() else pieces, (*TIMES, *columns))


def load(directory: str | os.PathLike[str]) -> Recording:
    """A recording of `record`, of `gpuvitals record`, or an incident of the flight recorder, to be read.

    Raises BrokenRecording where there is none, and when a table is read whose file is damaged or is none of ours.
    """
    return Recording(Path(directory))


def _open(file: Path, columns: tuple[str, ...]) -> Any:
    """A file, if it is one of a recording and its footer is as it was written."""
    arrow, parquet = _needs("pyarrow"), _needs("pyarrow.parquet")
    try:
        _sums(file)
        opened = parquet.ParquetFile(file, page_checksum_verification=True)
        names = opened.schema_arrow.names
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise BrokenRecording(file, None, f"cannot be read as Parquet: {error}") from error
    if PREFIX + b"schema" not in (opened.metadata.metadata or {}):
        raise BrokenRecording(file, None, "was not written by gpuvitals: its footer has no gpuvitals.schema")
    missing = [name for name in columns if name not in names]
    if missing:
        raise BrokenRecording(file, None, f"is no table of a recording: it has no column {missing[0]}")
    return opened


def _sums(file: Path) -> list[tuple[int, int]]:
    """CRC-32 and length of each row group, the first of which begins at byte 4; none if an earlier version or another program has
    written the file."""
    import struct
    import zlib

    with open(file, "rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        if size < 8:
            return []
        opened.seek(size - 8)
        metadata, magic = struct.unpack("<I4s", opened.read(8))
        head = size - 8 - metadata - 16
        if magic != b"PAR1" or head < 0:
            return []
        opened.seek(head)
        groups, wanted, tag = struct.unpack("<II8s", opened.read(16))
        if tag != TAG:
            return []
        begin = head - 12 * groups
        if begin >= 0:
            opened.seek(begin)
            end = opened.read()
            # Of all of it but the checksum itself.
            place = 12 * groups + 4
            if zlib.crc32(end[place + 4 :], zlib.crc32(end[:place])) == wanted:
                return [(crc, length) for crc, length in struct.iter_unpack("<IQ", end[: 12 * groups])]
    raise BrokenRecording(file, None, f"footer: {CHANGED}")


def _verify(file: Path) -> None:
    """Compares the row groups of a file with their checksums."""
    import zlib

    sums = _sums(file)
    with open(file, "rb") as opened:
        opened.seek(4)
        for group, (wanted, length) in enumerate(sums):
            crc, left = 0, length
            while left and (block := opened.read(min(left, BLOCK))):
                crc, left = zlib.crc32(block, crc), left - len(block)
            if crc != wanted:
                raise BrokenRecording(file, group, CHANGED)


def _groups(file: Path, columns: tuple[str, ...]) -> Iterator[pyarrow.Table]:
    """Its row groups, or one table without rows."""
    arrow = _needs("pyarrow")
    with _open(file, columns) as opened:
        try:
            _verify(file)
        except OSError as error:
            raise BrokenRecording(file, None, f"cannot be read: {error}") from error
        if opened.num_row_groups == 0:
            yield opened.schema_arrow.empty_table().replace_schema_metadata(None)
        for group in range(opened.num_row_groups):
            try:
                yield opened.read_row_group(group).replace_schema_metadata(None)
            except (arrow.ArrowException, OSError, ValueError) as error:
                raise BrokenRecording(file, group, str(error)) from error


def _facts(opened: Any) -> dict[str, str]:
    footer: dict[bytes, bytes] = opened.metadata.metadata or {}
    own = {key: value for key, value in footer.items() if key.startswith(PREFIX)}
    opened.close()
    return {key[len(PREFIX) :].decode(errors="replace"): value.decode(errors="replace") for key, value in own.items()}
