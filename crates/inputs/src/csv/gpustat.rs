//! The lines that `gpustat` prints, with `-i` again and again: one with host, time and driver above one of each GPU.

use std::fmt::Write as _;

/// Names of the columns of a GPU's line.
const NAMES: &str = "index,name,temperature_c,fan_speed_pct,utilization_pct,power_w,power_limit_w,memory_used_mb,memory_total_mb";

/// Makes CSV of its lines.
#[derive(Debug)]
pub(super) struct Gpustat {
    is_headed: bool,
    has_begun: bool,
    /// Of the line above, if there are such lines: host, time and driver.
    header: [String; 3],
}

/// One GPU's line; what it lacks is empty.
#[derive(Debug, Default)]
struct GpuLine<'a> {
    index: &'a str,
    name: &'a str,
    temperature: &'a str,
    /// Of the fan, which few ask for, and of the GPU.
    shares: Vec<&'a str>,
    power: &'a str,
    limit: &'a str,
    used: &'a str,
    total: &'a str,
}

/// Whether a text begins with its lines; if so, whether each look has a header (`--no-header`).
pub(super) fn is_headed(first: &str, second: &str) -> Option<bool> {
    if GpuLine::read(first).is_some() {
        return Some(false);
    }
    (header(first).is_some() && GpuLine::read(second).is_some()).then_some(true)
}

impl Gpustat {
    pub(super) fn new(is_headed: bool) -> Self {
        Self { is_headed, has_begun: false, header: Default::default() }
    }

    /// Takes a line. What is neither a header nor a GPU's is left out.
    pub(super) fn line(&mut self, line: &str, out: &mut String) {
        if !std::mem::replace(&mut self.has_begun, true) {
            out.push_str(if self.is_headed { "timestamp,hostname,driver," } else { "" });
            out.push_str(NAMES);
            out.push('\n');
        }
        match (GpuLine::read(line), header(line)) {
            (Some(gpu), _) => {
                let [host, time, driver] = &self.header;
                if self.is_headed {
                    let _written = write!(out, "{time},{host},{driver},");
                }
                gpu.write(out);
            }
            (None, Some(header)) => self.header = header,
            (None, None) => {}
        }
    }
}

/// `node01   Sat Mar 18 14:11:44 2023  525.60.13` as host, time and driver. The driver's version may be missing.
fn header(line: &str) -> Option<[String; 3]> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let is_version =
        |word: &&str| word.contains('.') && word.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit());
    let driver = words.pop_if(|word| is_version(&*word)).unwrap_or_default();
    let (host, time) = words.split_first()?;
    let has_clock = time.iter().any(|word| word.matches(':').count() == 2);
    (has_clock && !line.contains([',', ';', '|']))
        .then(|| [(*host).to_owned(), time.join(" "), driver.to_owned()])
}

impl<'a> GpuLine<'a> {
    /// `[0] GeForce GTX Titan X | 65'C,  85 %,  200 / 250 W |  5942 / 12287 MB | alice(5928M)`.
    fn read(line: &'a str) -> Option<Self> {
        let (index, rest) = line.trim().strip_prefix('[')?.split_once(']')?;
        let mut parts = rest.split('|').map(str::trim);
        let (name, state, memory) = (parts.next()?, parts.next()?, parts.next()?);
        let (used, total) = memory.strip_suffix("MB")?.split_once('/')?;
        let is_index = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
        let mut gpu = Self { index, name, used, total, ..Self::default() };
        for cell in state.split(',').map(str::trim) {
            if let Some(celsius) = cell.strip_suffix('C') {
                gpu.temperature = celsius.trim_end_matches(['\'', '°']);
            } else if let Some(watts) = cell.strip_suffix('W') {
                (gpu.power, gpu.limit) = watts.split_once('/').unwrap_or((watts, ""));
            } else if let Some(share) = cell.strip_suffix('%').filter(|share| !share.contains(':')) {
                gpu.shares.push(share);
            }
        }
        is_index.then_some(gpu)
    }

    fn write(&self, out: &mut String) {
        let (fan, load) = match self.shares.as_slice() {
            [fan, load, ..] => (*fan, *load),
            [load] => ("", *load),
            [] => ("", ""),
        };
        let cells = [
            self.index,
            self.name,
            self.temperature,
            fan,
            load,
            self.power,
            self.limit,
            self.used,
            self.total,
        ];
        for (at, cell) in cells.iter().enumerate() {
            // What the GPU does not say is `??`.
            let cell = cell.trim().trim_matches('?').replace(',', " ");
            let _written = write!(out, "{}{cell}", if at > 0 { "," } else { "" });
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(text: &str) -> String {
        let mut lines = text.lines();
        let (first, second) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let Some(is_headed) = is_headed(first, second) else { return String::new() };
        let (mut table, mut out) = (Gpustat::new(is_headed), String::new());
        text.lines().for_each(|line| table.line(line, &mut out));
        out
    }

    #[test]
    fn its_lines_become_rows_whatever_was_asked_for() {
        let text = "box  Sat Mar  8 14:11:44 2025  525.60.13\n\
                    [0] GeForce GTX Titan X | 65'C,  30 %,  85 %,  200 / 250 W |  5942 / 12287 MB | alice(5928M)\n\
                    [1] Tesla K80           | 45°C,  ?? %,   ?? W |     0 / 11439 MB |\n";
        let expected = format!(
            "timestamp,hostname,driver,{NAMES}\n\
             Sat Mar 8 14:11:44 2025,box,525.60.13,0,GeForce GTX Titan X,65,30,85,200,250,5942,12287\n\
             Sat Mar 8 14:11:44 2025,box,525.60.13,1,Tesla K80,45,,,,,0,11439\n"
        );
        assert_eq!(csv(text), expected);
        let bare = "[0] Tesla T4 | 45'C, 10 %, E: 5 %  D: 0 % | 1 / 15109 MB";
        assert_eq!(csv(bare), format!("{NAMES}\n0,Tesla T4,45,,10,,,1,15109\n"));
        for other in ["a,b\n1,2", "12:00:00 a,b\n[0] 1", "[1, 2]\n", "box 12:00:00\n[x] a | b | 1 / 2 MB"] {
            assert_eq!(csv(other), "", "{other}");
        }
    }
}
