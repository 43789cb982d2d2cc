//! The hour that a clock shows twice in autumn: which of the two a row means follows from the order of the rows.

use std::collections::HashMap;

use gpuvitals_core::time::{HOUR_NS, MINUTE_NS};

/// How far a subject's first row in the hour may be behind the row before it, which is another's.
const DISORDER_MAX_NS: i64 = 30 * MINUTE_NS;

/// Most subjects that are remembered in the hour; others follow the row before them.
const SUBJECTS_MAX: usize = 100_000;

/// The way of a file's rows through such an hour.
///
/// The rows of one subject run forwards. One that steps back is in the second hour. How far back it must be depends on the
/// distance of the rows: those of every second fall back by nearly an hour, those of every 40 minutes by 20, and those of
/// every hour have the same text again.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fold {
    /// The time of the row before.
    last: Option<i64>,
    /// The last time outside of such an hour, and its distance to a different one before it.
    outside: Option<i64>,
    step_ns: Option<i64>,
    /// Each subject's last time in the hour, and the distance of its rows.
    subjects: HashMap<Box<[u8]>, (i64, i64)>,
}

impl Fold {
    /// Whether the row before is in such an hour.
    pub(super) fn is_open(&self) -> bool {
        !self.subjects.is_empty()
    }

    /// The time of a row that can mean the first of two instants, or the second if there is one.
    pub(super) fn choose(
        &mut self,
        (first, second): (i64, Option<i64>),
        subject: impl FnOnce() -> Vec<u8>,
    ) -> i64 {
        let chosen = if let Some(second) = second {
            self.of_two(first, second, subject().into())
        } else {
            self.subjects.clear();
            if let Some(last) = self.last.filter(|last| *last != first) {
                self.step_ns = Some(first.saturating_sub(last).max(0));
            }
            self.outside = Some(first);
            first
        };
        self.last = Some(chosen);
        chosen
    }

    fn of_two(&mut self, first: i64, second: i64, subject: Box<[u8]>) -> i64 {
        let (chosen, step_ns) = if let Some((last, step_ns)) = self.subjects.get(&subject) {
            let back = last.saturating_sub(first);
            let is_second = back >= 0 && back.saturating_mul(2) >= HOUR_NS - (*step_ns).min(HOUR_NS);
            let chosen = if is_second { second } else { first };
            (chosen, Some(chosen - last).filter(|step| *step > 0).unwrap_or(*step_ns))
        } else {
            let is_past = |instant: i64| self.last.is_some_and(|last| instant < last - DISORDER_MAX_NS);
            let chosen = if is_past(first) && !is_past(second) { second } else { first };
            let entered = self.outside.map_or(0, |outside| (chosen - outside).max(0));
            (chosen, self.step_ns.map_or(entered, |step| step.min(entered)))
        };
        if self.subjects.len() < SUBJECTS_MAX || self.subjects.contains_key(&subject) {
            self.subjects.insert(subject, (chosen, step_ns));
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::time::{self, DateOrder, Written, Zone};

    use super::Fold;

    /// The UTC hours and minutes of rows on the clock of Berlin, when it is put back: subject and time of day.
    fn read(rows: &[(&str, &str)]) -> Vec<String> {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        let mut fold = Fold::default();
        let instant = |&(subject, text): &(&str, &str)| {
            let written = Written::read(&format!("2025-10-26 {text}"), DateOrder::Open).unwrap();
            let chosen = fold.choose(written.instants(&berlin).unwrap(), || subject.into());
            time::format(chosen).get(11..19).unwrap().to_owned()
        };
        rows.iter().map(instant).collect()
    }

    /// A subject's rows, so many minutes apart, from midnight until past the hour.
    #[test]
    fn rows_of_any_distance_go_through_the_hour_twice() {
        for step in [1, 5, 10, 15, 20, 29, 30, 31, 40, 45, 50, 59, 60] {
            let local = |minutes: i64| {
                // UTC is two hours behind, then one; clocks are put back at 03:00.
                let local = if minutes < 180 { minutes } else { minutes - 60 };
                format!("{:02}:{:02}:00", local / 60, local % 60)
            };
            let minutes: Vec<i64> = (0..=330 / step).map(|row| row * step).collect();
            let texts: Vec<String> = minutes.iter().map(|minutes| local(*minutes)).collect();
            let rows: Vec<(&str, &str)> =
                texts.iter().flat_map(|text| [("gpu0", text.as_str()), ("gpu1", text.as_str())]).collect();
            let utc = |minutes: &i64| {
                let utc = (minutes + 22 * 60) % (24 * 60);
                format!("{:02}:{:02}:00", utc / 60, utc % 60)
            };
            let expected: Vec<String> =
                minutes.iter().flat_map(|minutes| [utc(minutes), utc(minutes)]).collect();
            assert_eq!(read(&rows), expected, "every {step} minutes");
        }
    }

    #[test]
    fn several_rows_of_one_second_are_one_hour() {
        let rows: Vec<(&str, &str)> =
            ["01:59:59", "01:59:59", "02:00:00", "02:00:00", "02:00:01", "02:00:01", "02:00:00"]
                .into_iter()
                .map(|text| ("gpu0", text))
                .collect();
        let expected = ["23:59:59", "23:59:59", "00:00:00", "00:00:00", "00:00:01", "00:00:01", "00:00:00"];
        assert_eq!(read(&rows), expected);
    }

    #[test]
    fn the_blocks_of_two_subjects_have_both_hours_each() {
        let texts = ["01:55:00", "02:00:00", "02:30:00", "02:55:00", "02:00:00", "02:30:00", "03:00:00"];
        let rows: Vec<(&str, &str)> =
            ["gpu0", "gpu1"].into_iter().flat_map(|gpu| texts.map(|text| (gpu, text))).collect();
        let expected = ["23:55:00", "00:00:00", "00:30:00", "00:55:00", "01:00:00", "01:30:00", "02:00:00"];
        assert_eq!(read(&rows), [expected, expected].concat());
    }
}
