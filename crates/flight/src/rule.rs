//! A threshold of the settings: `METRIC OP NUMBER` or `METRIC OP FACTOR * METRIC`, then perhaps `for DURATION`. Nothing else.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use gpuvitals_core::catalogue::{by_column, suggest};
use gpuvitals_core::{MetricId, Table, quantity};

/// Longest rule, in characters: it stands in a line with a caret below.
const RULE_LEN_MAX: usize = 200;

/// A threshold that is a trigger.
#[derive(Debug, Clone, PartialEq)]
pub struct FlightRule {
    text: String,
    metric: MetricId,
    comparison: Comparison,
    limit: Limit,
    lasts_ns: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    Number(f64),
    Share(f64, MetricId),
}

/// A rule that is none: with the place where it goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct RuleError {
    rule: String,
    /// Characters before the place.
    before: usize,
    why: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}\n  {:>width$}", self.why, self.rule, '^', width = self.before + 1)
    }
}

impl FlightRule {
    /// The rule as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The metric that is watched.
    pub(crate) fn metric(&self) -> MetricId {
        self.metric
    }

    /// The metric that it is compared with, if it is one.
    pub(crate) fn other(&self) -> Option<MetricId> {
        match self.limit {
            Limit::Number(_) => None,
            Limit::Share(_, metric) => Some(metric),
        }
    }

    /// How long it must hold.
    pub(crate) fn lasts_ns(&self) -> i64 {
        self.lasts_ns
    }

    /// Whether it holds for these values; not known if one is missing.
    pub(crate) fn holds(&self, value: Option<f64>, other: Option<f64>) -> Option<bool> {
        let value = value?;
        let limit = match self.limit {
            Limit::Number(number) => number,
            Limit::Share(factor, _) => factor * other?,
        };
        Some(match self.comparison {
            Comparison::Above => value > limit,
            Comparison::AtLeast => value >= limit,
            Comparison::Below => value < limit,
            Comparison::AtMost => value <= limit,
        })
    }
}

impl FromStr for FlightRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let refuse = |before: usize, why: String| RuleError { rule: shown.clone(), before, why };
        if shown.chars().count() > RULE_LEN_MAX {
            let rule = shown.chars().take(RULE_LEN_MAX).collect();
            let why = format!("the rule is longer than {RULE_LEN_MAX} characters");
            return Err(RuleError { rule, before: RULE_LEN_MAX, why });
        }
        let mut words = Words::of(&shown);
        let read = |words: &mut Words| -> Result<Self, (usize, String)> {
            let metric = words.metric()?;
            let comparison = words.comparison()?;
            let number = words.number()?;
            let limit = if words.next_if("*") {
                Limit::Share(number, words.metric()?)
            } else {
                Limit::Number(number)
            };
            let lasts = words.duration()?;
            words.end()?;
            let lasts_ns = i64::try_from(lasts.as_nanos()).unwrap_or(i64::MAX);
            Ok(Self { text: shown.trim().to_owned(), metric, comparison, limit, lasts_ns })
        };
        read(&mut words).map_err(|(before, why)| refuse(before, why))
    }
}

/// The words of a rule, each with the number of characters before it.
struct Words {
    words: std::vec::IntoIter<(usize, String)>,
    /// Characters of the whole rule.
    len: usize,
}

impl Words {
    fn of(text: &str) -> Self {
        let is_sign = |c: char| "<>=!".contains(c);
        let mut words: Vec<(usize, String)> = Vec::new();
        let mut before = None;
        for (at, c) in text.chars().enumerate() {
            let kind = if c == '*' { 2 } else { i32::from(is_sign(c)) };
            if c.is_whitespace() {
                before = None;
                continue;
            }
            match words.last_mut() {
                Some((_, word)) if before == Some(kind) && kind != 2 => word.push(c),
                _ => words.push((at, c.to_string())),
            }
            before = Some(kind);
        }
        Self { words: words.into_iter(), len: text.trim_end().chars().count() }
    }

    fn next(&mut self, wanted: &str) -> Result<(usize, String), (usize, String)> {
        self.words.next().ok_or_else(|| (self.len, format!("{wanted} is missing here")))
    }

    fn next_if(&mut self, word: &str) -> bool {
        let is_it = self.words.as_slice().first().is_some_and(|(_, next)| next == word);
        is_it && self.words.next().is_some()
    }

