//! Logs in which a time stands alone above each table, as a loop of `date` and `nvidia-smi --query-gpu=… --format=csv` writes them.

use gpuvitals_core::foreign::{self, Meaning, Topic};
use gpuvitals_core::time::{DateOrder, Written};

/// 2000-01-01, in seconds: a smaller number alone in a line is no time.
const CENTURY: f64 = 946_684_800.0;

/// Fewest lines with a time: one alone may be the title of the file.
const TIMES_MIN: usize = 2;

/// Makes CSV of its lines: the time above a row becomes its first field.
#[derive(Debug, Default)]
pub(super) struct Stamped {
    /// The names, as they are written; empty before them.
    names: String,
    time: String,
}

/// Whether a text is such a log, whose first lines these are: a time alone above names of which none is a time.
pub(super) fn is_one<'a>(mut lines: impl Iterator<Item = &'a str> + Clone) -> bool {
    let times = lines.clone().filter(|line| instant(line).is_some());
    let (first, second) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let meanings = || {
        let names = second.split(delimiter(second));
        names.map(|name| foreign::column(name, Topic::Gpu).meaning)
    };
    instant(first).is_some()
        && meanings().any(|meaning| matches!(meaning, Meaning::Metric(..)))
        && !meanings().any(|meaning| meaning == Meaning::Time)
        && times.count() >= TIMES_MIN
}

impl Stamped {
    /// Takes a line. A line with a time leaves an empty one, so that lines keep their numbers.
    pub(super) fn line(&mut self, line: &str, out: &mut String) {
        let line = line.trim();
        if let Some(time) = instant(line) {
            time.clone_into(&mut self.time);
        } else if !line.is_empty() {
            if self.names.is_empty() {
                line.clone_into(&mut self.names);
            }
            let is_names = line == self.names;
            out.push_str(if is_names { "timestamp" } else { "\"" });
            if !is_names {
                out.push_str(&self.time);
                out.push('"');
            }
            out.push(delimiter(&self.names));
            out.push_str(line);
        }
        out.push('\n');
    }
}

/// The time that stands alone in a line, without signs around it.
fn instant(line: &str) -> Option<&str> {
    let text = line.trim_matches(|c: char| !c.is_alphanumeric());
    let is_written = || Written::read(text, DateOrder::Open).is_some_and(|written| written.has_time());
    let is_number = || text.parse().is_ok_and(|number: f64| number.is_finite() && number >= CENTURY);
    (is_written() || is_number()).then_some(text)
}

/// What is between the names.
fn delimiter(names: &str) -> char {
    let marks = [';', '\t', ','];
    marks.into_iter().find(|mark| names.contains(*mark)).unwrap_or(',')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(text: &str) -> String {
        let (mut log, mut out) = (Stamped::default(), String::new());
        text.lines().for_each(|line| log.line(line, &mut out));
        out
    }

    #[test]
    fn a_time_alone_is_of_the_rows_below_it() {
        let text = "== 2026-03-14 10:00:00 ==\nindex, power.draw [W]\n0, 60 W\n1, 61 W\n\n1773482405.5\nindex, power.draw [W]\n0, 62 W\n";
        assert!(is_one(text.lines()));
        assert_eq!(
            csv(text),
            "\ntimestamp,index, power.draw [W]\n\"2026-03-14 10:00:00\",0, 60 W\n\"2026-03-14 10:00:00\",1, 61 W\n\n\n\
             timestamp,index, power.draw [W]\n\"1773482405.5\",0, 62 W\n"
        );
    }

    #[test]
    fn a_title_and_a_log_with_times_of_its_own_are_none() {
        for text in [
            "2026-03-14 10:00:00\nindex, power.draw [W]\n0, 60 W\n0, 61 W\n",
            "2026-03-14 10:00:00\ntimestamp, power.draw [W]\n1773482400, 60 W\n2026-03-14 10:00:01\n",
            "2026-03-14 10:00:00\n0, 60 W\n2026-03-14 10:00:01\n0, 61 W\n",
            "index, power.draw [W]\n0, 60 W\n",
        ] {
            assert!(!is_one(text.lines()), "{text}");
        }
    }
}
