//! Answers as aligned tables.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

use std::fmt::Write as _;

use gpuvitals_core::quantity::counted;
use gpuvitals_core::{MetricId, Table, catalogue};
use serde_json::Value;

use super::flags::QueryWhat;
use crate::table::{Yields, narrowed, text};

/// The answer as a table, for a terminal of this width if there is one.
pub(crate) fn table(what: &QueryWhat, answer: &Value, width: Option<usize>) -> String {
    match what {
        QueryWhat::Gpus { .. } => gpus(answer, width),
        QueryWhat::Hosts { .. } => hosts(answer, width),
        QueryWhat::Gpu { .. } => gpu(answer, width),
        QueryWhat::Range { limit, .. } => range(answer, &group_by(what), *limit, width),
        QueryWhat::Rows { .. } => rows(answer, width),
        QueryWhat::Health { .. } => health(answer, width),
    }
}

fn gpus(answer: &Value, width: Option<usize>) -> String {
    let columns = ["utilization_pct", "power_w", "temperature_c", "memory_used_mb"];
    let has_reason = list(answer, "gpus").any(|gpu| gpu["judgement_reason"].is_string());
    let mut head = vec!["HOST".to_owned(), "GPU".to_owned(), "JUDGEMENT".to_owned()];
    head.extend(columns.map(heading));
    head.extend(has_reason.then(|| "REASON".to_owned()));
    head.extend(["MODEL", "LAST SEEN", "ID"].map(str::to_owned));
    let mut rows = vec![head];
    for gpu in list(answer, "gpus") {
        let mut row = vec![text(&gpu["hostname"]), text(&gpu["index"]), judgement(gpu)];
        row.extend(columns.map(|column| text(&gpu["metrics"][column])));
        row.extend(has_reason.then(|| text(&gpu["judgement_reason"])));
        row.extend([text(&gpu["model"]), text(&gpu["last_seen"]), text(&gpu["id"])]);
        rows.push(row);
    }
    let whole = |rank| (rank, Yields::Place);
    let mut yields: Vec<(u8, Yields)> = [0, 1, 2, 4, 5, 6, 7].map(whole).into();
    yields.extend(has_reason.then_some((3, Yields::Ends(16))));
    yields.extend([(8, Yields::Ends(12)), whole(9), whole(10)]);
    let (table, remark) = narrowed(rows, &yields, width);
    table + &footer(answer, "GPU") + &remark
}

/// Whether a range has no value of anything.
pub(crate) fn has_no_values(answer: &Value) -> bool {
    list(answer, "series").flat_map(|series| list(series, "values")).all(Value::is_null)
}

/// Whether none of the GPUs or hosts of a list reports any more, nor the one GPU that is shown.
pub(crate) fn is_over(answer: &Value) -> bool {
    let listed = list(answer, "gpus").chain(list(answer, "hosts")).chain(answer.get("gpu"));
    let mut judgements = listed.map(|one| &one["judgement"]).peekable();
    judgements.peek().is_some() && judgements.all(|word| *word == "stale" || *word == "lost")
}

/// How a GPU or host does.
fn judgement(one: &Value) -> String {
    let simulated = if one["simulated"] == true { " (simulated)" } else { "" };
    format!("{}{simulated}", text(&one["judgement"]))
}

fn hosts(answer: &Value, width: Option<usize>) -> String {
    let mut rows = vec![["HOST", "GPUS", "JUDGEMENT", "LAST SEEN"].map(str::to_owned).to_vec()];
    rows.extend(list(answer, "hosts").map(|host| {
        vec![text(&host["hostname"]), text(&host["gpu_count"]), judgement(host), text(&host["last_seen"])]
    }));
    let yields = [(0, Yields::Place), (2, Yields::Place), (1, Yields::Place), (3, Yields::Place)];
    let (table, without) = narrowed(rows, &yields, width);
    table + &footer(answer, "host") + &without
}

