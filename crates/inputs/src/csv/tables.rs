//! The tables that NVIDIA's tools print while they watch GPUs: `nvidia-smi dmon`, `pmon` and `stats`, `dcgmi dmon`.
//!
//! Lines of names and units stand above rows between blanks or commas, and come again now and then. `stats` has none.

use std::fmt::Write as _;

/// What stands in the line of units of `nvidia-smi`.
const UNITS: [&str; 9] = ["W", "C", "%", "MHz", "MB", "MB/s", "mJ", "us", "V"];

/// The fields of a line of `nvidia-smi stats`; its times are microseconds.
const SAMPLE_NAMES: [&str; 4] = ["index", "metric_name", "timestamp", "value"];

/// What `nvidia-smi stats` calls metrics.
const SAMPLES: [(&str, &str); 10] = [
    ("pwrDraw", "power_w"),
    ("temp", "temperature_c"),
    ("gpuUtil", "utilization_pct"),
    ("memUtil", "memory_utilization_pct"),
    ("encUtil", "encoder_utilization_pct"),
    ("decUtil", "decoder_utilization_pct"),
    ("procClk", "gpu_clock_mhz"),
    ("memClk", "mem_clock_mhz"),
    // How long power and heat held the clocks back, in a unit that nobody says.
    ("violPwr", "violPwr"),
    ("violThm", "violThm"),
];

/// A tool's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableKind {
    /// `nvidia-smi dmon`: rows of GPUs.
    Gpus,
    /// The same with `--format csv`.
    Commas,
    /// `nvidia-smi pmon`: rows of processes, which are put together by GPU.
    Processes,
    /// `dcgmi dmon`: rows that begin with `GPU 0`.
    Entities,
    /// `nvidia-smi stats`: a value a line, without names above.
    Samples,
}

/// The table that begins with these lines.
pub(super) fn kind(first: &str, second: &str) -> Option<TableKind> {
    if sample(first).is_some() {
        return Some(TableKind::Samples);
    }
    let names = first.strip_prefix('#')?;
    let has = |line: &str, wanted: &[&str]| {
        line.split(|c: char| c.is_whitespace() || c == ',').any(|word| wanted.contains(&word))
    };
    if names.split_whitespace().next() == Some("Entity") {
        return Some(TableKind::Entities);
    }
    // Other lines with such a mark are comments.
    let units = second.strip_prefix('#').filter(|units| has(names, &["gpu"]) && has(units, &["Idx"]))?;
    let commas = |line: &str| line.matches(',').count();
    if names.contains(',') {
        return (commas(names) == commas(units)).then_some(TableKind::Commas);
    }
    let is_spaced = !names.contains([';', '\t']);
    is_spaced.then_some(if has(names, &["pid"]) { TableKind::Processes } else { TableKind::Gpus })
}

/// Makes CSV of a table's lines.
#[derive(Debug)]
pub(super) struct ToolTable {
    kind: TableKind,
    heads: Vec<String>,
    /// The names; empty before the first row.
    names: Vec<String>,
    gpu: Option<Processes>,
}

/// The processes of one GPU at one time.
#[derive(Debug)]
struct Processes {
    /// Time and GPU.
    whose: Vec<String>,
    pids: Vec<String>,
    /// Of each column the sum; none while no process has a value.
    sums: Vec<Option<f64>>,
}

impl ToolTable {
    pub(super) fn new(kind: TableKind) -> Self {
        Self { kind, heads: Vec::new(), names: Vec::new(), gpu: None }
    }

    /// Takes a line.
    pub(super) fn line(&mut self, line: &str, out: &mut String) {
        let has_begun = !self.names.is_empty();
        let row = line.trim();
        if self.kind == TableKind::Samples {
            if !has_begun {
                self.names = SAMPLE_NAMES.map(str::to_owned).to_vec();
                write(SAMPLE_NAMES.into_iter(), out);
            }
            match sample(row) {
                Some(cells) => write(cells.into_iter(), out),
                None => write(std::iter::once(row), out),
            }
            return;
        }
        let is_head = row.starts_with('#') || (self.kind == TableKind::Entities && !row.starts_with("GPU"));
        if is_head && !has_begun {
            self.heads.push(line.replacen('#', " ", 1));
        }
        if is_head || row.is_empty() {
            return;
        }
        if !has_begun {
            self.begin(out);
        }
        let mut cells = self.cells(row);
        match self.kind {
            TableKind::Processes => self.add(&cells, out),
            TableKind::Entities if cells.len() > 1 => {
                let number = cells.remove(1);
                let entity = cells.first().map(|word| format!("{word} {number}")).unwrap_or_default();
                write(std::iter::once(entity.as_str()).chain(cells.iter().skip(1).copied()), out);
            }
            _ => write(cells.into_iter(), out),
        }
    }

    /// The end of the text.
    pub(super) fn end(&mut self, out: &mut String) {
        if let Some(processes) = self.gpu.take() {
            processes.write(&self.names, out);
        }
    }

