"""Jobs of a real Slurm, and what the API says of them beside what Slurm does.

Usage: slurm.py GPUVITALS URL
"""

import base64
import calendar
import gzip
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

program, url = sys.argv[1:]
# How far apart two clocks of the same event may be: Slurm counts whole seconds, and its scripts run before and after them.
NEAR_S = 3
# After so long all that a job used is in the store: the agent publishes its sums every ten seconds.
SETTLED_S = 15
# What each captured GPU says of itself.
POWER_W, BUSY = 41.045, 0.11

passed = failed = 0


def test(check):
    """Runs a check and counts it."""
    global passed, failed
    try:
        check()
        passed += 1
    except Exception as error:  # Whatever it is, the others go on.
        failed += 1
        print(f"{check.__name__}: {error!r}")


def equal(found, wanted, what=""):
    assert found == wanted, f"{what}: {found!r}, not {wanted!r}"


def near(found, wanted, by, what):
    assert found is not None and abs(found - wanted) <= by, f"{what}: {found!r}, not about {wanted!r}"


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def ask(path):
    with urllib.request.urlopen(f"{url}/api/v1/{path}", timeout=30) as answer:
        return json.load(answer)


def until(what, true, patience=60):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            if found := true():
                return found
        except (urllib.error.URLError, subprocess.CalledProcessError):
            pass
        time.sleep(0.2)
    raise TimeoutError(f"{what} did not come within {patience} s")


def submit(name, gpus, work, *more):
    return run("sbatch", "--parsable", "--uid=nobody", "--gid=nogroup", "--account=ml", "--chdir=/", "--output=/dev/null",
               f"--gres=gpu:{gpus}", "--job-name", name, *more, "--wrap", work)


def shown(job):
    """What scontrol says of a job."""
    return dict(re.findall(r"(\w+)=(\S*)", run("scontrol", "--details", "show", "job", job)))


def numbers(job):
    """The numbers of a running job's GPUs."""
    found = set()
    for part in re.search(r"\(IDX:([\d,-]+)\)", run("scontrol", "--details", "show", "job", job))[1].split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def runs(job):
    return lambda: shown(job)["JobState"] == "RUNNING"


def instant(text):
    return calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))


FIELDS = "jobidraw,jobid,user,account,partition,jobname,state,exitcode,start,end,alloctres"


def recorded():
    """What the accounting says of each job, by number."""
    lines = run("sacct", "--allocations", "--allusers", "--parsable2", "--noheader", "--format", FIELDS).splitlines()
    records = [dict(zip(FIELDS.split(","), line.split("|"))) for line in lines]
    return {record["jobidraw"]: record for record in records}


def about(job):
    return ask(f"jobs/{job}?start={started}")["job"]


# Of an hour that a range cuts only a part is taken.
started = time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime(time.time()))
two = submit("two", 2, "srun sleep 14", "--comment", "team=nlp phase=2; call kim")
fails = submit("fails", 1, "sleep 8; exit 3")
until("two jobs at once", lambda: runs(two)() and runs(fails)())
gpus_of = {two: numbers(two), fails: numbers(fails)}


@test
def a_job_that_runs_has_its_gpus_and_says_so():
    found = until("the job", lambda: (one := about(two)).get("about", {}).get("account") and one)
    equal(found["about"]["state"], "running")
    detail = ask(f"jobs/{two}?start={started}")
    equal({gpu["index"] for gpu in detail["gpus"]}, gpus_of[two], "GPUs")


@test
def the_summary_of_a_job_that_runs_is_in_its_admin_comment():
    run(program, "jobs", "summary", two, "--last", "1h", "--write", "--url", url)
    comment = shown(two)["AdminComment"]
    # As jobstats reads it.
    assert comment.startswith("JS1:"), comment
    document = json.loads(gzip.decompress(base64.b64decode(comment[4:])))
    (node,) = document["nodes"].values()
    equal({int(gpu) for gpu in node["gpu_utilization"]}, gpus_of[two], "GPUs")


array = submit("array", 1, "sleep 4", "--array=0-1")
cancelled = submit("cancelled", 1, "sleep 60")
until("the cancelled job", runs(cancelled), 60)
gpus_of[cancelled] = numbers(cancelled)
time.sleep(3)
run("scancel", cancelled)
again = submit("again", 1, "sleep 5", "--requeue")
until("the job that is put back", runs(again))
first_start = shown(again)["StartTime"]
time.sleep(2)
run("scontrol", "requeue", again)
until("it in the queue", lambda: shown(again)["JobState"] == "PENDING")
until("its second run", runs(again), 60)
gpus_of[again] = numbers(again)
until("the end of all jobs", lambda: run("squeue", "--noheader") == "", 60)
records = until("the accounting", lambda: (all_ := recorded()) and all(one["end"] != "Unknown" for one in all_.values()) and all_)
tasks = [job for job, record in records.items() if record["jobname"] == "array"]


