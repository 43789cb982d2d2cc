//! `gpuvitals jobs waste`: what was held for nothing, by user or namespace, for people who decide: as a table, a page or CSV.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use gpuvitals_core::quantity::counted;
use gpuvitals_core::{clock, time};
use serde_json::Value;

use super::range::{RangeFlags, range};
use crate::failure::{Exit, Failure};
use crate::query::flags::Server;
use crate::replacing::Replacing;
use crate::table::{after_a_name, is_cut, narrowed, text, width, with_numbers};
use crate::{query, terminal};

/// Examples for the help.
pub(super) const EXAMPLES: &str = "Examples:
  gpuvitals jobs waste --last 7d
  gpuvitals jobs waste --last 7d --by namespace --csv
  gpuvitals jobs waste --last 31d --html waste.html

WASTED is the time whose utilisation is known, less time times utilisation; its % is of the time held. IDLE is the part of it in which the GPU did nothing at all. By user all that hooks told in the range is read: of more than three million jobs
the question is refused, ask for fewer days. Docs: docs/jobs.md.";

/// Most lines: of more the rest is in the sums alone.
const LINES_MAX: usize = 10_000;

/// `gpuvitals jobs waste`
#[derive(Debug, Args)]
pub(crate) struct WasteFlags {
    /// How far back from the end: 6h, 7d
    #[arg(long, value_name = "DURATION", default_value = "7d")]
    pub last: String,
    /// End (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
    /// Only what was used on these hosts
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub host: Vec<String>,
    /// Put together by this
    #[arg(long, value_name = "WHAT", default_value = "user", value_parser = ["user", "namespace"])]
    pub by: String,
    /// Write a page to this file
    #[arg(long, value_name = "FILE", conflicts_with = "csv")]
    pub html: Option<PathBuf>,
    /// Of that page
    #[command(flatten)]
    pub replacing: Replacing,
    /// Print CSV
    #[arg(long)]
    pub csv: bool,
}

/// Prints or writes what was held for nothing.
///
/// # Errors
/// If two forms are asked for, the file is there already or cannot be written, or the server cannot be reached or refuses the question.
pub(crate) fn run(asked: &WasteFlags, server: &Server) -> Result<(), Failure> {
    // `--json` is a flag of all that `jobs` can ask: these do not know it as one that they conflict with.
    if server.json && (asked.csv || asked.html.is_some()) {
        return Err(Failure::new(Exit::Usage, "--json is another form than --csv and --html: leave it out"));
    }
    asked.html.as_deref().map_or(Ok(()), |file| asked.replacing.check(file))?;
    let answer = query::ask(server, &path(asked)?)?;
    if let Some(file) = &asked.html {
        return asked.replacing.write(file, &page(&answer, &asked.by));
    }
    let shown = if server.json {
        format!("{answer:#}\n")
    } else if asked.csv {
        csv(&answer, &asked.by)
    } else {
        table(&answer, &asked.by, width())
    };
    terminal::print(&shown)
}

fn path(asked: &WasteFlags) -> Result<String, Failure> {
    let of_when = range(&RangeFlags { last: asked.last.clone(), end: asked.end.clone() })?;
    let hosts = query::some("host", &asked.host);
    let by = &asked.by;
    Ok(format!("/api/v1/jobs?{of_when}&by={by}&sort=-wasted_gpu_hours&limit={LINES_MAX}{hosts}"))
}

/// Numbers of a line, in the order of the API: heads for people and for programs, and whether the column is left out where no line has a
/// value.
pub(super) const NUMBERS: [(&str, &str, bool); 8] = [
    ("GPU HOURS", "held_gpu_hours", false),
    ("BUSY", "busy_gpu_hours", false),
    ("WASTED", "wasted_gpu_hours", false),
    ("IDLE", "idle_gpu_hours", true),
    ("KWH", "energy_kwh", false),
    ("IDLE KWH", "idle_energy_kwh", true),
    ("COST", "cost", true),
    ("WASTED COST", "wasted_cost", true),
];

/// A user or namespace.
struct WasteLine<'a> {
    /// None: what was held without one.
    name: Option<&'a str>,
    gpus: u64,
    sums: &'a Value,
}

