//! The output of `nvidia-smi pmon`, of every generation: two header lines that begin with `#`, names first,
//! then units. The header may be repeated, and only it tells the columns.

use std::collections::HashMap;

use crate::processes::ProcessKind;

/// Lines read at most.
const LINES_MAX: usize = 64 << 10;

/// A process on a GPU. `-` is none.
#[derive(Debug, Clone, PartialEq)]
pub struct PmonRow {
    /// Index of the GPU, in the tool's numbers.
    pub gpu: u32,
    /// Process id; none for a GPU without processes.
    pub pid: Option<u32>,
    /// The kind of its work.
    pub kind: ProcessKind,
    /// Name of the program, cut to some 15 characters.
    pub name: String,
    /// Share of the SMs, %.
    pub sm_pct: Option<f32>,
    /// Share of the memory controller, %.
    pub memory_pct: Option<f32>,
    /// Share of the encoder, %.
    pub encoder_pct: Option<f32>,
    /// Share of the decoder, %.
    pub decoder_pct: Option<f32>,
    /// Device memory it holds, MiB (the header says MB).
    pub memory_mb: Option<i64>,
}

/// Parses the output of `pmon`. Of several lines for one process on one GPU the last counts.
pub fn parse_pmon(text: &str) -> Vec<PmonRow> {
    let mut columns: Vec<&str> = Vec::new();
    let mut rows: Vec<PmonRow> = Vec::new();
    let mut places = HashMap::new();
    for line in text.lines().take(LINES_MAX) {
        if let Some(header) = line.trim_start().strip_prefix('#') {
            let names: Vec<&str> = header.split_whitespace().collect();
            if names.first() == Some(&"gpu") {
                columns = names;
            }
            continue;
        }
        let Some(row) = row_of(line, &columns) else { continue };
        let place = *places.entry((row.gpu, row.pid)).or_insert(rows.len());
        match rows.get_mut(place) {
            Some(known) => *known = row,
            None => rows.push(row),
        }
    }
    rows
}

fn row_of(line: &str, columns: &[&str]) -> Option<PmonRow> {
    let mut rest = line.trim();
    let mut row = PmonRow {
        gpu: 0,
        pid: None,
        kind: ProcessKind::Unknown,
        name: String::new(),
        sm_pct: None,
        memory_pct: None,
        encoder_pct: None,
        decoder_pct: None,
        memory_mb: None,
    };
    let mut has_gpu = false;
    for (at, column) in columns.iter().enumerate() {
        // The name is last, and may have blanks.
        let is_last = at + 1 == columns.len();
        let end = if is_last { rest.len() } else { rest.find(char::is_whitespace).unwrap_or(rest.len()) };
        let (cell, after) = rest.split_at_checked(end)?;
        rest = after.trim_start();
        let share = || cell.parse().ok().filter(|share| (0.0..=100.0).contains(share));
        match *column {
            "gpu" => {
                row.gpu = cell.parse().ok()?;
                has_gpu = true;
            }
            "pid" => row.pid = cell.parse().ok(),
            "type" => row.kind = kind_of(cell),
            "sm" => row.sm_pct = share(),
            "mem" => row.memory_pct = share(),
            "enc" => row.encoder_pct = share(),
            "dec" => row.decoder_pct = share(),
            "fb" => row.memory_mb = cell.parse().ok().filter(|mb| *mb >= 0),
            "command" if cell != "-" => cell.trim().clone_into(&mut row.name),
            _ => {}
        }
    }
    has_gpu.then_some(row)
}

/// `C`, `G`, `C+G`, and with MPS `M+C`.
fn kind_of(cell: &str) -> ProcessKind {
    let has = |letter: &str| cell.split('+').any(|part| part == letter);
    match (has("C") || has("M"), has("G")) {
        (true, true) => ProcessKind::ComputeGraphics,
        (true, false) => ProcessKind::Compute,
        (false, true) => ProcessKind::Graphics,
        (false, false) => ProcessKind::Unknown,
    }
}
