//! Charts as SVG: lines over each other with the band of their extremes, and what held the clocks down.
//!
//! Colours are classes, which the page's style gives for light, dark and paper. Nothing in a chart is code.

use std::fmt;

use gpuvitals_core::number::float;

use crate::axis::{Ticks, time_ticks, value_range, value_ticks};
use crate::curve::{Curve, CurveBucket, CurveGrid};
use crate::held::Held;
use crate::panels::RunPanel;
use crate::words::{is_seen, span};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 230.0;
/// Room of the values beside a plot, of the numbers of marks above it, and of times below it.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 34.0;
/// Height of the line of a GPU in the chart of what held it, and of its bar.
const LANE: f64 = 18.0;
const BAR: f64 = 12.0;
/// Ticks of an axis, about.
const VALUE_TICKS: f64 = 4.0;
const TIME_TICKS: f64 = 8.0;
/// Most marks that have their number beside them.
const NUMBERED_MARKS: usize = 20;
/// Colours of lines; then they are dashed.
const COLOURS: usize = 6;
/// Letters of a name beside a bar, the last ones: `node-17/3` and the ends of UUIDs tell GPUs apart.
const NAME_LEN: usize = 9;
/// A bar that is narrower could not be seen.
const BAR_WIDTH_MIN: f64 = 0.6;
/// The classes of bars, in the order of the groups of limits.
pub(crate) const HELD_CLASSES: [(&str, &str); 4] = [
    ("by-power", "power limit"),
    ("by-heat", "heat"),
    ("by-hardware", "hardware"),
    ("by-other", "not named"),
];

/// A text in HTML: no character of it is markup, and none steers a terminal or turns the direction of others.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                unseen if !is_seen(unseen) => fmt::Write::write_char(f, '\u{fffd}')?,
                letter => fmt::Write::write_char(f, letter)?,
            }
        }
        Ok(())
    }
}

/// The classes of a line by its place: a colour, and dashes where the colours are used up.
pub(crate) fn line_classes(place: usize) -> String {
    format!("c{} d{}", place % COLOURS, place / COLOURS)
}

/// What all charts of a run have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChartFrame<'a> {
    pub(crate) grid: CurveGrid,
    /// When marks were set, seconds after the first row.
    pub(crate) marks: &'a [f64],
}

