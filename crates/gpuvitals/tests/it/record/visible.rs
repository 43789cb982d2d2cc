//! The GPUs that are recorded with a command: those that the variables of its runtime name.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use gpuvitals_core::Table;
use gpuvitals_record::{Data, RecordingFacts};
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::library::Library;
use gpuvitals_rig::program::Finished as _;

use super::{record, said};

const FIRST: &str = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50";
const SECOND: &str = "GPU-5fd4f087-86f3-7a43-b711-4771313afc51";

/// Records with these variables until there are rows of a table. Answers the keys of the recorded GPUs, and what was said.
fn recorded(
    command: &mut Command,
    directory: &Path,
    table: Table,
    set: &[(&str, &str)],
) -> (Vec<String>, String) {
    let journal = directory.join(format!("unfinished/{}.000001.rows", table.name()));
    command.envs(set.iter().copied());
    let script = r#"until [ -s "$0" ]; do :; done"#;
    let output = command.args(["--force", "--", "sh", "-c", script]).arg(journal).finished().unwrap();
    let (_, stderr) = said(&output);
    assert!(output.status.success(), "{set:?}: {stderr}");
    let batches = Data::open(directory).unwrap().map(Result::unwrap);
    let of_gpus = batches.filter(|batch| batch.table() == Table::GpuEvents);
    let keys = of_gpus.flat_map(|batch| {
        let key = |row| batch.identity(row).key().unwrap().to_string();
        (0..batch.rows()).map(key).collect::<Vec<_>>()
    });
    (keys.collect::<BTreeSet<_>>().into_iter().collect(), stderr)
}

/// The keys of GPUs of NVIDIA, with these variables and flags.
fn of_nvidia(library: &Library, set: &[(&str, &str)], flags: &[&str]) -> (Vec<String>, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = gpuvitals!();
    command
        .args(["record", "--driver", "nvml", "--driver", "procfs", "--output"])
        .arg(dir.path())
        .args(flags);
    command.env("GPUVITALS_NVML_LIBRARY", library.path());
    let is_none = set.contains(&("CUDA_VISIBLE_DEVICES", "-1"));
    let table = if is_none && flags.is_empty() { Table::SystemEvents } else { Table::GpuEvents };
    recorded(&mut command, dir.path(), table, set)
}

