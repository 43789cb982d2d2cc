//! How long the steps took, as bars: how many of them lasted how long.

use std::fmt;

use crate::axis::{Ticks, value_ticks};
use crate::chart::Escaped;
use crate::words::{number, span};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 34.0;
const BARS: u32 = 40;
const TICKS: f64 = 6.0;
const COUNT_TICKS: f64 = 3.0;
/// Room between two bars.
const APART: f64 = 1.0;

/// The distribution of the durations of steps.
pub(crate) struct StepChart<'a> {
    pub(crate) durations_s: &'a [f64],
}

impl StepChart<'_> {
    /// From the shortest to the longest; steps that are all the same have a little air.
    fn range(&self) -> (f64, f64) {
        let durations = || self.durations_s.iter().copied();
        let (low, high) = (durations().fold(f64::INFINITY, f64::min), durations().fold(0.0, f64::max));
        let air = if high > low { 0.0 } else { (0.05 * high).max(1e-3) };
        (low - air, high + air)
    }

    /// How many steps are in each bar.
    fn counts(&self, (low, high): (f64, f64)) -> Vec<f64> {
        let mut counts = vec![0.0; BARS as usize];
        for duration_s in self.durations_s {
            let share = (duration_s - low) / (high - low);
            let bar = (0..BARS).rev().find(|bar| share >= f64::from(*bar) / f64::from(BARS)).unwrap_or(0);
            if let Some(count) = counts.get_mut(bar as usize) {
                *count += 1.0;
            }
        }
        counts
    }

    fn label(&self, (low, high): (f64, f64)) -> String {
        let count = self.durations_s.len();
        format!(
            "How long {count} steps took, from {} to {}; the table below has the figures",
            span(low),
            span(high)
        )
    }
}

impl fmt::Display for StepChart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = self.range();
        let counts = self.counts(range);
        let most = counts.iter().copied().fold(1.0, f64::max);
        let (plot_width, bottom) = (WIDTH - LEFT - RIGHT, HEIGHT - BOTTOM);
        let x = |duration_s: f64| LEFT + (duration_s - range.0) / (range.1 - range.0) * plot_width;
        let y = |count: f64| bottom - count / most * (bottom - TOP);
        let label = self.label(range);
        write!(f, r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}">"#, Escaped(&label))?;
        let counts_axis: Ticks = value_ticks((0.0, most), COUNT_TICKS);
        for (count, text) in counts_axis.into_iter().filter(|(count, _)| count.fract() < 1e-9) {
            let y = y(count);
            write!(f, r#"<path class="grid" d="M{LEFT} {y:.1}H{}"/>"#, WIDTH - RIGHT)?;
            write!(f, r#"<text class="value" x="{}" y="{:.1}">{text}</text>"#, LEFT - 6.0, y + 4.0)?;
        }
        f.write_str(r#"<path class="bar" d=""#)?;
        let width = plot_width / f64::from(BARS);
        for (bar, count) in (0..BARS).zip(&counts).filter(|(_, count)| **count > 0.0) {
            let left = LEFT + f64::from(bar) * width;
            write!(f, "M{left:.1} {bottom}V{:.1}h{:.1}V{bottom}z", y(*count), width - APART)?;
        }
        f.write_str(r#""/>"#)?;
        for (duration_s, text) in value_ticks(range, TICKS) {
            let x = x(duration_s);
            write!(f, r#"<text class="time" x="{x:.1}" y="{:.1}">{text} s</text>"#, HEIGHT - 8.0)?;
        }
        f.write_str("</svg>")
    }
}

/// Numbers of steps and seconds, as the chart's caption has them.
pub(crate) fn caption(durations_s: &[f64]) -> String {
    let all: f64 = durations_s.iter().sum();
    format!("Duration of {} steps, {} s in all", durations_s.len(), number(all))
}
