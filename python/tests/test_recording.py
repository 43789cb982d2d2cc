"""Recordings are read as they are, and what is damaged or foreign is refused by name."""

import os
import pickle
import shutil
import struct
import zlib

import pytest
from conftest import RATE, has_rows

import gpuvitals

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
FILE = "run/gpu_events.parquet"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A recording that tests copy."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUVITALS_SAMPLING_DRIVERS", "simulated")
        with gpuvitals.record(folder / "run", rate=RATE) as run:
            for step in range(3):
                run.phase("step", step)
            has_rows(folder / "run")
    return folder / "run"


@pytest.fixture(autouse=True)
def run(recorded, machine):
    shutil.copytree(recorded, "run")


def read(file):
    """A file with its footer, which Arrow's own schema hides."""
    with parquet.ParquetFile(file) as opened:
        footer = {key: value for key, value in opened.metadata.metadata.items() if key.startswith(b"gpuvitals.")}
        return opened.read().replace_schema_metadata(footer)


def groups(file, count):
    """Writes a file of a recording anew, with so many row groups."""
    table = read(file)
    rows = -(-table.num_rows // count)
    parquet.write_table(table, file, row_group_size=rows, write_page_checksum=True)
    return table


def row_groups(file):
    """The first byte of each row group, and the one behind the last."""
    with parquet.ParquetFile(file) as opened:
        footer = opened.metadata
        last = [footer.row_group(group).column(footer.num_columns - 1) for group in range(footer.num_row_groups)]
    ends = [(c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset) + c.total_compressed_size for c in last]
    return [4, *ends]


def summed(file):
    """Adds the checksums of a recorder to a file, as crates/record/src/checksums.rs describes them."""
    whole, ends = open(file, "rb").read(), row_groups(file)
    groups = [whole[begin:end] for begin, end in zip(ends, ends[1:])]
    sums = b"".join(struct.pack("<IQ", zlib.crc32(group), len(group)) for group in groups)
    sums += struct.pack("<I", len(groups))
    behind = b"gpuvsums" + whole[len(whole) - 8 - int.from_bytes(whole[-8:-4], "little") :]
    with open(file, "wb") as written:
        written.write(whole[: ends[-1]] + sums + struct.pack("<I", zlib.crc32(sums + behind)) + behind)


def flipped(file, at, bit=0):
    """Changes a bit of a file."""
    with open(file, "r+b") as changed:
        changed.seek(at)
        (byte,) = changed.read(1)
        changed.seek(at)
        changed.write(bytes([byte ^ 1 << bit]))


def test_a_table_is_the_same_in_arrow_pandas_and_polars():
    recording = gpuvitals.load("run")
    table = recording.gpus.arrow()
    assert table.num_rows > 0 and table.schema.field("power_w").type == pyarrow.float32()
    power = table["power_w"].to_pandas()
    frame = recording.gpus.pandas()
    assert frame.shape == table.shape and list(frame.columns) == table.column_names
    assert frame["power_w"].dropna().tolist() == power.dropna().tolist()
    lazy = recording.gpus.polars()
    assert lazy.shape == table.shape
    assert lazy["power_w"].drop_nulls().to_list() == power.dropna().tolist()
    assert recording.host.pandas()["cpu_pct"].notna().any()
    assert recording.marks.pandas()["text"].tolist() == ["step 0", "step 1", "step 2"]
    assert recording.facts["rate_hz"] == str(RATE)


def test_numbers_are_plain_floats_in_pandas_and_what_was_not_read_is_no_number():
    frame = gpuvitals.load("run").gpus.pandas()
    texts = {"node", "uuid", "vendor", "model", "cluster", "pci", "driver", "pod", "namespace", "container", "job", "source", "partition", "vbios"}
    for name in frame.columns:
        kind = str(frame[name].dtype)
        wanted = {"int64"} if name in ("timestamp_ns", "monotonic_ns") else {"float64"}
        assert kind in (wanted if name not in texts else {"str", "object"}), f"{name}: {kind}"
    # The cards of one maker do not have what only the other's count.
    counted = frame[frame["vendor"] == "AMD"]["xid_count"] if "AMD" in set(frame["vendor"]) else frame[frame["vendor"] == "amd"]["xid_count"]
    assert len(counted) > 0 and counted.isna().all()


def test_a_recording_that_runs_or_was_killed_is_read_piece_by_piece():
    table = read(FILE)
    os.mkdir("run/unfinished")
    os.rename(FILE, "run/gpu_events.000001.parquet")
    parquet.write_table(table.drop_columns(["power_w"]), "run/gpu_events.000002.parquet")
    os.remove("run/marks.parquet")
    recording = gpuvitals.load("run")
    assert not recording.is_finished
    found = recording.gpus.arrow()
    assert found.num_rows == 2 * table.num_rows
    assert found["power_w"].null_count == table["power_w"].null_count + table.num_rows
    assert recording.marks.arrow().num_rows == 0


def test_a_damaged_file_is_named_with_its_row_group():
    table = groups(FILE, 2)
    column = table.column_names.index("power_w")
    group = parquet.ParquetFile(FILE).metadata.row_group(1).column(column)
    with open(FILE, "r+b") as file:
        at = group.data_page_offset + group.total_compressed_size // 2
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0xFF]))
    with pytest.raises(gpuvitals.BrokenRecording) as caught:
        gpuvitals.load("run").gpus.pandas()
    assert (caught.value.file, caught.value.row_group) == (FILE, 1)
    assert caught.value.reason and str(caught.value) == f"{FILE}, row group 1: {caught.value.reason}"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.file, again.row_group, str(again)) == (FILE, 1, str(caught.value))