    fn cells<'a>(&self, line: &'a str) -> Vec<&'a str> {
        if self.kind == TableKind::Commas {
            line.split(',').map(str::trim).collect()
        } else {
            line.split_whitespace().collect()
        }
    }

    /// `# gpu pwr` and `# Idx W` to `gpu,pwr [W]`.
    fn begin(&mut self, out: &mut String) {
        let of = |at: usize| self.heads.get(at).map_or("", String::as_str);
        let (names, units) = (of(0), of(1));
        let named: Vec<String> = if self.kind == TableKind::Entities {
            let starts = |line: &str| {
                line.split_whitespace()
                    .map(|word| word.as_ptr().addr() - line.as_ptr().addr())
                    .collect::<Vec<_>>()
            };
            let (at, marks) = (starts(names), starts(units));
            // A unit stands under its name, or behind where that begins; not each name has one.
            let unit = |place: usize| {
                let from = *at.get(place)?;
                let to = at.get(place + 1).copied().unwrap_or(usize::MAX);
                let mark = marks.iter().find(|mark| (from..to).contains(mark))?;
                units.get(*mark..)?.split_whitespace().next()
            };
            names.split_whitespace().enumerate().map(|(place, name)| titled(name, unit(place))).collect()
        } else {
            let units = self.cells(units.trim());
            let names = self.cells(names.trim());
            names.iter().enumerate().map(|(place, name)| titled(name, units.get(place).copied())).collect()
        };
        if self.kind == TableKind::Processes {
            write(named.iter().filter(|name| is_kept(name)).map(String::as_str), out);
        } else {
            write(named.iter().map(String::as_str), out);
        }
        self.names = named;
    }

    /// Adds a process to its GPU.
    fn add(&mut self, cells: &[&str], out: &mut String) {
        let pairs = || self.names.iter().map(String::as_str).zip(cells.iter().copied());
        let whose: Vec<String> =
            pairs().filter(|(name, _)| is_whose(name)).map(|(_, cell)| cell.to_owned()).collect();
        let pid = pairs().find(|(name, _)| *name == "pid").map_or("", |(_, cell)| cell).to_owned();
        let values: Vec<Option<f64>> = pairs()
            .filter(|(name, _)| is_kept(name) && !is_whose(name))
            .map(|(_, cell)| cell.parse().ok())
            .collect();
        // Without times another look begins where a process comes again.
        let is_same = |known: &Processes| known.whose == whose && !known.pids.contains(&pid);
        if let Some(known) = self.gpu.take_if(|known| !is_same(known)) {
            known.write(&self.names, out);
        }
        let known = self.gpu.get_or_insert_with(|| Processes {
            whose,
            pids: Vec::new(),
            sums: vec![None; values.len()],
        });
        known.pids.push(pid);
        for (sum, value) in known.sums.iter_mut().zip(values) {
            *sum = value.map_or(*sum, |value| Some(sum.unwrap_or_default() + value));
        }
    }
}

impl Processes {
    fn write(&self, names: &[String], out: &mut String) {
        let kept = names.iter().filter(|name| is_kept(name) && !is_whose(name));
        let texts = self.sums.iter().zip(kept).map(|(sum, name)| match sum {
            // Each process has its share of the whole; shares that are rounded may exceed it.
            Some(sum) if name.contains('%') => sum.min(100.0).to_string(),
            Some(sum) => sum.to_string(),
            None => "-".to_owned(),
        });
        let texts: Vec<String> = texts.collect();
        write(self.whose.iter().chain(&texts).map(String::as_str), out);
    }
}

/// The fields of a line of `nvidia-smi stats`: `0, pwrDraw , 1399565562466134, 63`.
fn sample(line: &str) -> Option<[&str; 4]> {
    let mut cells = line.split(',').map(str::trim);
    let [gpu, name, time, value] = [cells.next()?, cells.next()?, cells.next()?, cells.next()?];
    let &(_, column) = SAMPLES.iter().find(|(known, _)| *known == name)?;
    let is_count = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (cells.next().is_none() && is_count(gpu) && is_count(time)).then_some([gpu, column, time, value])
}

/// Whether a column of processes tells when and of which GPU.
fn is_whose(name: &str) -> bool {
    ["Date", "Time", "gpu"].contains(&name)
}

/// Whether a column of processes has something of the GPU's: their shares and memory add up.
fn is_kept(name: &str) -> bool {
    let bare = name.split(' ').next().unwrap_or_default();
    is_whose(bare) || ["sm", "mem", "enc", "dec", "jpg", "ofa", "fb"].contains(&bare)
}

fn titled(name: &str, unit: Option<&str>) -> String {
    let unit = unit.filter(|unit| UNITS.contains(unit));
    unit.map_or_else(|| name.to_owned(), |unit| format!("{name} [{unit}]"))
}

fn write<'a>(cells: impl Iterator<Item = &'a str>, out: &mut String) {
    for (at, cell) in cells.enumerate() {
        let _written = write!(out, "{}{cell}", if at > 0 { "," } else { "" });
    }
    out.push('\n');
}
