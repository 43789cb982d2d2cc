//! The report as a page in one file: no script, nothing from the network, and a policy that forbids both.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use gpuvitals_core::quantity::counted;
use ring::digest::{SHA256, digest};

use crate::chart::{ChartFrame, Escaped, HELD_CLASSES, HeldChart, LineChart, extremes, line_classes};
use crate::curve::{Curve, CurveGrid};
use crate::figures::RunGpu;
use crate::panels::{GPU_PANELS, HOST_PANELS, RunPanel};
use crate::run::{GPUS_DRAWN, RunReport};
use crate::step_chart::{StepChart, caption};
use crate::tables::{self, RunTable};
use crate::words::{number, span};

const STYLE: &str = include_str!("style.css");
/// Parts of the time in the table below a chart.
const PARTS: u32 = 10;
/// Most hosts that are drawn.
const HOSTS_DRAWN: usize = GPUS_DRAWN;

impl RunReport {
    /// A page in one file, which a browser opens from a disk or a mail and prints.
    pub fn html(&self) -> String {
        RunPage { run: self }.to_string()
    }
}

struct RunPage<'a> {
    run: &'a RunReport,
}

/// A table under a caption; it scrolls by itself where the screen is narrow.
struct HtmlTable<'a> {
    table: &'a RunTable,
    caption: &'a str,
}