@test
def slurm_has_run_what_it_was_to_run():
    states = sorted((record["jobname"], record["state"].split()[0], record["exitcode"]) for record in records.values())
    wanted = [("again", "COMPLETED", "0:0"), ("array", "COMPLETED", "0:0"), ("array", "COMPLETED", "0:0"),
              ("cancelled", "CANCELLED", "0:0"), ("fails", "FAILED", "3:0"), ("two", "COMPLETED", "0:0")]
    equal([(name, state) for name, state, _ in states], [(name, state) for name, state, _ in wanted])
    equal(records[fails]["exitcode"], "3:0")


def compare(job):
    record = records[job]
    until("the sums", lambda: time.time() > instant(record["end"]) + SETTLED_S, SETTLED_S + 5)
    found = until("its end", lambda: (one := about(job)).get("about", {}).get("end") and one, 30)
    known = found["about"]
    for column, wanted in [("user", "user"), ("account", "account"), ("queue", "partition"), ("name", "jobname")]:
        equal(known[column], record[wanted], column)
    until("how it ended", lambda: about(job)["about"]["state"] != "ended", 30)
    equal(about(job)["about"]["state"], record["state"].split()[0].lower(), "state")
    equal(about(job)["about"]["gpus_asked"], int(re.search(r"gres/gpu=(\d+)", record["alloctres"])[1]), "GPUs asked for")
    begin, end = instant(record["start"]), instant(record["end"])
    near(instant(known["start"]), begin, NEAR_S, "start")
    near(instant(known["end"]), end, NEAR_S, "end")
    # Slurm tells its hooks 0:0 of a cancelled job, whatever it records.
    equal(known["exit_code"], "0:0" if job == cancelled else record["exitcode"], "exit code")
    gpus = int(re.search(r"gres/gpu=(\d+)", record["alloctres"])[1])
    if job != again:
        equal(found["gpus"], gpus, "GPUs")
    return found, gpus, end - begin


def compare_use(job):
    found, gpus, lasted_s = compare(job)
    held_h = found["held_gpu_hours"]
    near(held_h * 3_600, gpus * lasted_s, gpus * NEAR_S, "held")
    near(found["busy_gpu_hours"], held_h * BUSY, held_h * 0.02, "busy")
    near(found["energy_kwh"], held_h * POWER_W / 1_000, held_h * POWER_W / 50_000, "energy")


for job in [two, fails, cancelled, *tasks]:
    check = lambda job=job: compare_use(job)
    check.__name__ = f"the API says of job {records[job]['jobname']} what Slurm does"
    test(check)


@test
def a_job_that_was_put_back_has_its_last_run_and_what_it_used_in_both():
    found, gpus, lasted_s = compare(again)
    near(found["held_gpu_hours"] * 3_600, gpus * (lasted_s + 2), NEAR_S + 1, "held in both")
    assert instant(found["about"]["start"]) > instant(first_start), found


@test
def a_job_has_the_gpus_that_slurm_gave_it():
    for job in [two, fails, cancelled]:
        detail = ask(f"jobs/{job}?start={started}")
        equal({gpu["index"] for gpu in detail["gpus"]}, gpus_of[job], f"GPUs of {job}")


@test
def a_comment_gives_labels_and_nothing_else():
    equal(about(two)["about"].get("labels"), {"team": "nlp"})


@test
def tasks_of_an_array_have_their_places():
    places = {about(job)["about"]["array_task"] for job in tasks}
    equal(places, {records[job]["jobid"] for job in tasks})


@test
def the_table_has_a_row_of_each_who_told():
    rows = json.loads(run(program, "query", "rows", "jobs", "--last", "1h", "--limit", "1000", "--json", "--url", url))
    rows = [row["metrics"] for row in rows["data"]]
    for job in records:
        told = {row["told_by"] for row in rows if row["job_id"] == job}
        assert {"epilog", "controller"} <= told, f"{job}: {told}"


@test
def the_summary_of_a_job_that_is_over_is_in_the_accounting_or_the_program_says_why_not():
    told = subprocess.run([program, "jobs", "summary", fails, "--last", "1h", "--write", "--url", url], capture_output=True, text=True, timeout=60)
    comment = run("sacct", "--allocations", "--allusers", "--parsable2", "--noheader", "--jobs", fails, "--format", "admincomment")
    summary = run(program, "jobs", "summary", fails, "--last", "1h", "--js1", "--url", url)
    document = json.loads(gzip.decompress(base64.b64decode(summary.removeprefix("JS1:"))))
    equal(document["gpus"], 1)
    near(document["total_time"], instant(records[fails]["end"]) - instant(records[fails]["start"]), NEAR_S, "total_time")
    # sacctmgr of Slurm 22.05 writes small letters for capitals.
    if comment != summary:
        assert told.returncode != 0 and "--js1" in told.stderr, (told.returncode, told.stderr, comment)


print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
