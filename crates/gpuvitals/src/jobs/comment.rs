//! A job's summary in Slurm's `AdminComment`, where jobstats reads it.

use std::time::Duration;

use gpuvitals_core::causes;
use gpuvitals_sources::machine::{LocalTool, Tool};

use crate::failure::{Exit, Failure};

/// How long a program of Slurm may take.
const DEADLINE: Duration = Duration::from_secs(20);
/// What sacctmgr prints, and ends with 0, when it knows no such job.
const NOTHING: &str = "Nothing";

/// Refuses a job of another cluster than that of this machine's Slurm, which would take the comment for its own job of that number.
///
/// # Errors
/// If Slurm does not say what its cluster is, or it is another.
pub(super) fn check_cluster(id: &str, cluster: &str) -> Result<(), Failure> {
    is_of(id, cluster, &LocalTool("scontrol".into()))
}

fn is_of(id: &str, cluster: &str, scontrol: &dyn Tool) -> Result<(), Failure> {
    let remedy = format!("--cluster {cluster} says that they are one");
    let said = run(scontrol, &["show", "config"]).and_then(|config| {
        let setting = |line: &str| Some(line.split_once('=')?.1.trim().to_owned());
        let named = config.lines().find(|line| line.starts_with("ClusterName "));
        named.and_then(setting).ok_or_else(|| "scontrol show config names none".to_owned())
    });
    let own = said.map_err(|why| {
        let text = format!(
            "job {id} is of cluster {cluster:?}, and Slurm does not say whether that is its own; {remedy}. scontrol: {why}"
        );
        Failure::new(Exit::Unavailable, text)
    })?;
    // Slurm keeps its name in small letters.
    if own.eq_ignore_ascii_case(cluster) {
        return Ok(());
    }
    let text = format!(
        "job {id} is of cluster {cluster:?}, and this machine's Slurm is of {own:?}: ask where the job ran; {remedy}"
    );
    Err(Failure::new(Exit::Data, text))
}

/// Writes the comment of a job: by scontrol, which takes it while the job runs, else by sacctmgr, which takes it where slurmdbd runs.
///
/// # Errors
/// If neither takes it, or sacctmgr writes another text.
pub(super) fn write(id: &str, comment: &str) -> Result<(), Failure> {
    let [scontrol, sacctmgr, sacct] = ["scontrol", "sacctmgr", "sacct"].map(|name| LocalTool(name.into()));
    put(id, comment, [&scontrol, &sacctmgr, &sacct])
}

fn put(id: &str, comment: &str, [scontrol, sacctmgr, sacct]: [&dyn Tool; 3]) -> Result<(), Failure> {
    let setting = format!("AdminComment={comment}");
    let (job, number) = (format!("job={id}"), format!("jobid={id}"));
    let running = run(scontrol, &["update", &job, &setting]);
    let Err(while_it_runs) = running else { return Ok(()) };
    let over = run(sacctmgr, &["-i", "modify", "job", "where", &number, "set", &setting]);
    let Err(afterwards) = over.and_then(|_| kept(id, comment, sacct)) else { return Ok(()) };
    let text = format!(
        "Slurm does not take the summary of job {id}; write it while the job runs, or into a file by --js1. scontrol: {while_it_runs}; sacctmgr: {afterwards}"
    );
    Err(Failure::new(Exit::Unavailable, text))
}

/// Whether Slurm has the comment as it was written; else why not. Some sacctmgr, as that of 22.05, write small letters for capitals, and
/// nobody can read the summary then.
fn kept(id: &str, comment: &str, sacct: &dyn Tool) -> Result<(), String> {
    let asked = ["-X", "-a", "-n", "-P", "-j", id, "-o", "AdminComment"];
    let said = run(sacct, &asked).map_err(|why| format!("it took it, but sacct does not show it: {why}"))?;
    // A number that was used again is that of several jobs.
    if said.lines().any(|line| line.trim() == comment) {
        return Ok(());
    }
    Err("it has written another text than it was given".to_owned())
}