/// Names and values of a GPU. A narrow terminal has the ends of long names and texts cut before it leaves out when they came.
fn gpu(answer: &Value, width: Option<usize>) -> String {
    let mut rows = vec![["NAME", "VALUE", "UNIT", "TIME"].map(str::to_owned).to_vec()];
    for (name, value) in answer["gpu"].as_object().into_iter().flatten().filter(|(_, v)| !v.is_null()) {
        if !value.is_object() {
            rows.push(vec![name.clone(), text(value), String::new(), String::new()]);
        }
    }
    rows.push(vec![String::new(); 4]);
    for (name, latest) in answer["latest"].as_object().into_iter().flatten() {
        let metric = catalogue::by_column(name).map(MetricId::metric);
        let names = metric
            .zip(latest["value"].as_i64())
            .map_or(String::new(), |(metric, bits)| metric.names_of(bits));
        let value = if names.is_empty() { text(&latest["value"]) } else { names };
        let unit = metric.map_or(String::new(), |metric| metric.unit.to_string());
        rows.push(vec![name.clone(), value, unit, text(&latest["timestamp"])]);
    }
    let yields =
        [(1, Yields::Ends(TEXT_LEN)), (0, Yields::Ends(VALUE_LEN)), (2, Yields::Place), (3, Yields::Place)];
    let (table, without) = narrowed(rows, &yields, width);
    table + &without
}

/// The columns that tell the series of a range apart.
pub(crate) fn group_by(what: &QueryWhat) -> Vec<&str> {
    match what {
        QueryWhat::Range { group_by, .. } if !group_by.is_empty() => {
            group_by.iter().map(String::as_str).collect()
        }
        QueryWhat::Range { table, .. } if table == Table::SystemEvents.name() => vec!["node"],
        _ => vec!["gpu"],
    }
}

/// The rows, with a column for each that one of them has, the kind of an event first. A narrow terminal has the first of these, whole, and
/// of the GPU as much as tells it from others.
fn rows(answer: &Value, width: Option<usize>) -> String {
    let mut columns: Vec<&String> = Vec::new();
    for entry in list(answer, "data") {
        for (name, value) in entry["metrics"].as_object().into_iter().flatten() {
            if !value.is_null() && !columns.contains(&name) {
                columns.push(name);
            }
        }
    }
    columns.sort_by_key(|column| *column != "kind");
    let mut table = vec![["TIME", "HOST", "GPU"].map(str::to_owned).to_vec()];
    table[0].extend(columns.iter().map(|column| heading(column)));
    for entry in list(answer, "data") {
        let host = if entry["simulated"] == true { " (simulated)" } else { "" };
        let host = text(&entry["hostname"]) + host;
        // A row of a host names that instead of a GPU.
        let gpu = if entry["gpu_id"] == entry["hostname"] { String::new() } else { text(&entry["gpu_id"]) };
        let mut row = vec![text(&entry["timestamp"]), host, gpu];
        row.extend(columns.iter().map(|column| text(&entry["metrics"][column.as_str()])));
        table.push(row);
    }
    if table.len() == 1 {
        return "no such rows\n".to_owned() + &lacks(answer);
    }
    let is_text = |column: &str| list(answer, "data").any(|entry| entry["metrics"][column].is_string());
    let mut yields = vec![(0, Yields::Place), (0, Yields::Place), (0, Yields::Middles(ID_LEN))];
    yields.extend(columns.iter().enumerate().map(|(at, column)| {
        let rank = u8::try_from(at + 1).unwrap_or(u8::MAX);
        (rank, if is_text(column) { Yields::Ends(TEXT_LEN) } else { Yields::Place })
    }));
    let (shown, without) = narrowed(table, &yields, width);
    shown + &footer(answer, "row") + &lacks(answer) + &without
}

/// Characters that a narrow terminal leaves of a text.
const TEXT_LEN: usize = 16;
/// The same of a value of a GPU: no number is longer.
const VALUE_LEN: usize = 20;
/// The same of an id.
const ID_LEN: usize = 12;
/// The same of a name that tells series apart.
const GROUP_LEN: usize = 16;

/// What the server could not read, a line each.
fn lacks(answer: &Value) -> String {
    list(answer, "partial")
        .flat_map(|reason| ["not whole: ".to_owned(), text(reason), "\n".to_owned()])
        .collect()
}