impl fmt::Display for HtmlTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (RunTable { heads, rows, numbers_from }, caption) = (self.table, Escaped(self.caption));
        let class = |column: usize| if column >= *numbers_from { "n" } else { "text" };
        write!(f, r#"<div class="wide" role="region" aria-label="{caption}" tabindex="0"><table>"#)?;
        write!(f, "<caption>{caption}</caption><thead><tr>")?;
        for (column, head) in heads.iter().enumerate() {
            write!(f, r#"<th scope="col" class="{}">{}</th>"#, class(column), Escaped(head))?;
        }
        f.write_str("</tr></thead><tbody>")?;
        for row in rows {
            f.write_str("<tr>")?;
            for (column, cell) in row.iter().enumerate() {
                let (class, cell) = (class(column), Escaped(cell));
                if column == 0 {
                    write!(f, r#"<th scope="row" class="{class}">{cell}</th>"#)?;
                } else {
                    write!(f, r#"<td class="{class}">{cell}</td>"#)?;
                }
            }
            f.write_str("</tr>")?;
        }
        f.write_str("</tbody></table></div>")
    }
}

/// The curves of one panel.
struct PanelCurves<'a> {
    panel: &'a RunPanel,
    /// Each with its place among all lines, and its name.
    lines: Vec<(usize, &'a str, &'a Curve)>,
    /// What the lines are, for those who do not see them.
    names: String,
}

impl PanelCurves<'_> {
    /// The chart of a panel with the table of its values; a sentence if nothing moved; nothing if nothing was read.
    fn show(&self, f: &mut fmt::Formatter<'_>, frame: ChartFrame<'_>) -> fmt::Result {
        let RunPanel { title, unit, .. } = self.panel;
        let Some((low, high)) = extremes(self.lines.iter().map(|(_, _, curve)| *curve)) else {
            return Ok(());
        };
        if high <= low {
            let value = number(low);
            return write!(f, r#"<p class="note">{title}: {value} {unit}, the same all the time.</p>"#);
        }
        let curves = self.lines.iter().map(|(place, _, curve)| (*place, *curve)).collect();
        let chart = LineChart { frame, panel: self.panel, curves, names: self.names.clone() };
        write!(f, "<figure><figcaption><h3>{title}, {unit}</h3></figcaption>{chart}")?;
        let caption = format!("{title}, {unit}: means of parts of the time");
        let table = HtmlTable { table: &self.over_time(frame.grid), caption: &caption };
        write!(f, "<details><summary>Values of {title}</summary>{table}</details></figure>")
    }

    fn over_time(&self, grid: CurveGrid) -> RunTable {
        let part_s = grid.span_s() / f64::from(PARTS);
        let heads = std::iter::once("From".to_owned())
            .chain(self.lines.iter().map(|(_, name, _)| (*name).to_owned()));
        let rows = (0..PARTS).map(|part| {
            let (from_s, to_s) = (f64::from(part) * part_s, f64::from(part + 1) * part_s);
            // The last row belongs to the last part.
            let end_s = if part + 1 == PARTS { f64::INFINITY } else { to_s };
            let mean = |curve: &Curve| {
                curve.mean_within(grid, &(from_s..end_s)).map_or_else(|| "–".to_owned(), number)
            };
            std::iter::once(span(from_s)).chain(self.lines.iter().map(|(_, _, curve)| mean(curve))).collect()
        });
        RunTable { heads: heads.collect(), rows: rows.collect(), numbers_from: 1 }
    }
}

impl RunPage<'_> {
    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = BASE64_STANDARD.encode(digest(&SHA256, STYLE.as_bytes()));
        let policy =
            format!("default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'");
        let title = Escaped(&self.run.title);
        let version = env!("CARGO_PKG_VERSION");
        f.write_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")?;
        writeln!(f, r#"<meta http-equiv="Content-Security-Policy" content="{policy}">"#)?;
        f.write_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n")?;
        f.write_str("<meta name=\"referrer\" content=\"no-referrer\">\n")?;
        writeln!(f, r#"<meta name="generator" content="gpuvitals {version}">"#)?;
        write!(f, "<title>{title}: report of a run</title>\n<style>{STYLE}</style>\n</head>\n<body>\n")
    }

    fn opening(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.run;
        write!(f, "<header>\n<h1>{}</h1>\n", Escaped(&run.title))?;
        if let Some(started) = &run.started {
            write!(f, r#"<p class="when">{} from {started} on"#, span(run.duration_s))?;
            for command in run.commands() {
                write!(f, " · <code>{}</code>", Escaped(command))?;
            }
            f.write_str("</p>\n")?;
        }
        for sentence in &run.sentences {
            writeln!(f, "<p>{}</p>", Escaped(sentence))?;
        }
        f.write_str("<nav aria-label=\"Parts of the report\"><ul>")?;
        let parts = [
            ("gpus", "GPUs", !run.gpus.is_empty()),
            ("steps", "Steps", run.steps.is_some() || !run.phases.is_empty()),
            ("course", "Over time", run.started.is_some() && !run.gpus.is_empty()),
            ("marks", "Marks", !run.marks.is_empty()),
            ("hosts", "The host", !run.hosts.is_empty()),
            ("recordings", "What was recorded", true),
        ];
        for (id, name, _) in parts.iter().filter(|(_, _, is_there)| *is_there) {
            write!(f, "<li><a href=\"#{id}\">{name}</a></li>")?;
        }
        f.write_str("</ul></nav>\n</header>\n<main>\n")
    }

    fn gpus(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpus = &self.run.gpus;
        if gpus.is_empty() {
            return Ok(());
        }
        let table = HtmlTable { table: &tables::of_gpus(gpus), caption: "What each GPU did" };
        write!(f, "<section aria-labelledby=\"gpus\">\n<h2 id=\"gpus\">GPUs</h2>\n{table}\n")?;
        if self.run.energy_j.is_some() {
            let energy = tables::with_error(self.run.energy_j, self.run.energy_error.as_ref());
            writeln!(f, "<p>Energy in all: {energy}.</p>")?;
        }
        for note in tables::notes_on_energy(gpus) {
            writeln!(f, r#"<p class="note">{}</p>"#, Escaped(&note))?;
        }
        if self.run.rows_left_out > 0 {
            let rows = self.run.rows_left_out;
            writeln!(
                f,
                r#"<p class="note">{rows} rows are of more devices than a summary is made for.</p>"#
            )?;
        }
        f.write_str("</section>\n")
    }

    /// How long steps took, and what the phases were.
    fn steps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.run;
        if run.steps.is_none() && run.phases.is_empty() {
            return Ok(());
        }
        f.write_str("<section aria-labelledby=\"steps\">\n<h2 id=\"steps\">Steps and phases</h2>\n")?;
        if let Some(steps) = &run.steps {
            let chart = StepChart { durations_s: &run.durations_s };
            let caption = caption(&run.durations_s);
            writeln!(f, "<figure><figcaption><h3>{}</h3></figcaption>{chart}</figure>", Escaped(&caption))?;
            writeln!(
                f,
                "{}",
                HtmlTable { table: &tables::of_steps(steps), caption: "Steps after the warm-up" }
            )?;
        }
        if !run.phases.is_empty() {
            writeln!(f, "{}", HtmlTable { table: &tables::of_phases(&run.phases), caption: "Phases" })?;
        }
        f.write_str("</section>\n")
    }

    /// The GPUs that are drawn, with their places among the lines.
    fn drawn(&self) -> impl Iterator<Item = (usize, &RunGpu)> {
        self.run.gpus.iter().take(GPUS_DRAWN).enumerate()
    }

    fn course(&self, f: &mut fmt::Formatter<'_>, frame: ChartFrame<'_>) -> fmt::Result {
        if self.run.gpus.is_empty() {
            return Ok(());
        }
        f.write_str("<section aria-labelledby=\"course\">\n<h2 id=\"course\">Over time</h2>\n")?;
        let note = "A line is the mean, the area around it reaches from the smallest to the largest value.";
        writeln!(f, r#"<p class="note">{note}</p>"#)?;
        if self.run.gpus.len() > GPUS_DRAWN {
            let all = self.run.gpus.len();
            writeln!(f, r#"<p class="note">The first {GPUS_DRAWN} of {all} GPUs are drawn.</p>"#)?;
        }
        f.write_str("<ul class=\"legend\">")?;
        for (place, gpu) in self.drawn() {
            let (classes, name) = (line_classes(place), Escaped(&gpu.name));
            write!(
                f,
                r#"<li><svg viewBox="0 0 26 8" aria-hidden="true"><path class="line {classes}" d="M0 4H26"/></svg>GPU {name}</li>"#
            )?;
        }
        f.write_str("</ul>\n")?;
        for (at, panel) in GPU_PANELS.iter().enumerate() {
            let lines = self.drawn().filter_map(|(place, gpu)| {
                let curve = self.run.curves.gpu(&gpu.summary.id)?.curve(at)?;
                (!curve.buckets().is_empty()).then_some((place, gpu.name.as_str(), curve))
            });
            let names = counted(self.drawn().count() as u64, "GPU");
            PanelCurves { panel, lines: lines.collect(), names }.show(f, frame)?;
            if at == 0 {
                self.limits(f, frame)?;
            }
        }
        f.write_str("</section>\n")
    }

    /// When limits held the clocks down; nothing if none did.
    fn limits(&self, f: &mut fmt::Formatter<'_>, frame: ChartFrame<'_>) -> fmt::Result {
        let Some(limits) = tables::of_limits(&self.run.gpus) else { return Ok(()) };
        let gpus = self
            .drawn()
            .filter_map(|(_, gpu)| Some((gpu.name.as_str(), self.run.curves.gpu(&gpu.summary.id)?.held())));
        let chart = HeldChart { frame, gpus: gpus.collect() };
        write!(f, "<figure><figcaption><h3>Clocks held down</h3></figcaption>{chart}<ul class=\"legend\">")?;
        for (class, name) in HELD_CLASSES {
            write!(
                f,
                r#"<li><svg viewBox="0 0 26 8" aria-hidden="true"><path class="{class}" d="M0 0h26v8H0z"/></svg>{name}</li>"#
            )?;
        }
        let table = HtmlTable { table: &limits, caption: "Clocks held down, as shares of the time" };
        write!(f, "</ul><details><summary>Values of clocks held down</summary>{table}</details></figure>")
    }

    fn marks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.run;
        if run.marks.is_empty() {
            return Ok(());
        }
        f.write_str("<section aria-labelledby=\"marks\">\n<h2 id=\"marks\">Marks</h2>\n")?;
        writeln!(f, "{}", HtmlTable { table: &tables::of_marks(&run.marks), caption: "Marks, by time" })?;
        if run.marks_left_out > 0 {
            writeln!(f, r#"<p class="note">{} more marks are in the recording.</p>"#, run.marks_left_out)?;
        }
        f.write_str("</section>\n")
    }

    fn hosts(&self, f: &mut fmt::Formatter<'_>, frame: Option<ChartFrame<'_>>) -> fmt::Result {
        let hosts = &self.run.hosts;
        if hosts.is_empty() {
            return Ok(());
        }
        let table = HtmlTable { table: &tables::of_hosts(hosts), caption: "What each machine did" };
        write!(f, "<section aria-labelledby=\"hosts\">\n<h2 id=\"hosts\">The host</h2>\n{table}\n")?;
        for (at, panel) in HOST_PANELS.iter().enumerate() {
            let drawn = self.run.curves.hosts().take(HOSTS_DRAWN).enumerate();
            let lines: Vec<_> = drawn
                .filter_map(|(place, (name, host))| Some((place, name, host.curve(at)?)))
                .filter(|(_, _, curve)| !curve.buckets().is_empty())
                .collect();
            let names = counted(lines.len() as u64, "machine");
            if let Some(frame) = frame {
                PanelCurves { panel, lines, names }.show(f, frame)?;
            }
        }
        f.write_str("</section>\n")
    }

    fn recordings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "<section aria-labelledby=\"recordings\">\n<h2 id=\"recordings\">What was recorded</h2>\n",
        )?;
        for recording in &self.run.recordings {
            f.write_str("<dl>")?;
            for (name, value) in tables::facts(recording) {
                write!(f, "<dt>{}</dt><dd>{}</dd>", Escaped(&name), Escaped(&value))?;
            }
            f.write_str("</dl>\n")?;
        }
        f.write_str("</section>\n")
    }
}

impl fmt::Display for RunPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times: Vec<f64> = self.run.marks.iter().map(|mark| mark.at_s).collect();
        let frame = self.run.curves.grid().map(|grid| ChartFrame { grid, marks: &times });
        self.head(f)?;
        self.opening(f)?;
        self.gpus(f)?;
        self.steps(f)?;
        if let Some(frame) = frame {
            self.course(f, frame)?;
        }
        self.marks(f)?;
        self.hosts(f, frame)?;
        self.recordings(f)?;
        let version = env!("CARGO_PKG_VERSION");
        write!(
            f,
            "</main>\n<footer><p>Made by gpuvitals {version}. Times are seconds after the first row.</p></footer>\n"
        )?;
        f.write_str("</body>\n</html>\n")
    }
}
