//! What Slurm's hooks are not told: how many GPUs a job asked for, and how it ended. They have `0:0` of a job that was cancelled or ran out of
//! time, too. So Slurm is asked when a job has begun, and when its last script has run.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::causes;
use gpuvitals_core::clock::Moment;
use gpuvitals_sources::machine::{LocalTool, Tool};

use super::asked::{self, SlurmWord};
use super::jobs::Jobs;

/// Slurm's program that lists jobs, also those of its last minutes.
pub(super) const PROGRAM: &str = "squeue";
/// What it prints of each: number, state, how many hosts, and what was asked for on each. None of it has a blank in it.
const FORMAT: &str = "--format=%A %T %D %b";
/// State of a job whose hosts go back one after the other: as long as it lasts, only those are counted that have not.
const COMPLETING: &str = "COMPLETING";
/// Pause before it is asked: until its last script has ended, a job is only said to complete.
const PAUSE: Duration = Duration::from_secs(3);
/// Longest time for an answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// Slurm's states of jobs that are over, and what rows call them.
const STATES: [(&str, &str); 9] = [
    ("COMPLETED", "completed"),
    ("FAILED", "failed"),
    ("CANCELLED", "cancelled"),
    ("TIMEOUT", "timeout"),
    ("OUT_OF_MEMORY", "out_of_memory"),
    ("NODE_FAIL", "node_fail"),
    ("PREEMPTED", "preempted"),
    ("DEADLINE", "deadline"),
    ("BOOT_FAIL", "boot_fail"),
];

/// Asks of jobs whenever the controller has told of some: once of each that runs, and of each that is over until it is known how it ended, or
/// was asked for often enough.
pub(super) async fn ask(jobs: Arc<Jobs>) {
    let mut works = true;
    loop {
        jobs.controlled.notified().await;
        loop {
            tokio::time::sleep(PAUSE).await;
            let ids = jobs.to_ask();
            if ids.is_empty() {
                break;
            }
            let asking = tokio::task::spawn_blocking(move || answer(&ids));
            match asking.await {
                Ok(Ok(text)) => {
                    words(&text).for_each(|(id, word)| jobs.take_word(id, word, Moment::now()));
                    works = true;
                }
                Ok(Err(error)) if works => {
                    tracing::warn!(
                        error,
                        "Slurm does not answer: how jobs end and how many GPUs they ask for is not known"
                    );
                    works = false;
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }
}

/// What Slurm says of these jobs.
///
/// # Errors
/// Why it says nothing, in words.
fn answer(ids: &[String]) -> Result<String, String> {
    let jobs = format!("--jobs={}", ids.join(","));
    let output = LocalTool(PROGRAM.into())
        .run(&["--noheader", "--states=all", &jobs, FORMAT], DEADLINE)
        .map_err(|error| causes(&error))?;
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // A single job that it has forgotten is an error to it.
    let is_told = output.code == Some(0) || ids.len() == 1;
    if is_told { Ok(String::from_utf8_lossy(&output.stdout).into_owned()) } else { Err(words) }
}

/// Each job of the text, with what Slurm says of it.
fn words(text: &str) -> impl Iterator<Item = (&str, SlurmWord)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (id, state) = (fields.next()?, fields.next()?);
        let outcome = STATES.iter().find(|(known, _)| *known == state).map(|(_, outcome)| *outcome);
        let hosts = fields.next().filter(|_| state != COMPLETING).and_then(|hosts| hosts.parse::<i64>().ok());
        let of_host = fields.next().and_then(asked::in_resources);
        let gpus_asked = hosts.zip(of_host).and_then(|(hosts, gpus)| hosts.checked_mul(gpus));
        Some((id, SlurmWord { outcome, gpus_asked }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_over_has_its_state_and_one_that_goes_on_has_none() {
        let text = "1 CANCELLED 1 N/A\n4 COMPLETED 2 gres:gpu:h100:4\n5 COMPLETING 1 gres:gpu:2\n6 PENDING\n\nnothing\n7 TIMEOUT 3 gres:nvme:1\n8 RUNNING 2 gres/gpu:2\n";
        let told: Vec<(&str, Option<&str>, Option<i64>)> =
            words(text).map(|(id, word)| (id, word.outcome, word.gpus_asked)).collect();
        assert_eq!(
            told,
            [
                ("1", Some("cancelled"), None),
                ("4", Some("completed"), Some(8)),
                ("5", None, None),
                ("6", None, None),
                ("7", Some("timeout"), None),
                ("8", None, Some(4)),
            ]
        );
    }
}