#[test]
fn a_command_is_recorded_with_the_gpus_that_cuda_shows_it() {
    let library = Library::new();
    let check = |set: &[(&str, &str)], flags: &[&str], wanted: &[&str], words: &str| {
        let (keys, stderr) = of_nvidia(&library, set, flags);
        assert_eq!(keys, wanted, "{set:?}: {stderr}");
        assert!(stderr.contains(words), "{words} is not in {stderr}");
    };
    let by_cuda = "CUDA_VISIBLE_DEVICES";
    check(&[], &[], &[FIRST, SECOND], "recording to");
    check(&[(by_cuda, "1")], &[], &[SECOND], "CUDA_VISIBLE_DEVICES=1: 1 of 2 GPUs are recorded");
    check(&[(by_cuda, "1")], &["--all-gpus"], &[FIRST, SECOND], "recording to");
    check(&[(by_cuda, FIRST)], &[], &[FIRST], "1 of 2 GPUs");
    check(&[(by_cuda, "-1")], &[], &[], "CUDA_VISIBLE_DEVICES=-1 names no GPU, and none is recorded");
    check(&[("HIP_VISIBLE_DEVICES", "0")], &[], &[FIRST, SECOND], "recording to");
    library.says(&["1.name NVIDIA A100"]);
    check(&[(by_cuda, "1")], &[], &[FIRST, SECOND], "all GPUs are recorded, because CUDA counts");
    check(&[(by_cuda, "1"), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")], &[], &[SECOND], "1 of 2 GPUs");
}

#[test]
fn the_files_say_which_gpus_were_chosen_and_why() {
    let (library, dir) = (Library::new(), tempfile::tempdir().unwrap());
    let chosen = |set: &[(&str, &str)], flags: &[&str]| {
        let mut command = gpuvitals!();
        command.args(["record", "--driver", "nvml", "--driver", "procfs", "--output"]).arg(dir.path());
        command.args(flags).env("GPUVITALS_NVML_LIBRARY", library.path());
        recorded(&mut command, dir.path(), Table::GpuEvents, set);
        RecordingFacts::read(dir.path()).unwrap().get("chosen").unwrap().to_owned()
    };
    let first = [("CUDA_VISIBLE_DEVICES", "0")];
    assert_eq!(chosen(&first, &[]), "1 of 2 by CUDA_VISIBLE_DEVICES=0");
    assert_eq!(chosen(&first, &["--all-gpus"]), "all: --all-gpus");
    assert_eq!(chosen(&[], &[]), "all: the environment names none");
}

#[test]
fn beside_a_process_the_same_gpus_are_recorded_and_one_may_have_to_be_left() {
    let (library, dir) = (Library::new(), tempfile::tempdir().unwrap());
    let pid = std::process::id().to_string();
    let beside = |shown: &str, flags: &[&str]| {
        let mut command = gpuvitals!();
        command.args(["record", "--driver", "nvml", "--driver", "procfs", "--force", "--output"]);
        command.arg(dir.path()).args(["--pid", &pid, "--duration", "500ms"]).args(flags);
        command.env("GPUVITALS_NVML_LIBRARY", library.path()).env("CUDA_VISIBLE_DEVICES", shown);
        let output = command.finished().unwrap();
        (output.status.code(), said(&output).1)
    };
    let (_, stderr) = beside("1", &["--require-gpus"]);
    assert!(stderr.contains("CUDA_VISIBLE_DEVICES=1: 1 of 2 GPUs are recorded"), "{stderr}");
    let (code, stderr) = beside("-1", &["--require-gpus"]);
    assert!(code == Some(69) && stderr.contains("no GPU that could be recorded"), "{code:?}: {stderr}");
    let (_, stderr) = beside("-1", &["--require-gpus", "--all-gpus"]);
    assert!(stderr.contains("recording to") && !stderr.contains("CUDA_VISIBLE_DEVICES"), "{stderr}");
}

#[test]
fn a_mig_instance_is_recorded_with_its_gpu_and_without_its_neighbours() {
    let library = Library::new();
    library.says(&["0.mig 1", "0.instances 2"]);
    for name in ["MIG-00000000-1111-2222-3333-000000000001", &format!("MIG-{FIRST}/7/0")] {
        let (keys, stderr) = of_nvidia(&library, &[("CUDA_VISIBLE_DEVICES", name)], &[]);
        assert_eq!(keys, [FIRST.to_owned(), format!("{FIRST}:7")], "{name}: {stderr}");
        assert!(stderr.contains("the GPUs that it names are recorded"), "{stderr}");
    }
    library.says(&["0.mig 1", "0.instances 1"]);
    let (keys, stderr) = of_nvidia(&library, &[("CUDA_VISIBLE_DEVICES", "MIG-0000")], &[]);
    assert_eq!(keys, [FIRST.to_owned(), format!("{FIRST}:7")], "only one begins like this: {stderr}");
}

#[test]
fn a_command_is_recorded_with_the_gpus_that_rocm_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let check = |tree: &str, table: Table, set: &[(&str, &str)], count: usize, words: &str| {
        let (keys, stderr) = recorded(&mut record(tree, dir.path()), dir.path(), table, set);
        assert_eq!(keys.len(), count, "{set:?}: {stderr}");
        assert!(stderr.contains(words), "{words} is not in {stderr}");
    };
    let by_hip = "HIP_VISIBLE_DEVICES";
    check("phoenix", Table::GpuEvents, &[(by_hip, "0")], 1, "recording to");
    check("phoenix", Table::SystemEvents, &[(by_hip, "1")], 0, "HIP_VISIBLE_DEVICES=1 names no GPU");
    check(
        "phoenix",
        Table::SystemEvents,
        &[("ROCR_VISIBLE_DEVICES", "")],
        0,
        "ROCR_VISIBLE_DEVICES= names no",
    );
    check("rx7900xtx", Table::GpuEvents, &[(by_hip, "0")], 1, "because this machine has no compute driver");
}
