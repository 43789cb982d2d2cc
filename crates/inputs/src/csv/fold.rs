//! The hour that a clock shows twice in autumn: which of the two a row means follows from the order of the rows.

use std::collections::HashMap;
use std::hash::Hash;

use gpuvitals_core::time::MINUTE_NS;

/// How far a subject's first row in the hour may be behind the row before it, which is another's.
const DISORDER_MAX_NS: i64 = 30 * MINUTE_NS;

/// Most subjects that are remembered in the hour; others follow the row before them.
const SUBJECTS_MAX: usize = 100_000;

/// Of so many steps of a file that is written newest first at most one goes the other way.
const DISORDER_SHARE: usize = 20;

/// The way of a file's rows through such an hour.
///
/// The rows of one subject run forwards. One that steps back is in the second hour. How far back it must be depends on the
/// distance of the rows: those of every second fall back by nearly an hour, those of every 40 minutes by 20, and those of
/// every hour have the same text again. A file that is written newest first is the same with all times negated.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fold {
    is_falling: bool,
    /// The time of the row before.
    last: Option<i64>,
    /// The last time outside of such an hour, and its distance to a different one before it.
    outside: Option<i64>,
    step_ns: Option<i64>,
    /// Each subject's last time in the hour, and the distance of its rows.
    subjects: HashMap<Box<[u8]>, (i64, i64)>,
}

impl Fold {
    /// That of rows which are written newest first, or not.
    pub(super) fn of(is_falling: bool) -> Self {
        Self { is_falling, ..Self::default() }
    }

    /// The same before the first row.
    pub(super) fn restarted(&self) -> Self {
        Self::of(self.is_falling)
    }

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
        if !self.is_falling {
            return self.choose_rising((first, second), subject);
        }
        let mirrored = second.map_or((-first, None), |second| (-second, Some(-first)));
        -self.choose_rising(mirrored, subject)
    }

    fn choose_rising(
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
            // Not everywhere a clock is put back by an hour.
            let width_ns = second - first;
            let is_second = back >= 0 && back.saturating_mul(2) >= width_ns - (*step_ns).min(width_ns);
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

/// Whether rows are written newest first. Each has a subject, and an instant or the two that it can mean.
///
/// Of a subject's steps one that begins or ends outside of such an hour has the direction of the file. Within it a rising
/// file falls once for each subject, and a falling one rises once.
pub(super) fn is_falling<S: Eq + Hash>(rows: impl Iterator<Item = (S, (i64, Option<i64>))>) -> bool {
    let (mut outside, mut inside) = (Steps::default(), Steps::default());
    let mut last: HashMap<S, (i64, Option<i64>)> = HashMap::new();
    for (subject, (first, second)) in rows {
        let Some((before, other)) = last.insert(subject, (first, second)) else { continue };
        let steps = if second.is_some() && other.is_some() { &mut inside } else { &mut outside };
        steps.rises += usize::from(first > before);
        steps.falls += usize::from(first < before);
    }
    if outside.rises + outside.falls > 0 {
        return outside.falls > 0 && outside.rises * DISORDER_SHARE <= outside.falls;
    }
    inside.falls > last.len() && inside.rises <= last.len()
}

/// How often the texts of a subject's neighbouring rows rise and fall.
#[derive(Debug, Default)]
struct Steps {
    rises: usize,
    falls: usize,
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::time::{self, DateOrder, Written, Zone};

    use super::{Fold, is_falling};

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
    fn the_steps_outside_of_the_hour_say_how_a_file_is_written_and_those_within_only_where_no_others_are() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        let falls = |texts: &[&str]| {
            let rows = texts.iter().map(|text| {
                let written = Written::read(&format!("2025-10-26 {text}"), DateOrder::Open).unwrap();
                ((), written.instants(&berlin).unwrap())
            });
            is_falling(rows)
        };
        assert!(falls(&["03:30", "03:00", "02:30", "02:00", "02:30", "02:00", "01:30"]));
        assert!(!falls(&["01:30", "02:00", "02:30", "02:00", "02:30", "03:00"]));
        assert!(falls(&["02:45", "02:15", "02:45", "02:15"]));
        assert!(!falls(&["02:15", "02:45", "02:15", "02:45"]));
        assert!(!falls(&["04:00", "03:30", "03:00", "03:30", "02:00", "02:30", "02:00"]));
        assert!(!falls(&["02:45", "02:15"]) && !falls(&["03:00", "03:00"]) && !falls(&[]));
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
