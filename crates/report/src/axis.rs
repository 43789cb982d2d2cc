//! The axes of a chart: their range, their ticks and what stands at these.

const MINUTE_S: f64 = 60.0;
const HOUR_S: f64 = 3_600.0;
const DAY_S: f64 = 86_400.0;
/// Distances of ticks in time, seconds.
const TIME_STEPS: [f64; 22] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0,
    1800.0, 3600.0, 7200.0, 21_600.0, 43_200.0,
];
const TICKS_MAX: usize = 16;

/// Ticks, and how each is written.
pub(crate) type Ticks = Vec<(f64, String)>;

/// The range of values, as on the charts of the page: shares have their whole range; the rest gets air, and an axis of positive
/// values never goes below 0.
pub(crate) fn value_range(unit: &str, low: f64, high: f64) -> (f64, f64) {
    if unit == "%" {
        return (0.0, high.max(100.0));
    }
    let height = high - low;
    let air = if height > 0.0 { height * 0.12 } else { (high.abs() * 0.1).max(1.0) };
    let bottom = low - air;
    (if low >= 0.0 { bottom.max(0.0) } else { bottom }, high + air)
}

/// Ticks at round values, about so many.
pub(crate) fn value_ticks((low, high): (f64, f64), most: f64) -> Ticks {
    let wanted = ((high - low) / most).max(f64::MIN_POSITIVE);
    let ten = 10_f64.powf(wanted.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|round| round * ten).find(|step| *step >= wanted);
    let step = step.unwrap_or(10.0 * ten);
    let decimals = decimals(step);
    ticks((low / step).ceil() * step, high, step)
        .map(|value| (value, format!("{value:.decimals$}")))
        .collect()
}

/// Ticks in a time of so many seconds, about so many.
pub(crate) fn time_ticks(span_s: f64, most: f64) -> Ticks {
    let wanted = span_s / most;
    let step = TIME_STEPS.into_iter().find(|step| *step >= wanted);
    let step = step.unwrap_or_else(|| (wanted / DAY_S).ceil().max(1.0) * DAY_S);
    let (unit_s, unit) = match step {
        days if days >= DAY_S => (DAY_S, "d"),
        hours if hours >= HOUR_S => (HOUR_S, "h"),
        minutes if minutes >= MINUTE_S => (MINUTE_S, "min"),
        _ => (1.0, "s"),
    };
    let decimals = decimals(step / unit_s);
    ticks(0.0, span_s, step).map(|at_s| (at_s, format!("{:.decimals$} {unit}", at_s / unit_s))).collect()
}

fn ticks(first: f64, last: f64, step: f64) -> impl Iterator<Item = f64> {
    let end = last + step * 1e-6;
    std::iter::successors(Some(first), move |at| Some(at + step))
        .take_while(move |at| *at <= end)
        .take(TICKS_MAX)
}

/// The fewest decimals that write a distance exactly.
fn decimals(step: f64) -> usize {
    let is_whole = |value: f64| (value - value.round()).abs() < 1e-6;
    let scales = std::iter::successors(Some(1.0), |scale| Some(scale * 10.0));
    scales.take(6).position(|scale| is_whole(step * scale)).unwrap_or(6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(ticks: &[(f64, String)]) -> Vec<&str> {
        ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_have_the_decimals_that_tell_them_apart() {
        assert_eq!(written(&value_ticks((0.0, 784.0), 4.0)), ["0", "200", "400", "600"]);
        assert_eq!(written(&value_ticks((0.12, 0.9), 4.0)), ["0.2", "0.4", "0.6", "0.8"]);
        assert_eq!(written(&time_ticks(600.0, 8.0)), ["0 min", "2 min", "4 min", "6 min", "8 min", "10 min"]);
        assert_eq!(written(&time_ticks(0.5, 8.0)), ["0.0 s", "0.1 s", "0.2 s", "0.3 s", "0.4 s", "0.5 s"]);
        assert_eq!(written(&time_ticks(0.0, 8.0)), ["0.00 s"]);
        assert_eq!(time_ticks(40.0 * DAY_S, 8.0).len(), 9);
    }

    #[test]
    fn shares_have_their_whole_range_and_other_values_have_air() {
        assert_eq!(value_range("%", 3.0, 4.0), (0.0, 100.0));
        assert_eq!(value_range("W", 100.0, 200.0), (88.0, 212.0));
        assert_eq!(value_range("W", 5.0, 105.0), (0.0, 117.0));
        assert_eq!(value_range("MHz", 1980.0, 1980.0), (1782.0, 2178.0));
    }
}
