"""Runs: one recording, whoever takes part in it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import types

import pytest
from conftest import RATE, has_rows, marks, texts, until

import gpuvitals


def record(directory="run", **named):
    return gpuvitals.record(directory, rate=RATE, **named)


def python(script, **environment):
    """Runs a script by a Python of its own."""
    words = [sys.executable, "-c", script]
    return subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)


def test_a_run_is_recorded_with_its_phases_steps_and_values():
    with record() as run:
        assert (run.directory, run.is_running, run.summary) == ("run", True, None)
        run.phase("load")
        for step in range(2):
            run.phase("step", step)
            run.value("loss", 0.5)
        with run.phase("checkpoint"):
            pass
        run.phase("epoch", 1)
        run.mark("two words")
        has_rows("run")
    assert marks("run") == [
        ("load", None, None, None, "load"),
        (None, 0, None, None, "step 0"),
        (None, None, "loss", 0.5, "loss 0.5"),
        (None, 1, None, None, "step 1"),
        (None, None, "loss", 0.5, "loss 0.5"),
        ("checkpoint", None, None, None, "checkpoint"),
        # The first step has ended the phase of loading: it does not go on after the checkpoint.
        ("", None, None, None, "end of the phase"),
        ("epoch", None, None, None, "epoch 1"),
        (None, None, None, None, "two words"),
    ]
    assert run.summary["gpu_rows"] > 0 and not run.is_running
    assert run.summary["gpus"][0]["energy"]["joules"] > 0
    recording = gpuvitals.load("run")
    assert recording.is_finished and recording.facts["command"].startswith("python")


def test_a_phase_that_has_steps_goes_on_after_one_within_it():
    with record() as run:
        with run.phase("train"):
            run.phase("step", 0)
            with run.phase("checkpoint"):
                pass
            run.phase("step", 1)
        has_rows("run")
    assert texts("run") == ["train", "step 0", "checkpoint", "end of the phase", "train", "step 1", "end of the phase"]


def test_marks_have_the_time_at_which_they_were_set_and_not_that_of_their_arrival():
    with record() as run:
        before = time.monotonic_ns()
        for step in range(200):
            run.phase("step", step)
        after = time.monotonic_ns()
    times = gpuvitals.load("run").marks.arrow()["monotonic_ns"].to_pylist()
    assert len(times) == 200 and times == sorted(times)
    assert before <= times[0] and times[-1] <= after


def test_what_is_no_plain_number_or_text_is_marked_as_well_as_it_can_be():
    numpy = pytest.importorskip("numpy")
    with record() as run:
        run.phase("step", numpy.int64(3))
        run.value("loss", numpy.float32(0.5))
        run.value("loss", float("nan"))
        run.mark("</script>\n" + "x" * 100_000)
        run.mark("{not JSON")
        run.mark("\udcff")
    found = marks("run")
    assert found[:3] == [(None, 3, None, None, "step 3"), (None, None, "loss", 0.5, "loss 0.5"), (None, None, None, None, "loss nan")]
    assert [text for *_, text in found[3:]] == ["</script>\n" + "x" * 1014, "{not JSON", "?"]


def test_the_items_of_a_loop_are_steps():
    with record() as run:
        assert list(run.steps("ab", start=5)) == ["a", "b"]
    assert texts("run") == ["step 5", "step 6", "end of the phase"]


def test_a_function_is_recorded_each_time_it_is_called():
    @record(force=True)
    def train(steps):
        gpuvitals.current().phase("step", steps)
        return steps

    @record(force=True)
    async def later(steps):
        return train(steps)

    for steps in (1, 2):
        assert train(steps) == steps
        assert texts("run") == [f"step {steps}"]
    assert asyncio.run(later(3)) == 3
    assert texts("run") == ["step 3"]
    assert gpuvitals.current() is None
    with pytest.raises(TypeError, match="generator"):

        @record()
        def items():
            yield 1


def test_runs_within_a_run_and_of_threads_take_part_in_it():
    def work():
        with record("thread") as run:
            run.mark("thread")

    with record() as outer:
        with record("inner") as inner:
            inner.mark("inner")
            assert inner.directory == "run"
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outer.mark("outer")
        assert inner.summary is None
        has_rows("run")
    assert sorted(os.listdir()) == ["run"]
    assert sorted(texts("run")) == ["inner", "outer", *["thread"] * 8]
    assert outer.summary["gpu_rows"] == gpuvitals.load("run").gpus.arrow().num_rows


def test_a_recording_lasts_until_the_last_run_has_ended():
    first, second = record().start(), record().start()
    first.stop()
    first.stop()
    second.mark("still there")
    with pytest.raises(gpuvitals.GpuvitalsError, match="within"):
        first.mark("too late")
    second.stop()
    assert texts("run") == ["still there"]


def test_a_forked_child_counts_nothing_again():
    with record() as run:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run.phase("step", 99)
                with record("child") as own:
                    own.mark("child")
                run.stop()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        run.phase("step", 1)
    assert texts("run") == ["step 1"]
    assert os.listdir() == ["run"]


def test_a_program_that_is_started_takes_part():
    with record():
        script = "import gpuvitals\nwith gpuvitals.record('own') as run: run.mark('from a program')"
        ended = python(script)
        assert ended.returncode == 0, ended.stderr
    assert texts("run") == ["from a program"]
    assert os.listdir() == ["run"]
    ended = python(script, GPUVITALS_MARK_SOCKET="/nonexistent")
    assert ended.returncode == 1 and "unset the variable" in ended.stderr


def test_a_program_under_gpuvitals_record_takes_part_in_that():
    script = "import gpuvitals\nwith gpuvitals.record('own') as run: run.phase('step', 7)\nassert run.directory is None"
    words = [gpuvitals.program(), "record", "--output", "outside", "--", sys.executable, "-c", script]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert texts("outside") == ["step 7"] and os.listdir() == ["outside"]


def test_of_the_ranks_of_a_node_the_first_records(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    with record() as run:
        run.phase("step", 1)
    assert (run.directory, run.summary, os.listdir()) == (None, None, [])


@pytest.mark.parametrize("driver", ["nvml", "procfs"])
def test_without_a_gpu_it_fails_with_the_remedy(monkeypatch, driver):
    monkeypatch.setenv("GPUVITALS_SAMPLING_DRIVERS", driver)
    for ask in (record().start, gpuvitals.sample):
        with pytest.raises(gpuvitals.NoGpu, match="no GPU") as caught:
            ask()
        assert caught.value.exit_code == 69
        assert driver != "nvml" or "libnvidia-ml" in str(caught.value)
    assert os.listdir() == [], "nothing was begun"
    assert "GPUVITALS_MARK_SOCKET" not in os.environ


def test_a_recording_that_is_there_is_kept_unless_force_is_given():
    with record():
        pass
    with pytest.raises(gpuvitals.RecordFailed, match="--force") as caught:
        record().start()
    assert caught.value.exit_code == 65
    with record(force=True) as run:
        run.mark("new")
    assert texts("run") == ["new"]


def test_an_error_in_the_block_stays_the_error_and_the_recording_is_whole():
    with pytest.raises(ZeroDivisionError), record() as run:
        run.mark("before")
        1 / 0  # noqa: B018
    assert texts("run") == ["before"]


def test_a_recorder_that_is_killed_costs_no_step_and_is_reported_at_the_end():
    run = record().start()
    recorder = run._session.recorder._process
    recorder.kill()
    recorder.wait()
    run.phase("step", 1)
    with pytest.raises(gpuvitals.RecordFailed, match="gpuvitals repair"):
        run.stop()
    assert gpuvitals.current() is None


def test_a_program_that_is_killed_ends_its_recording():
    script = """