impl WasteLine<'_> {
    fn number(&self, field: &str) -> Option<f64> {
        self.sums.get(field).and_then(Value::as_f64)
    }

    /// Wasted hours of those held, %.
    fn wasted_pct(&self) -> Option<f64> {
        let held = self.number("held_gpu_hours").filter(|held| *held > 0.0)?;
        Some(100.0 * self.number("wasted_gpu_hours")? / held)
    }
}

/// The lines of an answer, whoever wasted most first.
fn lines(answer: &Value) -> Vec<WasteLine<'_>> {
    let jobs = answer.get("jobs").and_then(Value::as_array).into_iter().flatten();
    let line = |sums| WasteLine {
        name: Value::get(sums, "group").and_then(Value::as_str),
        gpus: Value::get(sums, "gpus").and_then(Value::as_u64).unwrap_or_default(),
        sums,
    };
    jobs.map(line).collect()
}

/// The line of all together.
fn whole(answer: &Value) -> WasteLine<'_> {
    WasteLine { name: None, gpus: 0, sums: answer.get("whole").unwrap_or(&Value::Null) }
}

/// The columns that these lines have.
fn columns(lines: &[WasteLine<'_>]) -> Vec<(&'static str, &'static str)> {
    let is_known = |field: &str| lines.iter().any(|line| line.number(field).is_some());
    let shown = NUMBERS.into_iter().filter(|&(_, field, is_optional)| !is_optional || is_known(field));
    shown.map(|(head, field, _)| (head, field)).collect()
}

fn amount(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.2}"))
}

fn percent(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.0} %"))
}

/// What is said below the lines.
fn remarks(answer: &Value, by: &str) -> Vec<String> {
    let number = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or_default();
    let nobody = answer.pointer("/nobody/held_gpu_hours").and_then(Value::as_f64);
    let mut remarks = vec![format!("Nobody had {} GPU hours.", amount(nobody))];
    if by == "user" {
        remarks.push(
            "The user is known of batch jobs that a hook told of, and of processes without a job.".to_owned(),
        );
    }
    let more = number("total").saturating_sub(LINES_MAX as u64);
    if more > 0 {
        remarks.push(format!("{more} more are in the sums alone."));
    }
    let by_rows = number("gpus_by_rows");
    if by_rows > 0 {
        remarks.push(format!("By rows: {}, of which no agent makes sums.", counted(by_rows, "GPU")));
    }
    if answer.get("interpolated") == Some(&Value::Bool(true)) {
        remarks.push(
            "Of an hour in which the range begins or ends, a part is taken that is as long.".to_owned(),
        );
    }
    remarks
}

/// For a terminal. A narrow one has the first columns.
fn table(answer: &Value, by: &str, width: Option<usize>) -> String {
    let lines = lines(answer);
    let columns = columns(&lines);
    let heads = [by.to_uppercase(), "GPUS".to_owned()].into_iter();
    let heads = heads.chain(columns.iter().map(|(head, _)| (*head).to_owned()));
    let mut rows: Vec<Vec<String>> = vec![heads.chain(["WASTED %".to_owned()]).collect()];
    let numbers = |line: &WasteLine<'_>| -> Vec<String> {
        let numbers = columns.iter().map(|(_, field)| amount(line.number(field)));
        numbers.chain([percent(line.wasted_pct())]).collect()
    };
    for line in &lines {
        let name = text(&line.name.map_or(Value::Null, Value::from));
        rows.push([vec![name, line.gpus.to_string()], numbers(line)].concat());
    }
    rows.push([vec!["all together".to_owned(), String::new()], numbers(&whole(answer))].concat());
    let whole = with_numbers(&rows, 1);
    let (shown, without) = if is_cut(&whole, width) {
        let yields = after_a_name(rows.first().map_or(0, Vec::len));
        narrowed(rows, &yields, width)
    } else {
        (whole, String::new())
    };
    shown + &remarks(answer, by).join(" ") + "\n" + &without
}