/// What a program of Slurm says; else why it has not done what it was to do.
fn run(tool: &dyn Tool, arguments: &[&str]) -> Result<String, String> {
    let output = tool.run(arguments, DEADLINE).map_err(|error| causes(&error))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.code == Some(0) && !said.contains(NOTHING) {
        return Ok(said.into_owned());
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
        let quiet = || Double::new(0, "", "");
        let (takes, other) = (quiet(), quiet());
        assert!(put("7", "JS1:a=", [&takes, &other, &quiet()]).is_ok());
        assert_eq!(
            (takes.asked(), other.asked()),
            (vec!["update job=7 AdminComment=JS1:a=".to_owned()], vec![])
        );
        let over = Double::new(1, "", "Job has already finished for job 7\n");
        let other = Double::new(0, " Modified jobs...\n  7\n", "");
        let sacct = Double::new(0, "\nJS1:a=\n", "");
        assert!(put("7", "JS1:a=", [&over, &other, &sacct]).is_ok());
        assert_eq!(other.asked(), ["-i modify job where jobid=7 set AdminComment=JS1:a="]);
        assert_eq!(sacct.asked(), ["-X -a -n -P -j 7 -o AdminComment"]);
    }

    #[test]
    fn a_job_of_another_cluster_than_slurms_own_is_refused() {
        const CONFIG: &str = "Configuration data as of 2026-11-20T16:00:00\nClusterName             = east\nCommentEnabled = x\n";
        let scontrol = Double::new(0, CONFIG, "");
        assert!(is_of("7", "East", &scontrol).is_ok(), "Slurm knows no capitals");
        assert_eq!(scontrol.asked(), ["show config"]);
        let other = is_of("7", "west", &Double::new(0, CONFIG, "")).unwrap_err();
        let said = other.to_string();
        assert!(
            said.contains("\"west\"") && said.contains("\"east\"") && said.contains("--cluster west"),
            "{said}"
        );
        assert_eq!(other.code(), 65);
        for (scontrol, why) in [
            (Double::new(1, "", "Unable to contact slurm controller\n"), "scontrol: Unable to contact"),
            (Double::new(0, "Configuration data\n", ""), "names none"),
        ] {
            let failure = is_of("7", "east", &scontrol).unwrap_err();
            let said = failure.to_string();
            assert!(said.contains(why) && said.contains("--cluster east"), "{said}");
            assert_eq!(failure.code(), 69);
        }
    }

    #[test]
    fn what_nobody_takes_is_said_with_both_reasons() {
        let over = Double::new(1, "", "Job has already finished for job 7\n");
        for (other, why) in [
            (Double::new(0, " Nothing modified\n", ""), "Nothing modified"),
            (Double::new(1, "", "\nno slurmdbd \u{1b}[2J\n"), "no slurmdbd \\u{1b}[2J"),
            (Double::new(1, "", ""), "it does not say why"),
        ] {
            let sacct = Double::new(0, "JS1:a=\n", "");
            let said = put("7", "JS1:a=", [&over, &other, &sacct]).unwrap_err().to_string();
            assert!(said.contains("already finished") && said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_summary_that_slurm_has_changed_is_not_written() {
        let over = Double::new(1, "", "Job has already finished for job 7\n");
        let other = Double::new(0, " Modified jobs...\n  7\n", "");
        for (sacct, why) in [
            (Double::new(0, "js1:ab=\n", ""), "another text"),
            (Double::new(0, "", ""), "another text"),
            (Double::new(1, "", "no slurmdbd\n"), "sacct does not show it: no slurmdbd"),
        ] {
            let said = put("7", "JS1:aB=", [&over, &other, &sacct]).unwrap_err().to_string();
            assert!(said.contains(why) && said.contains("--js1"), "{said}");
        }
    }
}