    fn metric(&mut self) -> Result<MetricId, (usize, String)> {
        let (at, name) = self.next("a metric")?;
        let of_gpu = |name: &str| by_column(name).filter(|id| id.metric().table == Table::GpuEvents);
        of_gpu(&name).ok_or_else(|| {
            let near = suggest(&name).filter(|near| of_gpu(near).is_some());
            let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            (at, format!("{name:?} is no metric of a GPU (`gpuvitals metrics` lists them){near}"))
        })
    }

    fn comparison(&mut self) -> Result<Comparison, (usize, String)> {
        let (at, sign) = self.next("one of > >= < <=")?;
        match sign.as_str() {
            ">" => Ok(Comparison::Above),
            ">=" => Ok(Comparison::AtLeast),
            "<" => Ok(Comparison::Below),
            "<=" => Ok(Comparison::AtMost),
            _ => Err((at, format!("{sign:?} is none of > >= < <="))),
        }
    }

    fn number(&mut self) -> Result<f64, (usize, String)> {
        let (at, text) = self.next("a number")?;
        let is_number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        let number = text.parse::<f64>().ok().filter(|number| is_number && number.is_finite());
        number.ok_or_else(|| {
            let factor =
                if by_column(&text).is_some() { "; before a metric stands a factor: 1 *" } else { "" };
            (at, format!("{text:?} is no number{factor}"))
        })
    }

    fn duration(&mut self) -> Result<Duration, (usize, String)> {
        if !self.next_if("for") {
            return Ok(Duration::ZERO);
        }
        let (at, text) = self.next("a duration such as 10s")?;
        quantity::duration(&text).map_err(|error| (at, error.to_string()))
    }

    fn end(&mut self) -> Result<(), (usize, String)> {
        match self.words.next() {
            None => Ok(()),
            Some((at, word)) => {
                Err((at, format!("{word:?} does not belong here; a rule may end with: for DURATION")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_compares_a_metric_with_a_number_or_a_share_of_another() {
        let check = |text: &str, value: Option<f64>, other: Option<f64>, holds: Option<bool>| {
            let rule: FlightRule = text.parse().unwrap();
            assert_eq!(rule.holds(value, other), holds, "{text} {value:?} {other:?}");
        };
        check("temperature_c > 90", Some(91.0), None, Some(true));
        check("temperature_c > 90", Some(90.0), None, Some(false));
        check("temperature_c>=90", Some(90.0), None, Some(true));
        check("temperature_c > 90", None, None, None);
        check("power_w < 0.5 * power_limit_w", Some(100.0), Some(300.0), Some(true));
        check("power_w<=0.5*power_limit_w", Some(151.0), Some(300.0), Some(false));
        check("power_w < 0.5 * power_limit_w", Some(100.0), None, None);
        let lasting: FlightRule = "temperature_c > 90 for 1.5s".parse().unwrap();
        assert_eq!(lasting.lasts_ns(), 1_500_000_000);
    }

    #[test]
    fn a_caret_stands_where_a_rule_goes_wrong() {
        let check = |text: &str, before: usize, words: &str| {
            let error = text.parse::<FlightRule>().unwrap_err();
            assert!(error.why.contains(words), "{text}: {error}");
            let caret = error.to_string().lines().last().unwrap().find('^').unwrap();
            assert_eq!(caret, 2 + before, "{error}");
        };
        check("", 0, "a metric is missing");
        check("temperatur_c > 90", 0, "did you mean temperature_c?");
        check("temperature_c", 13, "> >= < <= is missing");
        check("temperature_c == 90", 14, "none of > >= < <=");
        check("temperature_c > hot", 16, "no number");
        check("temperature_c > NaN", 16, "no number");
        check("temperature_c > inf", 16, "no number");
        check("power_w > power_limit_w", 10, "1 *");
        check("power_w > 0.5 *", 15, "a metric is missing");
        check("power_w > 0.5 * limit", 16, "no metric");
        check("power_w > 300 and power_w < 400", 14, "does not belong");
        check("power_w > 300 for", 17, "a duration");
        check("power_w > 300 for ever", 18, "no duration");
        check("power_w > 300 for 1s 2s", 21, "does not belong");
        check("cpu_pct > 300", 0, "`gpuvitals metrics` lists them)");
        let of_host = "cpu_pct > 300".parse::<FlightRule>().unwrap_err();
        assert!(!of_host.why.contains("did you mean"), "{of_host}");
        check("\u{1b}[2J > 3", 1, "no metric of a GPU");
    }

    #[test]
    fn an_endless_rule_is_refused_and_not_repeated() {
        let error = "x".repeat(100_000).parse::<FlightRule>().unwrap_err();
        assert!(error.to_string().len() < 1_000);
    }
}