/// For spreadsheets: a head, and a line for each; what is not known is empty.
fn csv(answer: &Value, by: &str) -> String {
    let fields = NUMBERS.map(|(_, field, _)| field);
    let mut out = format!("{by},gpus,{},wasted_pct\n", fields.join(","));
    for line in lines(answer) {
        let numbers = fields.iter().map(|field| line.number(field)).chain([line.wasted_pct()]);
        let cells: Vec<String> =
            numbers.map(|number| number.map_or_else(String::new, |number| format!("{number:.4}"))).collect();
        let name = cell(line.name.unwrap_or_default());
        let _infallible = writeln!(out, "{name},{},{}", line.gpus, cells.join(","));
    }
    out
}

/// A text in CSV. One that a spreadsheet would take for a formula is made none.
fn cell(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    let is_plain = !text.contains([',', '"', '\n', '\r']);
    if is_plain { format!("{guard}{text}") } else { format!("\"{guard}{}\"", text.replace('"', "\"\"")) }
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1c2733;background:#fff}\
table{border-collapse:collapse;width:100%}th,td{padding:.35rem .6rem;text-align:right;border-bottom:1px solid #dde3ea}\
th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere}tfoot td{font-weight:600}\
.bar{width:9rem}.bar i{display:block;height:.7rem;background:#c0392b}\
@media(prefers-color-scheme:dark){body{color:#dce3ea;background:#12181f}th,td{border-color:#2b3642}}";

/// A page of its own, without scripts and without anything from elsewhere.
fn page(answer: &Value, by: &str) -> String {
    let lines = lines(answer);
    let columns = columns(&lines);
    let moment = |name: &str| markup(answer.get(name).and_then(Value::as_str).unwrap_or("-"));
    let title = format!("GPU hours held for nothing, by {by}");
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n<p>From {} to {}, as of {}.</p>\n\
         <table><thead><tr><th>{by}</th><th>GPUs</th>",
        moment("start"),
        moment("end"),
        time::format(clock::now_ns()),
    );
    for (head, _) in &columns {
        let _infallible = write!(out, "<th>{}</th>", head.to_lowercase());
    }
    out.push_str("<th>wasted %</th><th class=\"bar\"></th></tr></thead>\n<tbody>\n");
    let most = lines.iter().filter_map(|line| line.number("wasted_gpu_hours")).fold(0.0, f64::max);
    for line in &lines {
        let name = line.name.map_or_else(|| format!("<em>without a {by}</em>"), markup);
        push_line(&mut out, (&name, Some(line.gpus)), line, &columns);
        let share = line
            .number("wasted_gpu_hours")
            .filter(|_| most > 0.0)
            .map_or(0.0, |wasted| 100.0 * wasted / most);
        let _infallible =
            writeln!(out, "<td class=\"bar\"><i style=\"width:{:.1}%\"></i></td></tr>", share.max(0.0));
    }
    out.push_str("</tbody>\n<tfoot>\n");
    push_line(&mut out, ("all together", None), &whole(answer), &columns);
    out.push_str("<td class=\"bar\"></td></tr>\n</tfoot></table>\n");
    for remark in remarks(answer, by) {
        let _infallible = writeln!(out, "<p>{}</p>", markup(&remark));
    }
    out + "</body></html>\n"
}

/// The beginning of a row of the page: name, GPUs and numbers.
fn push_line(
    out: &mut String,
    (name, gpus): (&str, Option<u64>),
    line: &WasteLine<'_>,
    columns: &[(&'static str, &'static str)],
) {
    let gpus = gpus.map_or_else(String::new, |gpus| gpus.to_string());
    let _infallible = write!(out, "<tr><td>{name}</td><td>{gpus}</td>");
    for (_, field) in columns {
        let _infallible = write!(out, "<td>{}</td>", amount(line.number(field)));
    }
    let _infallible = write!(out, "<td>{}</td>", percent(line.wasted_pct()));
}

/// A text as HTML shows it: names are of users.
fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other if other.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Value {
        let sums = |group: Value, held: f64, wasted: Option<f64>| {
            json!({
                "group": group, "gpus": 8, "held_gpu_hours": held, "wasted_gpu_hours": wasted, "energy_kwh": 1.5,
                "busy_gpu_hours": wasted.map(|wasted| held - wasted), "idle_energy_kwh": null,
            })
        };
        let evil = json!("=cmd|'<script>\",x");
        json!({
            "jobs": [sums(json!("kim"), 100.0, Some(40.0)), sums(evil, 10.0, Some(20.0)), sums(Value::Null, 5.0, None)],
            "whole": {"held_gpu_hours": 115.0, "wasted_gpu_hours": 60.0, "busy_gpu_hours": 50.0, "energy_kwh": 4.5},
            "nobody": {"held_gpu_hours": 7.25}, "total": 3, "interpolated": false,
            "start": "2026-11-13T16:00:00Z", "end": "2026-11-20T16:00:00Z",
        })
    }

    #[test]
    fn a_table_has_a_line_for_each_and_one_of_all() {
        let shown = table(&answer(), "user", None);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["USER", "GPUS", "GPU", "HOURS", "BUSY", "WASTED", "KWH", "WASTED", "%"]);
        assert_eq!(lines[1], ["kim", "8", "100.00", "60.00", "40.00", "1.50", "40", "%"]);
        assert_eq!(lines[3], ["-", "8", "5.00", "-", "-", "1.50", "-"], "what is not known is no 0");
        assert_eq!(lines[4], ["all", "together", "115.00", "50.00", "60.00", "4.50", "52", "%"]);
        assert!(shown.contains("Nobody had 7.25 GPU hours."), "{shown}");
        let narrow = table(&answer(), "user", Some(50));
        let lines: Vec<&str> = narrow.lines().collect();
        assert!(lines[..5].iter().all(|line| line.chars().count() <= 50), "{narrow}");
        assert!(lines[4].starts_with("all together") && lines[4].ends_with("60.00"), "{narrow}");
        assert!(lines[6].starts_with("… without KWH, WASTED %: ") && lines[5].ends_with('.'), "{narrow}");
    }

    #[test]
    fn what_was_held_and_never_used_stands_beside_what_was_wasted() {
        let mut answer = answer();
        answer["jobs"][0]["idle_gpu_hours"] = json!(32.0);
        let shown = table(&answer, "user", None);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines[0],
            ["USER", "GPUS", "GPU", "HOURS", "BUSY", "WASTED", "IDLE", "KWH", "WASTED", "%"]
        );
        assert_eq!(lines[1], ["kim", "8", "100.00", "60.00", "40.00", "32.00", "1.50", "40", "%"]);
        assert!(page(&answer, "user").contains("<th>idle</th>"));
    }

    #[test]
    fn of_gpus_without_an_agent_it_is_said_how_many_there_are() {
        let mut answer = answer();
        let said = "By rows: 3 GPUs, of which no agent makes sums.".to_owned();
        assert!(!remarks(&answer, "user").contains(&said));
        answer["gpus_by_rows"] = json!(3);
        assert!(remarks(&answer, "user").contains(&said));
    }

    #[test]
    fn csv_has_all_columns_and_no_formulas() {
        let shown = csv(&answer(), "namespace");
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[0],
            "namespace,gpus,held_gpu_hours,busy_gpu_hours,wasted_gpu_hours,idle_gpu_hours,energy_kwh,idle_energy_kwh,cost,wasted_cost,wasted_pct"
        );
        assert_eq!(lines[1], "kim,8,100.0000,60.0000,40.0000,,1.5000,,,,40.0000");
        assert!(lines[2].starts_with("\"'=cmd|'<script>\"\",x\",8,"), "{}", lines[2]);
        assert_eq!(lines[3], ",8,5.0000,,,,1.5000,,,,");
    }

    #[test]
    fn a_page_stands_alone_and_shows_names_as_text() {
        let shown = page(&answer(), "user");
        assert!(shown.starts_with("<!doctype html>\n") && shown.ends_with("</html>\n"), "{shown}");
        assert!(!shown.contains("<script") && !shown.contains("http"), "{shown}");
        assert!(shown.contains("&lt;script&gt;&quot;,x") && shown.contains("without a user"), "{shown}");
        assert!(shown.contains("From 2026-11-13T16:00:00Z to 2026-11-20T16:00:00Z"), "{shown}");
        // The widest bar is that of whoever wasted most.
        assert_eq!(shown.matches("width:100.0%").count(), 1);
    }
}
