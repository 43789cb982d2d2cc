//! Numbers, as people read them, and which letters they see.

const MINUTE_S: f64 = 60.0;
const MINUTES_OF_HOUR: f64 = 60.0;
const JOULES_IN_KWH: f64 = 3.6e6;
const MIB_OF_GIB: f64 = 1024.0;

/// Whether a letter is one to be seen: it neither steers a terminal nor turns the direction of the text around it.
pub(crate) fn is_seen(letter: char) -> bool {
    let turns = matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !letter.is_control() && !turns
}

/// With three digits, and no fraction from 100 on.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Seconds: `0.46 s`, `10 min 0 s`, `2 h 5 min`.
pub(crate) fn span(seconds: f64) -> String {
    let whole = seconds.round();
    let (minutes, rest) = ((whole / MINUTE_S).floor(), whole % MINUTE_S);
    if seconds < MINUTE_S {
        format!("{} s", number(seconds))
    } else if minutes < MINUTES_OF_HOUR {
        format!("{minutes:.0} min {rest:.0} s")
    } else {
        format!("{:.0} h {:.0} min", (minutes / MINUTES_OF_HOUR).floor(), minutes % MINUTES_OF_HOUR)
    }
}

/// Joules in the unit that suits them, from 1 MJ on in kilowatt hours as well.
pub(crate) fn energy(joules: f64) -> String {
    if joules >= 1e6 {
        format!("{} MJ ({} kWh)", number(joules / 1e6), number(joules / JOULES_IN_KWH))
    } else if joules >= 1e3 {
        format!("{} kJ", number(joules / 1e3))
    } else {
        format!("{} J", number(joules))
    }
}

/// A share in percent; a small one with a fraction, so that it is not 0.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 1.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Mebibytes for people, as GiB where there are many.
pub(crate) fn memory(mib: f64) -> String {
    if mib >= MIB_OF_GIB { format!("{} GiB", number(mib / MIB_OF_GIB)) } else { format!("{mib:.0} MiB") }
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [some @ .., last] => format!("{} and {last}", some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_a_reader_needs() {
        assert_eq!([0.463, 12.34, 712.4].map(number), ["0.46", "12.3", "712"]);
        assert_eq!([0.463, 59.9, 600.0, 7500.0].map(span), ["0.46 s", "59.9 s", "10 min 0 s", "2 h 5 min"]);
        assert_eq!([7.0, 7100.0, 3.42e6].map(energy), ["7.00 J", "7.10 kJ", "3.42 MJ (0.95 kWh)"]);
        assert_eq!([0.0, 0.004, 0.38].map(percent), ["0 %", "0.4 %", "38 %"]);
        assert_eq!([512.0, 81_920.0].map(memory), ["512 MiB", "80.0 GiB"]);
        let words = ["a", "b", "c"].map(str::to_owned);
        assert_eq!([1, 2, 3].map(|n| listed(&words[..n])), ["a", "a and b", "a, b and c"]);
    }
}
