//! A job's summary in Slurm's `AdminComment`, where jobstats reads it.

use std::time::Duration;

use gpuvitals_core::causes;
use gpuvitals_sources::machine::{LocalTool, Tool};

use crate::failure::{Exit, Failure};

/// How long a program of Slurm may take.
const DEADLINE: Duration = Duration::from_secs(20);
/// What sacctmgr prints, and ends with 0, when it knows no such job.
const NOTHING: &str = "Nothing";

/// Writes the comment of a job: by scontrol, which takes it while the job runs, else by sacctmgr, which takes it where slurmdbd runs.
///
/// # Errors
/// If neither takes it.
pub(super) fn write(id: &str, comment: &str) -> Result<(), Failure> {
    put(id, comment, [&LocalTool("scontrol".into()), &LocalTool("sacctmgr".into())])
}

fn put(id: &str, comment: &str, [scontrol, sacctmgr]: [&dyn Tool; 2]) -> Result<(), Failure> {
    let comment = format!("AdminComment={comment}");
    let (job, number) = (format!("job={id}"), format!("jobid={id}"));
    let running = run(scontrol, &["update", &job, &comment]);
    let Err(while_it_runs) = running else { return Ok(()) };
    let over = run(sacctmgr, &["-i", "modify", "job", "where", &number, "set", &comment]);
    let Err(afterwards) = over else { return Ok(()) };
    let text = format!(
        "Slurm does not take the summary of job {id}; write it into a file by --js1. scontrol: {while_it_runs}; sacctmgr: {afterwards}"
    );
    Err(Failure::new(Exit::Unavailable, text))
}

/// Runs a program of Slurm; else why it has not done what it was to do.
fn run(tool: &dyn Tool, arguments: &[&str]) -> Result<(), String> {
    let output = tool.run(arguments, DEADLINE).map_err(|error| causes(&error))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.code == Some(0) && !said.contains(NOTHING) {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let last = complaint.lines().chain(said.lines()).map(str::trim).find(|line| !line.is_empty());
    Err(last.unwrap_or("it does not say why").escape_debug().to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use gpuvitals_sources::machine::{ToolError, ToolOutput};

    use super::*;

    /// A program of Slurm with its exit code, standard output and standard error, and what it was asked.
    #[derive(Debug)]
    struct Double(i32, &'static str, &'static str, Mutex<Vec<String>>);

    impl Double {
        fn new(code: i32, stdout: &'static str, stderr: &'static str) -> Self {
            Self(code, stdout, stderr, Mutex::default())
        }

        fn asked(&self) -> Vec<String> {
            self.3.lock().unwrap().clone()
        }
    }

    impl Tool for Double {
        fn run(&self, arguments: &[&str], _: Duration) -> Result<ToolOutput, ToolError> {
            self.3.lock().unwrap().push(arguments.join(" "));
            Ok(ToolOutput { code: Some(self.0), stdout: self.1.into(), stderr: self.2.into() })
        }

        fn patience(&self) -> Duration {
            DEADLINE
        }
    }

    #[test]
    fn a_job_that_runs_has_its_comment_by_scontrol_and_one_that_is_over_by_sacctmgr() {
        let (takes, other) = (Double::new(0, "", ""), Double::new(0, "", ""));
        assert!(put("7", "JS1:a=", [&takes, &other]).is_ok());
        assert_eq!(
            (takes.asked(), other.asked()),
            (vec!["update job=7 AdminComment=JS1:a=".to_owned()], vec![])
        );
        let over = Double::new(1, "", "Job has already finished for job 7\n");
        let other = Double::new(0, " Modified jobs...\n  7\n", "");
        assert!(put("7", "JS1:a=", [&over, &other]).is_ok());
        assert_eq!(other.asked(), ["-i modify job where jobid=7 set AdminComment=JS1:a="]);
    }

    #[test]
    fn what_nobody_takes_is_said_with_both_reasons() {
        let over = Double::new(1, "", "Job has already finished for job 7\n");
        for (other, why) in [
            (Double::new(0, " Nothing modified\n", ""), "Nothing modified"),
            (Double::new(1, "", "\nno slurmdbd \u{1b}[2J\n"), "no slurmdbd \\u{1b}[2J"),
            (Double::new(1, "", ""), "it does not say why"),
        ] {
            let said = put("7", "JS1:a=", [&over, &other]).unwrap_err().to_string();
            assert!(said.contains("already finished") && said.contains(why), "{said}");
        }
    }
}