import gpuvitals, os, signal
run = gpuvitals.record('run', rate=20).start()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert python(script).returncode == -signal.SIGKILL
    until("whole recording", lambda: not os.path.exists("run/unfinished"))
    assert gpuvitals.load("run").facts["ended"] == "stopped"


def test_a_program_that_ends_within_a_run_ends_it_whole():
    ended = python("import gpuvitals\nrun = gpuvitals.record('run', rate=20).start()\nrun.mark('last')")
    assert ended.returncode == 0, ended.stderr
    assert texts("run") == ["last"]


def test_interrupted_the_program_ends_its_recording_itself():
    script = """
import gpuvitals, sys, time
with gpuvitals.record('run', rate=20) as run:
    try:
        print('ready', flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        run.mark('saved')
"""
    words = [sys.executable, "-c", script]
    # As a terminal does: the signal is for the whole group.
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
    assert process.returncode == 0
    assert texts("run") == ["saved"]


def test_queued_work_is_waited_for_where_it_is_asked_for(monkeypatch):
    done = []
    cuda = types.SimpleNamespace(is_available=lambda: True, synchronize=lambda: done.append("torch"))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    with record() as run:
        run.phase("step", 0)
        assert done == [], "off by default"
        run.phase("step", 1, sync="torch")
        run.phase("step", 2, sync=lambda: done.append("own"))
        for _ in run.steps("a", sync="torch"):
            pass
    assert done == ["torch", "own", "torch", "torch"]
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    with record(force=True, sync="torch") as run:
        run.phase("step", 0)
    assert len(done) == 4, "nothing is queued on a CPU"
    with pytest.raises(ValueError, match="torch"):
        record("other", sync="tpu").start()
    assert os.listdir() == ["run"]


def test_a_mark_needs_a_run_and_a_step_its_number():
    with pytest.raises(gpuvitals.GpuvitalsError, match="within"):
        record().mark("x")
    with record() as run, pytest.raises(ValueError, match="number"):
        run.phase("step")


def test_a_mark_costs_no_more_than_its_line_of_json():
    """A mark takes one to two microseconds, a line that people write by hand three. The machine may be slow at that moment."""

    def line(step):
        json.dumps({"time": time.time_ns(), "phase": "step", "step": step})

    with record() as run:
        rounds = [(_of_one(lambda step: run.phase("step", step)), _of_one(line)) for _ in range(50)]
    mark, written = (min(cost) for cost in zip(*rounds, strict=True))
    assert mark <= written, f"{mark} ns, a line takes {written} ns"


def _of_one(call):
    """Nanoseconds of a call, over some."""
    start = time.perf_counter_ns()
    for step in range(100):
        call(step)
    return (time.perf_counter_ns() - start) / 100
