//! What the names of columns say of times: whether they are such, their unit and their zone.

use gpuvitals_core::catalogue::folded;
use gpuvitals_core::foreign;
use gpuvitals_core::time::{SECOND_NS, Zone};

/// Names of times, the most reliable first. A unit or a zone may stand behind them.
pub(super) const NAMES: [&str; 36] = [
    "timestamp",
    "timestamp_ns",
    "datetime",
    "date_time",
    "ts",
    "unix",
    "unix_time",
    "unix_timestamp",
    "epoch",
    "epoch_time",
    "unixtime",
    "epochtime",
    "posix",
    "posix_time",
    "time_stamp",
    "stamp",
    "time",
    "date",
    "utc",
    "utc_time",
    "local_time",
    "log_time",
    "sample_time",
    "query_time",
    "wall_time",
    "wallclock",
    // `TimeInSeconds`
    "time_in",
    "created_at",
    "zeit",
    "zeitstempel",
    "datum",
    "uhrzeit",
    "yyyymmdd",
    "when",
    "zeitpunkt",
    "day",
];

/// Names of counts from the beginning of a log, which are times where nothing else is.
pub(super) const RELATIVE: [&str; 10] = [
    "elapsed",
    "elapsed_time",
    "time_elapsed",
    "relative",
    "relative_time",
    "rel_time",
    "runtime",
    "run_time",
    "uptime",
    "time_since_start",
];

/// Names of counts from the beginning of a log whose numbers begin near 0 and rise; others have them, too.
const COUNTS: [&str; 11] =
    ["t", "s", "sec", "secs", "second", "seconds", "ms", "msec", "milliseconds", "minutes", "hours"];

/// Units that may stand behind a name, in nanoseconds.
const UNITS: [(&str, i64); 23] = [
    ("ns", 1),
    ("nsec", 1),
    ("nanos", 1),
    ("nanoseconds", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("usec", 1_000),
    ("micros", 1_000),
    ("microseconds", 1_000),
    ("ms", 1_000_000),
    ("msec", 1_000_000),
    ("millis", 1_000_000),
    ("milliseconds", 1_000_000),
    ("s", SECOND_NS),
    ("sec", SECOND_NS),
    ("secs", SECOND_NS),
    ("seconds", SECOND_NS),
    ("second", SECOND_NS),
    ("min", 60 * SECOND_NS),
    ("minutes", 60 * SECOND_NS),
    ("h", 3_600 * SECOND_NS),
    ("hours", 3_600 * SECOND_NS),
    ("days", 86_400 * SECOND_NS),
];

/// The name of a column, taken apart: `Time [ms]`, `timestamp_utc`, `Zeit (MESZ)`.
pub(super) struct TimeName {
    whole: String,
    /// Without a unit or what stands in brackets.
    pub(super) bare: String,
    pub(super) unit_ns: Option<i64>,
}

impl TimeName {
    pub(super) fn of(name: &str) -> Self {
        let name = name.trim().trim_start_matches('#').trim_start();
        let plain = Self::of_folded(folded(name));
        if plain.is_known() {
            return plain;
        }
        // A large letter begins a word: `unixTimeMs`.
        let parted = Self::of_folded(folded(&foreign::parted(name)));
        if parted.is_known() || parted.ends_as_time() { parted } else { plain }
    }

    fn of_folded(whole: String) -> Self {
        let (head, inside) = whole.split_once(['[', '(']).unwrap_or((&whole, ""));
        let unit_of = |text: &str| UNITS.iter().find(|(unit, _)| *unit == text).map(|(_, ns)| *ns);
        let head = head.trim_matches('_');
        // `epochms`; not `epochs`.
        let glued = |(unit, ns): &(&str, i64)| {
            let bare = head.strip_suffix(*unit).filter(|bare| unit.len() > 1 && rank_of(bare).is_some());
            Some((bare?, *ns))
        };
        let suffix = head.rsplit_once('_').and_then(|(bare, unit)| Some((bare, unit_of(unit)?)));
        let suffix = suffix.or_else(|| UNITS.iter().find_map(glued));
        let (bare, unit_ns) = match suffix {
            Some((bare, unit_ns)) => (if rank_of(head).is_some() { head } else { bare }, Some(unit_ns)),
            _ => (head, unit_of(inside.trim_end_matches([']', ')']).trim_matches('_'))),
        };
        // `seconds`
        let unit_ns = unit_ns.or_else(|| unit_of(bare).filter(|_| COUNTS.contains(&bare)));
        Self { bare: bare.to_owned(), unit_ns, whole }
    }

    pub(super) fn has_word(&self, words: &[&str]) -> bool {
        self.whole.split(|c: char| !c.is_alphanumeric()).any(|word| words.contains(&word))
    }

    /// Whether its last word is one for a time: `collected_at`, `scrape_ts`, `t`.
    pub(super) fn ends_as_time(&self) -> bool {
        let last = self.bare.rsplit('_').next().unwrap_or_default();
        ["at", "t", "ts", "time", "timestamp", "epoch", "unix"].contains(&last)
    }

    /// Whether it is called as times are.
    fn is_known(&self) -> bool {
        rank_of(&self.bare).is_some() || self.is_relative()
    }

    pub(super) fn is_relative(&self) -> bool {
        let bare = self.bare.as_str();
        RELATIVE.contains(&bare) || COUNTS.contains(&bare)
    }
}

fn rank_of(folded: &str) -> Option<usize> {
    NAMES.iter().position(|known| *known == folded)
}

/// How reliably a name is that of a time, if it is one at all.
pub(super) fn rank(name: &str) -> Option<usize> {
    let name = TimeName::of(name);
    let placed = ["_utc", "_gmt", "_local"].iter().find_map(|zone| name.bare.strip_suffix(zone));
    rank_of(&name.bare)
        .or_else(|| placed.and_then(rank_of))
        .or_else(|| name.bare.ends_with("timestamp").then_some(NAMES.len()))
        .or_else(|| name.is_relative().then_some(NAMES.len() + 1))
}

/// Whether a name is only of a time if its numbers count up from 0.
pub(super) fn is_count(name: &str) -> bool {
    COUNTS.contains(&TimeName::of(name).bare.as_str())
}

/// The zone that a name says: `timestamp_utc`, `Time (UTC+2)`, `Zeit (MESZ)`, `time [Asia/Tokyo]`. Other abbreviations than UTC and
/// GMT are words, too, unless they stand in brackets.
pub(super) fn zone_in(name: &str) -> Option<Zone> {
    let lower = name.to_ascii_lowercase();
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | ':');
    let mut words = lower.split(|c: char| !is_part(c)).filter(|word| !word.is_empty());
    let of_word = |word: &str| {
        let from = ["utc", "gmt"].iter().find_map(|zone| word.find(zone))?;
        let (before, zone) = word.split_at_checked(from)?;
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphabetic());
        // `outcome`
        if is_letter(before.chars().last()) || is_letter(zone.chars().nth(3)) {
            return None;
        }
        // `time-utc` and `utc-time` have no offset.
        Zone::of_offset(zone).or_else(|| Some(Zone::utc()))
    };
    let inside = lower.split_once(['(', '[']).map(|(_, inside)| inside.trim_end_matches([')', ']']).trim());
    let is_word = |text: &&str| text.len() > 1 && text.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_place = |text: &&str| {
        text.contains('/') && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_/+-".contains(&byte))
    };
    let of_place = || Zone::named(inside.filter(is_place)?).ok();
    words.find_map(of_word).or_else(of_place).or_else(|| inside.filter(is_word).and_then(Zone::of_offset))
}
