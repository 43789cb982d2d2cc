//! How jobs ended. Slurm tells its hooks `0:0` of a job that was cancelled or ran out of time, too, so it is asked when its last script has run.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::causes;
use gpuvitals_core::clock::Moment;
use gpuvitals_sources::machine::{LocalTool, Tool};

use super::jobs::Jobs;

/// Slurm's program that lists jobs, also those of its last minutes.
pub(super) const PROGRAM: &str = "squeue";
/// What it prints of each: number and state. Nothing in it is a text of users.
const FORMAT: &str = "--format=%A %T";
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

/// Asks how jobs ended whenever the controller has told of ends, until it is known of each or was asked for often enough.
pub(super) async fn ask(jobs: Arc<Jobs>) {
    let mut works = true;
    loop {
        jobs.ended.notified().await;
        loop {
            tokio::time::sleep(PAUSE).await;
            let ids = jobs.without_outcome();
            if ids.is_empty() {
                break;
            }
            let asking = tokio::task::spawn_blocking(move || answer(&ids));
            match asking.await {
                Ok(Ok(text)) => {
                    outcomes(&text).for_each(|(id, outcome)| jobs.take_outcome(id, outcome, Moment::now()));
                    works = true;
                }
                Ok(Err(error)) if works => {
                    tracing::warn!(
                        error,
                        "Slurm does not say how jobs ended: they are only known to be over"
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

/// The jobs that are over, and how each ended.
fn outcomes(text: &str) -> impl Iterator<Item = (&str, &'static str)> {
    text.lines().filter_map(|line| {
        let (id, state) = line.trim().split_once(' ')?;
        let (_, outcome) = STATES.iter().find(|(known, _)| *known == state)?;
        Some((id, *outcome))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_over_has_its_state_and_one_that_goes_on_has_none() {
        let text = "1 CANCELLED\n4 COMPLETED\n5 COMPLETING\n6 PENDING\n2 FAILED\n\nnothing\n7 TIMEOUT\n";
        let told: Vec<(&str, &str)> = outcomes(text).collect();
        assert_eq!(told, [("1", "cancelled"), ("4", "completed"), ("2", "failed"), ("7", "timeout")]);
    }
}