/// So many rows, one for each group and step, with a column for each metric and aggregate. A narrow terminal has the last name
/// of the group and the first values before all else.
fn range(answer: &Value, group_by: &[&str], limit: usize, width: Option<usize>) -> String {
    let (mut measured, mut groups) = (Vec::new(), Vec::new());
    let what = |series: &Value| (series["metric"].clone(), series["aggregate"].clone());
    let unit = |wanted: &(Value, Value)| {
        let series = list(answer, "series").find(|series| what(series) == *wanted);
        series.and_then(|series| series["unit"].as_str()).unwrap_or_default()
    };
    for series in list(answer, "series") {
        push_new(&mut measured, what(series));
        push_new(&mut groups, &series["labels"]);
    }
    let is_plain =
        measured.iter().all(|(_, aggregate)| Some(aggregate) == measured.first().map(|first| &first.1));
    let mut head = vec!["TIME".to_owned()];
    let mut yields = vec![(0, Yields::Place)];
    yields.extend((0..measured.len()).map(|at| (rank_of_value(at), Yields::Place)));
    head.extend(measured.iter().map(|wanted| {
        let name = heading_in(wanted.0.as_str().unwrap_or_default(), unit(wanted));
        if is_plain { name } else { format!("{name} {}", text(&wanted.1)) }
    }));
    let columns: Vec<&str> = group_by.iter().copied().filter(|column| *column != "all").collect();
    for (at, column) in columns.iter().enumerate() {
        head.push(column.to_uppercase());
        yields.push((if at + 1 == columns.len() { 1 } else { 3 }, Yields::Middles(GROUP_LEN)));
    }
    // A GPU is shown by its name, which has its host.
    let has_id = columns.contains(&"gpu");
    head.extend(has_id.then(|| "ID".to_owned()));
    yields.extend(has_id.then_some((u8::MAX, Yields::Place)));
    let mut rows = vec![head];
    for group in groups {
        let all: Vec<&Value> = list(answer, "series").filter(|series| series["labels"] == *group).collect();
        let Some(first) = all.first() else { continue };
        for (step, time) in list(answer, "times").enumerate() {
            let of = |wanted: &(Value, Value)| all.iter().find(|series| what(series) == *wanted);
            let values: Vec<_> = measured
                .iter()
                .map(|wanted| of(wanted).map_or(&Value::Null, |it| &it["values"][step]))
                .collect();
            if values.iter().any(|value| !value.is_null()) {
                let mut row = vec![moment(time)];
                row.extend(values.into_iter().map(rounded));
                row.extend(columns.iter().map(|column| match *column {
                    "gpu" => gpu_of(first),
                    column => text(&first["labels"][column]),
                }));
                row.extend(has_id.then(|| text(&first["gpu"])));
                rows.push(row);
            }
        }
    }
    let count = rows.len() - 1;
    if count == 0 {
        return "no values in that range; --last and --end choose another\n".to_owned();
    }
    rows.truncate(limit + 1);
    let (table, without) = narrowed(rows, &yields, width);
    table + &remarks(answer, count, limit) + &without
}

/// What the GPU of a series is called; of a server that does not say it, its id.
fn gpu_of(series: &Value) -> String {
    text(if series["name"].is_string() { &series["name"] } else { &series["gpu"] })
}

/// The rank of a column of values: the first comes before the names but one of its group, the others behind them.
fn rank_of_value(at: usize) -> u8 {
    if at == 0 { 2 } else { u8::try_from(at + 3).unwrap_or(u8::MAX) }
}

/// Remarks below a range: the omitted rows, and the meaning of its values.
fn remarks(answer: &Value, count: usize, limit: usize) -> String {
    let mut lines = String::new();
    if count > limit {
        let _infallible = writeln!(
            lines,
            "… {limit} of {count} rows; --limit {count} shows all, a longer --step or --group-by node makes fewer"
        );
    }
    if list(answer, "series").any(|series| series["simulated"] == true) {
        lines.push_str("values of simulated GPUs are among them\n");
    }
    lines + &lacks(answer)
}

fn push_new<T: PartialEq>(values: &mut Vec<T>, value: T) {
    if !values.contains(&value) {
        values.push(value);
    }
}

fn health(answer: &Value, width: Option<usize>) -> String {
    let part = |name: &str, value: &Value| {
        vec![name.to_owned(), text(&value["status"]), text(&value["since"]), text(&value["reason"])]
    };
    let head = ["PART", "STATUS", "SINCE", "REASON"].map(str::to_owned).to_vec();
    let mut rows = vec![head, part("gateway", answer)];
    for name in ["collector", "queue", "store"] {
        if answer[name].is_object() {
            rows.push(part(name, &answer[name]));
        }
    }
    let yields = [(0, Yields::Place), (0, Yields::Place), (2, Yields::Place), (1, Yields::Ends(TEXT_LEN))];
    let (table, without) = narrowed(rows, &yields, width);
    table + &without
}

fn heading(column: &str) -> String {
    let unit = catalogue::by_column(column).map(|id| id.metric().unit.to_string());
    unit.map_or_else(|| column.to_uppercase(), |unit| heading_in(column, &unit))
}