def test_a_bit_that_changed_in_a_file_of_the_recorder_is_named_with_its_row_group():
    for name in ("gpu_events", "system_events", "marks"):
        file = f"run/{name}.parquet"
        begin, *_, end = row_groups(file)
        flipped(file, (begin + end) // 2, 3)
        recording = gpuvitals.load("run")
        table = {"gpu_events": recording.gpus, "system_events": recording.host, "marks": recording.marks}[name]
        with pytest.raises(gpuvitals.BrokenRecording, match="its bytes have changed since it was written") as caught:
            table.arrow()
        assert (caught.value.file, caught.value.row_group) == (file, 0)


def test_each_row_group_has_its_checksum_and_the_footer_too():
    groups(FILE, 3)
    summed(FILE)
    whole, ends = open(FILE, "rb").read(), row_groups(FILE)
    assert len(ends) == 4 and gpuvitals.load("run").gpus.arrow().num_rows == read(FILE).num_rows
    wanted = {at: group for group in range(3) for at in (ends[group], (ends[group] + ends[group + 1]) // 2, ends[group + 1] - 1)}
    wanted |= {ends[-1]: None, whole.rindex(b"gpuvsums") - 8: None, len(whole) - 100: None}
    for at, group in wanted.items():
        flipped(FILE, at, at % 8)
        with pytest.raises(gpuvitals.BrokenRecording, match="changed since it was written") as caught:
            gpuvitals.load("run").gpus.arrow()
        assert (caught.value.file, caught.value.row_group) == (FILE, group), at
        flipped(FILE, at, at % 8)
    flipped(FILE, len(whole) - 100)
    with pytest.raises(gpuvitals.BrokenRecording, match="footer"):
        assert gpuvitals.load("run").facts


def test_rows_that_another_program_has_written_anew_have_no_checksum_of_the_old_ones():
    table = read(FILE).slice(1)
    parquet.write_table(table, FILE)
    assert gpuvitals.load("run").gpus.arrow().to_pylist() == table.to_pylist()
    assert gpuvitals.load("run").facts["rate_hz"] == str(RATE)


def test_no_bit_of_a_file_can_change_a_value_unnoticed():
    whole, table = open(FILE, "rb").read(), gpuvitals.load("run").gpus.arrow()
    # The same places in every round, and all of the last ones.
    places = [zlib.crc32(str(number).encode()) % len(whole) for number in range(60)]
    for number, at in enumerate([*places, *range(len(whole) - 8, len(whole))]):
        flipped(FILE, at, number % 8)
        try:
            assert gpuvitals.load("run").gpus.arrow() == table, at
        except gpuvitals.BrokenRecording as error:
            assert error.file == FILE and error.reason  # noqa: PT017
        else:
            # Without its first bytes it is no worse, and without the mark of its checksums it is as an earlier version wrote it.
            tag = whole.rindex(b"gpuvsums")
            assert at < 4 or tag <= at < tag + 8
        flipped(FILE, at, number % 8)


def test_what_is_foreign_or_cut_is_refused_with_its_reason():
    def refused(words, directory="run"):
        with pytest.raises(gpuvitals.BrokenRecording, match=words) as caught:
            gpuvitals.load(directory).gpus.arrow()
        assert caught.value.row_group is None

    whole = open(FILE, "rb").read()
    for content, words in [(whole[: len(whole) // 2], "Parquet"), (b"", "Parquet"), (b"PAR1" * 100, "Parquet")]:
        with open(FILE, "wb") as file:
            file.write(content)
        refused(words)
    parquet.write_table(pyarrow.table({"timestamp_ns": [1]}), FILE)
    refused("not written by gpuvitals")
    parquet.write_table(pyarrow.table({"x": [1]}).replace_schema_metadata({"gpuvitals.schema": "gpu_events 1"}), FILE)
    refused("no column timestamp_ns")
    os.remove(FILE)
    refused("holds no recording")
    refused("holds no recording", "nowhere")