impl ChartFrame<'_> {
    fn x(self, at_s: f64) -> f64 {
        LEFT + at_s / self.grid.span_s().max(1e-3) * (WIDTH - LEFT - RIGHT)
    }

    fn open(f: &mut fmt::Formatter<'_>, label: &str, height: f64) -> fmt::Result {
        let label = Escaped(label);
        write!(f, r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">"#)
    }

    /// Times below a plot and marks across it, and the end of the chart.
    fn close(self, f: &mut fmt::Formatter<'_>, height: f64) -> fmt::Result {
        let bottom = height - BOTTOM;
        for (at_s, text) in time_ticks(self.grid.span_s(), TIME_TICKS) {
            let x = self.x(at_s);
            write!(f, r#"<text class="time" x="{x:.1}" y="{:.1}">{text}</text>"#, height - 8.0)?;
        }
        for (place, at_s) in self.marks.iter().enumerate() {
            if !(0.0..=self.grid.span_s()).contains(at_s) {
                continue;
            }
            let x = self.x(*at_s);
            write!(f, r#"<path class="mark" d="M{x:.1} {TOP}V{bottom}"/>"#)?;
            if self.marks.len() <= NUMBERED_MARKS {
                write!(f, r#"<text class="number" x="{x:.1}" y="{:.1}">{}</text>"#, TOP - 5.0, place + 1)?;
            }
        }
        f.write_str("</svg>")
    }
}

/// A metric of several GPUs or hosts over each other.
pub(crate) struct LineChart<'a> {
    pub(crate) frame: ChartFrame<'a>,
    pub(crate) panel: &'a RunPanel,
    /// Each with its place among the lines of all charts.
    pub(crate) curves: Vec<(usize, &'a Curve)>,
    pub(crate) names: String,
}

/// The smallest and the largest value of some curves; none without one.
pub(crate) fn extremes<'a>(curves: impl Iterator<Item = &'a Curve>) -> Option<(f64, f64)> {
    let buckets = curves.flat_map(Curve::buckets);
    buckets.map(|bucket| (bucket.low, bucket.high)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

impl LineChart<'_> {
    fn label(&self) -> String {
        let (RunPanel { title, unit, .. }, names) = (self.panel, &self.names);
        let lasted = span(self.frame.grid.span_s());
        format!("{title} in {unit} over {lasted}, a line each for {names}; the table below has the values")
    }

    fn y(range: (f64, f64), value: f64) -> f64 {
        let share = (value - range.0) / (range.1 - range.0).max(f64::MIN_POSITIVE);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn values(f: &mut fmt::Formatter<'_>, range: (f64, f64), ticks: Ticks) -> fmt::Result {
        for (value, text) in ticks {
            let y = Self::y(range, value);
            write!(f, r#"<path class="grid" d="M{LEFT} {y:.1}H{}"/>"#, WIDTH - RIGHT)?;
            write!(f, r#"<text class="value" x="{}" y="{:.1}">{text}</text>"#, LEFT - 6.0, y + 4.0)?;
        }
        Ok(())
    }

    /// The area between smallest and largest values.
    fn band(
        &self,
        f: &mut fmt::Formatter<'_>,
        range: (f64, f64),
        (place, curve): (usize, &Curve),
    ) -> fmt::Result {
        let grid = self.frame.grid;
        let point = |f: &mut fmt::Formatter<'_>, bucket: &CurveBucket, value: f64| {
            write!(f, "{:.1} {:.1} ", self.frame.x(grid.middle_s(bucket.index)), Self::y(range, value))
        };
        let is_broad = |piece: &&[CurveBucket]| piece.iter().any(|bucket| bucket.high > bucket.low);
        let mut pieces = grid.pieces(curve.buckets()).filter(is_broad).peekable();
        if pieces.peek().is_none() {
            return Ok(());
        }
        write!(f, r#"<path class="band {}" d=""#, line_classes(place))?;
        for piece in pieces {
            f.write_str("M")?;
            piece.iter().try_for_each(|bucket| point(f, bucket, bucket.high))?;
            piece.iter().rev().try_for_each(|bucket| point(f, bucket, bucket.low))?;
            f.write_str("Z")?;
        }
        f.write_str(r#""/>"#)
    }

    fn line(
        &self,
        f: &mut fmt::Formatter<'_>,
        range: (f64, f64),
        (place, curve): (usize, &Curve),
    ) -> fmt::Result {
        let grid = self.frame.grid;
        write!(f, r#"<path class="line {}" d=""#, line_classes(place))?;
        for piece in grid.pieces(curve.buckets()) {
            f.write_str("M")?;
            for bucket in piece {
                let x = self.frame.x(grid.middle_s(bucket.index));
                write!(f, "{x:.1} {:.1} ", Self::y(range, bucket.mean()))?;
            }
            if piece.len() == 1 {
                // A value alone gets a stroke of its own, or it could not be seen.
                f.write_str("h.1")?;
            }
        }
        f.write_str(r#""/>"#)
    }
}

impl fmt::Display for LineChart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let curves = || self.curves.iter().copied();
        let (low, high) = extremes(curves().map(|(_, curve)| curve)).unwrap_or((0.0, 1.0));
        let range = value_range(self.panel.unit, low, high);
        ChartFrame::open(f, &self.label(), HEIGHT)?;
        Self::values(f, range, value_ticks(range, VALUE_TICKS))?;
        curves().try_for_each(|curve| self.band(f, range, curve))?;
        curves().try_for_each(|curve| self.line(f, range, curve))?;
        self.frame.close(f, HEIGHT)
    }
}

/// What held the clocks of GPUs down, a line of bars each.
pub(crate) struct HeldChart<'a> {
    pub(crate) frame: ChartFrame<'a>,
    pub(crate) gpus: Vec<(&'a str, &'a Held)>,
}

/// A time in which one group of limits held for longer than the others.
#[derive(Debug, Clone, Copy)]
struct HeldSpan {
    group: usize,
    from_s: f64,
    to_s: f64,
}

impl HeldSpan {
    /// Those of a GPU, neighbours of one group as one.
    fn all(grid: CurveGrid, held: &Held) -> Vec<Self> {
        let [first, ..] = held.curves();
        let mut spans: Vec<Self> = Vec::new();
        for (at, bucket) in first.buckets().iter().enumerate() {
            let shares =
                held.curves().each_ref().map(|curve| curve.buckets().get(at).map_or(0.0, CurveBucket::mean));
            let longest = shares.into_iter().enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
            let Some((group, _)) = longest.filter(|(_, share)| *share > 0.0) else { continue };
            let next = first.buckets().get(at + 1).filter(|next| !grid.is_gap(bucket, next));
            let from_s = grid.start_s(bucket.index);
            let to_s = grid.start_s(next.map_or(bucket.index + 1, |next| next.index));
            match spans.last_mut() {
                Some(last) if last.group == group && last.to_s >= from_s => last.to_s = to_s,
                _ => spans.push(Self { group, from_s, to_s }),
            }
        }
        spans
    }
}

impl HeldChart<'_> {
    fn top(lane: usize) -> f64 {
        TOP + LANE * float(lane)
    }

    fn bars(&self, f: &mut fmt::Formatter<'_>, lane: usize, held: &Held) -> fmt::Result {
        let (spans, y) = (HeldSpan::all(self.frame.grid, held), Self::top(lane) + (LANE - BAR) / 2.0);
        for (group, (class, _)) in HELD_CLASSES.iter().enumerate() {
            let mut own = spans.iter().filter(|span| span.group == group).peekable();
            if own.peek().is_none() {
                continue;
            }
            write!(f, r#"<path class="{class}" d=""#)?;
            for span in own {
                let x = self.frame.x(span.from_s);
                let width = (self.frame.x(span.to_s) - x).max(BAR_WIDTH_MIN);
                write!(f, "M{x:.1} {y:.1}h{width:.1}v{BAR}h-{width:.1}z")?;
            }
            f.write_str(r#""/>"#)?;
        }
        Ok(())
    }
}

impl fmt::Display for HeldChart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let height = Self::top(self.gpus.len()) + BOTTOM;
        let label =
            "When limits held the clocks down, a line of bars for each GPU; the table below has the shares";
        ChartFrame::open(f, label, height)?;
        for (lane, (name, held)) in self.gpus.iter().enumerate() {
            let (top, left_out) = (Self::top(lane), name.chars().count().saturating_sub(NAME_LEN));
            let short: String = name.chars().skip(left_out).collect();
            let (middle, x) = (top + LANE / 2.0, LEFT - 6.0);
            write!(f, r#"<path class="grid" d="M{LEFT} {middle:.1}H{}"/>"#, WIDTH - RIGHT)?;
            write!(f, r#"<text class="lane" x="{x}" y="{:.1}">{}</text>"#, middle + 4.0, Escaped(&short))?;
            self.bars(f, lane, held)?;
        }
        self.frame.close(f, height)
    }
}