/// The heading of a metric whose values have this unit.
fn heading_in(column: &str, unit: &str) -> String {
    let name = column.rsplit_once('_').map_or(column, |(name, _)| name);
    format!("{} {unit}", name.to_uppercase().replace('_', " ")).trim_end().to_owned()
}

fn list<'a>(answer: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    answer[key].as_array().into_iter().flatten()
}

fn footer(answer: &Value, what: &str) -> String {
    let total = answer["total"].as_u64().map(|total| counted(total, what));
    let more = (answer["pagination"]["has_next"] == true).then(|| "more with --limit".to_owned());
    let parts: Vec<String> = total.into_iter().chain(more).collect();
    if parts.is_empty() { String::new() } else { parts.join(", ") + "\n" }
}

/// Milliseconds since 1970 as a time; what is no such number as it came, marked.
fn moment(time: &Value) -> String {
    match time.as_i64().and_then(|ms| ms.checked_mul(1_000_000)) {
        Some(ns) => gpuvitals_core::time::format(ns),
        None => format!("unreadable time {time}"),
    }
}

fn rounded(value: &Value) -> String {
    value.as_f64().map_or_else(|| text(value), |number| format!("{number:.2}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fleet(gpus: usize) -> Value {
        let series: Vec<Value> = (0..gpus)
            .flat_map(|gpu| {
                ["power_w", "utilization_pct"].map(|metric| {
                    json!({
                        "metric": metric, "aggregate": "mean", "unit": if metric == "power_w" { "W" } else { "%" }, "labels": {"gpu": format!("GPU-{gpu:02}")},
                        "gpu": format!("GPU-{gpu:02}"), "hostname": "node-1", "values": [300.125, null, gpu],
                    })
                })
            })
            .collect();
        json!({"times": [0, 60_000, 120_000], "step_ms": 60_000, "series": series})
    }

    #[test]
    fn a_range_of_many_gpus_has_a_row_for_each_step_and_not_a_column_for_each_gpu() {
        let table = range(&fleet(64), &["gpu"], 1_000, None);
        assert_eq!(table.lines().count(), 1 + 64 * 2);
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        let mut lines = table.lines();
        let heads: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        assert_eq!(heads, ["TIME", "POWER", "W", "UTILIZATION", "%", "GPU", "ID"]);
        let words: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        assert_eq!(words, ["1970-01-01T00:00:00Z", "300.12", "300.12", "GPU-00", "GPU-00"], "it has no name");
        assert!(!table.contains("1970-01-01T00:01:00Z"), "a step without a value has no row");
    }

    #[test]
    fn several_aggregates_have_a_column_each_and_groups_one_for_each_of_their_columns() {
        let series = |aggregate: &str, pod: Value, value: f64| json!({"metric": "energy_mj", "unit": "mJ/s", "aggregate": aggregate, "labels": {"pod": pod, "job": "7"}, "values": [value]});
        let series =
            [series("min", json!("a"), 1.0), series("max", json!("a"), 2.0), series("max", Value::Null, 3.0)];
        let table = range(&json!({"times": [0], "series": series}), &["pod", "job"], 10, None);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["TIME", "ENERGY", "mJ/s", "min", "ENERGY", "mJ/s", "max", "POD", "JOB"]);
        assert_eq!(lines[1][1..], ["1.00", "2.00", "a", "7"]);
        assert_eq!(lines[2].last(), Some(&"7"));
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_time_that_cannot_be_read_is_not_shown_as_1970() {
        for time in [json!(null), json!("soon"), json!(1.5), json!(i64::MAX)] {
            let mut answer = fleet(1);
            answer["times"][2] = time.clone();
            let table = range(&answer, &["gpu"], 1_000, None);
            assert!(table.contains(&format!("unreadable time {time}")), "{table}");
            assert_eq!(table.matches("1970").count(), 1, "the first step alone: {table}");
        }
    }

    #[test]
    fn a_count_that_is_missing_is_not_shown_as_0() {
        assert_eq!(footer(&json!({"total": 0}), "GPU"), "0 GPUs\n");
        assert_eq!(footer(&json!({"pagination": {"has_next": true}}), "GPU"), "more with --limit\n");
        assert_eq!(footer(&json!({}), "GPU"), "");
    }

    #[test]
    fn a_long_range_is_cut_and_says_how_to_see_all() {
        let table = range(&fleet(64), &["gpu"], 10, None);
        assert_eq!(table.lines().count(), 1 + 10 + 1);
        assert!(table.contains("10 of 128 rows; --limit 128 shows all"), "{table}");
    }

    #[test]
    fn gpus_are_counted_in_words_and_what_is_wrong_is_said() {
        let gpu = |word: &str, reason: Value| json!({"hostname": "n", "index": 0, "judgement": word, "judgement_reason": reason, "metrics": {"power_w": 71.5}});
        let list = |gpus: Vec<Value>| gpus_of(&gpus);
        let one = list(vec![gpu("idle", Value::Null)]);
        assert!(one.ends_with("\n1 GPU\n") && !one.contains("REASON"), "{one}");
        let two = list(vec![gpu("idle", Value::Null), gpu("critical", "XID 79".into())]);
        assert!(two.ends_with("\n2 GPUs\n") && two.contains("REASON") && two.contains("XID 79"), "{two}");
    }

    #[test]
    fn rows_have_a_column_for_each_value_that_one_of_them_has() {
        let row = |gpu: &str, metrics: Value| json!({"timestamp": "2026-01-01T00:00:00Z", "hostname": "n", "gpu_id": gpu, "metrics": metrics});
        let data = [
            row("GPU-1", json!({"kind": "xid", "code": 79, "detail": null})),
            row("n", json!({"power_w": 71.5, "kind": null})),
        ];
        let answer = json!({"data": data, "total": 2, "partial": ["a file"]});
        let table = rows(&answer, None);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][..3], ["TIME", "HOST", "GPU"]);
        assert!(["KIND", "CODE", "POWER"].iter().all(|head| lines[0].contains(head)), "{table}");
        assert!(!table.contains("DETAIL"), "{table}");
        assert_eq!(lines[2][..2], ["2026-01-01T00:00:00Z", "n"]);
        assert!(table.ends_with("2 rows\nnot whole: a file\n"), "{table}");
        let narrow = rows(&answer, Some(40));
        let (remark, lines) = (narrow.lines().next_back().unwrap(), narrow.lines().take(3));
        assert!(remark.starts_with("… without CODE, POWER W: "), "{narrow}");
        assert!(lines.clone().all(|line| line.chars().count() <= 40), "{narrow}");
        assert!(lines.last().unwrap().starts_with("2026-01-01T00:00:00Z  n "), "{narrow}");
    }

    #[test]
    fn gpus_are_told_apart_in_a_narrow_terminal() {
        let id = |gpu: u32| format!("5130000037ed24a60000010{gpu}");
        let series = |gpu: u32| {
            json!({
                "metric": "power_w", "aggregate": "mean", "unit": "W", "labels": {"gpu": id(gpu)}, "gpu": id(gpu),
                "name": format!("rack-07-node-12.example.org / GPU {gpu}"), "values": [300.125],
            })
        };
        let answer = json!({"times": [0], "series": [series(0), series(1)]});
        let shown = range(&answer, &["gpu"], 10, Some(56));
        let gpus: Vec<&str> = shown.lines().filter_map(|line| line.rsplit("  ").next()).collect();
        assert_eq!(gpus[..3], ["GPU", "rack-07-node….org / GPU 0", "rack-07-node….org / GPU 1"], "{shown}");
        let row = |gpu: u32| {
            let event = json!({"code": 79, "detail": "it has fallen off the bus", "kind": "xid"});
            json!({"timestamp": "2026-01-01T00:00:00.125Z", "hostname": "rack-07-node-12", "gpu_id": id(gpu), "metrics": event})
        };
        let shown = rows(&json!({"data": [row(0), row(1)]}), Some(70));
        let mut lines = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(lines.next().unwrap(), ["TIME", "HOST", "GPU", "KIND", "CODE"], "{shown}");
        let gpus: Vec<&str> = lines.take(2).map(|cells| cells[2]).collect();
        assert_eq!(gpus, ["5130000…0000100", "5130000…0000101"], "{shown}");
    }

    fn gpus_of(list: &[Value]) -> String {
        gpus(&json!({"gpus": list, "total": list.len()}), None)
    }

    #[test]
    fn a_narrow_terminal_has_whole_columns_of_gpus_and_shorter_texts() {
        let gpu = |index: u32, reason: Value| {
            json!({
                "hostname": "rack-07-node-12", "index": index, "judgement": "active", "judgement_reason": reason, "simulated": true,
                "metrics": {"utilization_pct": 97.0, "power_w": 641.5, "temperature_c": 71, "memory_used_mb": 160_612},
                "model": "NVIDIA H100 80GB HBM3", "last_seen": "2026-11-29T01:51:15Z",
                "id": "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21",
            })
        };
        let reason = "XID 63: a row of memory is remapped at the next reset";
        let answer = json!({"gpus": [gpu(3, Value::Null), gpu(10, reason.into())], "total": 2});
        let whole = gpus(&answer, None);
        for width in [40, 56, 72, 80, 100, 120, 160, 200, 300] {
            let text = gpus(&answer, Some(width));
            let (remarks, table): (Vec<&str>, Vec<&str>) =
                text.lines().partition(|line| line.starts_with('…'));
            assert!(table.iter().all(|line| line.chars().count() <= width), "{width}\n{text}");
            for (line, of) in table.iter().zip(whole.lines()) {
                let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
                let cut = cells.map(|cell| cell.trim_end_matches('…')).find(|cell| !of.contains(cell));
                assert_eq!(cut, None, "{width}\n{text}");
            }
            assert_eq!(remarks.is_empty(), width >= 200, "{width}\n{text}");
            assert_eq!(table.concat().contains("REASON"), width >= 72, "{width}\n{text}");
        }
        let narrow = gpus(&answer, Some(72));
        assert!(narrow.contains("without") && narrow.contains("MODEL, LAST SEEN, ID: "), "{narrow}");
        assert!(gpus(&answer, Some(100)).contains("XID 63: a r"), "{narrow}");
    }

    #[test]
    fn a_mask_of_bits_is_shown_by_the_names_of_its_bits() {
        let latest = json!({"throttle_reasons": {"value": 36, "timestamp": "2026-01-01T00:00:00Z"}});
        let table = gpu(&json!({"gpu": {}, "latest": latest}), None);
        assert!(table.contains("software power cap, software thermal slowdown"), "{table}");
    }

    /// In terminals of all widths lines fit, no number is cut, and these texts are there.
    fn check_widths(shown: impl Fn(Option<usize>) -> String, kept: &[&str]) {
        assert_eq!(shown(Some(200)), shown(None));
        for width in 40..200 {
            let text = shown(Some(width));
            let table = || text.lines().filter(|line| !line.starts_with('…'));
            assert!(table().all(|line| line.chars().count() <= width), "{width}\n{text}");
            let mut cut = table().flat_map(str::split_whitespace).filter_map(|word| word.strip_suffix('…'));
            assert!(!cut.any(|word| word.parse::<f64>().is_ok()), "{width}\n{text}");
            assert!(kept.iter().all(|kept| text.contains(kept)), "{width}\n{text}");
        }
    }

    #[test]
    fn narrow_terminals_have_whole_columns_and_a_line_names_the_others() {
        let hosts_of = |width| {
            let host = json!({"hostname": "rack-07-node-12", "gpu_count": 8, "judgement": "active", "last_seen": "2026-11-29T01:51:15Z"});
            hosts(&json!({"hosts": [host], "total": 1}), width)
        };
        check_widths(hosts_of, &["rack-07-node-12", "active", "1 host"]);
        assert!(hosts_of(Some(40)).contains("… without LAST SEEN: a wider terminal"));
        let latest = |value: Value| json!({"value": value, "timestamp": "2026-11-29T01:51:15Z"});
        let values =
            json!({"energy_mj": latest(json!(123_456_789_012_i64)), "power_w": latest(json!(641.5))});
        let id = "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21";
        let gpu_of = |width| gpu(&json!({"gpu": {"id": id}, "latest": values}), width);
        check_widths(gpu_of, &["123456789012", "641.5", "GPU-5c1d0a44-9f0e"]);
        assert!(gpu_of(Some(40)).contains("… without TIME: a wider terminal"), "{}", gpu_of(Some(40)));
        check_widths(|width| range(&fleet(2), &["gpu"], 10, width), &["300.12", "GPU-01"]);
        let narrow = range(&fleet(2), &["gpu"], 10, Some(40));
        assert!(narrow.contains("… without UTILIZATION %, ID: "), "{narrow}");
        let reason = "the disk of the store is nearly full: the hours of its oldest day are deleted";
        let report = json!({"status": "degraded", "since": "2026-11-29T01:51:15Z", "reason": reason});
        check_widths(|width| health(&report, width), &["gateway", "degraded", "the disk of"]);
    }
}
