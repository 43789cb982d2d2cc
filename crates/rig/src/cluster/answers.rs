//! nvidia-smi's answers, made from captured ones (`fixtures/nvidia`): any fields, any number of GPUs.

use std::path::Path;

use super::world::{Behaviour, NodeSpec};

/// Output and exit code of a command.
pub(super) fn answer(spec: &NodeSpec, command: &[String]) -> (Vec<u8>, i32) {
    if spec.behaviour == Behaviour::NoDriver {
        return (fixture("query-csv/errors-no-driver.stdout.txt").into_bytes(), 9);
    }
    let arguments: Vec<&str> =
        command.iter().map(String::as_str).skip_while(|word| *word != "nvidia-smi").skip(1).collect();
    let option = |name: &str| arguments.iter().find_map(|word| word.strip_prefix(name));
    let (text, code) = if let Some(fields) = option("--query-gpu=") {
        gpus(spec, fields, option("--format=").is_some_and(|format| format.contains("nounits")))
    } else if spec.behaviour == Behaviour::NoProcesses {
        ("Insufficient Permissions\n".to_owned(), 4)
    } else if option("--query-compute-apps=").is_some() {
        ("gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n".to_owned(), 0)
    } else if arguments.first() == Some(&"pmon") {
        (processes(spec), 0)
    } else {
        (format!("Invalid combination of input arguments: {arguments:?}\n"), 2)
    };
    (text.into_bytes(), code)
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/nvidia").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The capture's row for each GPU, with an index, a UUID and an address of its own.
fn gpus(spec: &NodeSpec, fields: &str, is_bare: bool) -> (String, i32) {
    let capture = fixture("captures/linux-x86_64__nvidia-h200__590.48.01__load.csv");
    let mut lines = capture.lines();
    let titles: Vec<&str> = lines.next().unwrap_or_default().split(", ").collect();
    let cells = lines.next().unwrap_or_default().split(", ");
    let cells: Vec<&str> = cells.map(|cell| if is_bare { bare(cell) } else { cell }).collect();
    let name_of = |title: &str| title.split(" [").next().unwrap_or_default().trim().to_owned();
    let mut columns = Vec::new();
    for field in fields.split(',') {
        // The capture spells some of them in full, and calls the index nothing.
        let at = titles.iter().position(|title| name_of(title) == field);
        match (field, at) {
            ("index", _) => columns.push((field, "index", "0")),
            (_, Some(at)) => columns.push((
                field,
                *titles.get(at).unwrap_or(&""),
                cells.get(at).copied().unwrap_or_default(),
            )),
            (_, None) => return (format!("Field \"{field}\" is not a valid field to query.\n\n"), 2),
        }
    }
    let header: Vec<&str> = columns.iter().map(|(_, title, _)| title.trim()).collect();
    let mut text = header.join(", ") + "\n";
    for gpu in 0..spec.gpus {
        if spec.behaviour == Behaviour::Lost && gpu == 1 {
            text.push_str("Unable to determine the device handle for GPU0000:01:00.0: Unknown Error\n");
            continue;
        }
        let row: Vec<String> =
            columns.iter().map(|(field, _, cell)| cell_of(spec, gpu, field, cell)).collect();
        text.push_str(&row.join(", "));
        text.push('\n');
    }
    (text, if spec.behaviour == Behaviour::Lost { 15 } else { 0 })
}

/// A cell without its unit.
fn bare(cell: &str) -> &str {
    let (number, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let is_quantity = number.parse::<f64>().is_ok() && ["%", "MiB", "W", "MHz", "us"].contains(&unit);
    if is_quantity { number } else { cell }
}

fn cell_of(spec: &NodeSpec, gpu: usize, field: &str, cell: &str) -> String {
    match field {
        "index" => gpu.to_string(),
        "uuid" => format!("GPU-{}-{gpu:04}", spec.name),
        "pci.bus_id" => format!("00000000:{gpu:02X}:00.0"),
        _ => cell.to_owned(),
    }
}

/// The capture's processes on the first GPU, none on the others.
fn processes(spec: &NodeSpec) -> String {
    let captured = fixture("pmon/linux-x86_64__nvidia-h200__590.48.01__load.txt");
    let idle = (1..spec.gpus)
        .map(|gpu| format!("{gpu:5}          -     -      -      -      -      -      -      -    -\n"));
    std::iter::once(captured).chain(idle).collect()
}
