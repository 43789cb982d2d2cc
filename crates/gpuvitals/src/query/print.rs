//! Answers as aligned tables.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

use gpuvitals_core::catalogue;
use serde_json::Value;

use crate::cli::QueryWhat;
use crate::table::{aligned, text};

/// The answer as a table.
pub(crate) fn table(what: &QueryWhat, answer: &Value) -> String {
    match what {
        QueryWhat::Gpus { .. } => gpus(answer),
        QueryWhat::Hosts => hosts(answer),
        QueryWhat::Gpu { .. } => gpu(answer),
        QueryWhat::Range { .. } => range(answer),
        QueryWhat::Health => health(answer),
    }
}

fn gpus(answer: &Value) -> String {
    let columns = ["utilization_pct", "power_w", "temperature_c", "memory_used_mb"];
    let mut head = vec!["HOST".to_owned(), "GPU".to_owned(), "STATE".to_owned(), "MODEL".to_owned()];
    head.extend(columns.map(heading));
    head.extend(["LAST SEEN".to_owned(), "ID".to_owned()]);
    let mut rows = vec![head];
    for gpu in list(answer, "gpus") {
        let mut row = vec![text(&gpu["hostname"]), text(&gpu["index"]), state(gpu), text(&gpu["model"])];
        row.extend(columns.map(|column| text(&gpu["metrics"][column])));
        row.extend([text(&gpu["last_seen"]), text(&gpu["id"])]);
        rows.push(row);
    }
    aligned(&rows) + &footer(answer, "GPUs")
}

fn state(gpu: &Value) -> String {
    let simulated = if gpu["simulated"] == true { " (simulated)" } else { "" };
    format!("{}{simulated}", text(&gpu["state"]))
}

fn hosts(answer: &Value) -> String {
    let mut rows = vec![vec!["HOST".to_owned(), "GPUS".to_owned()]];
    rows.extend(list(answer, "hosts").map(|host| vec![text(&host["hostname"]), text(&host["gpu_count"])]));
    aligned(&rows) + &footer(answer, "hosts")
}

fn gpu(answer: &Value) -> String {
    let mut rows = Vec::new();
    for (name, value) in answer["gpu"].as_object().into_iter().flatten().filter(|(_, v)| !v.is_null()) {
        if !value.is_object() {
            rows.push(vec![name.clone(), text(value), String::new(), String::new()]);
        }
    }
    rows.push(vec![String::new(); 4]);
    for (name, latest) in answer["latest"].as_object().into_iter().flatten() {
        let unit = catalogue::by_column(name).map_or(String::new(), |id| id.metric().unit.to_string());
        rows.push(vec![name.clone(), text(&latest["value"]), unit, text(&latest["timestamp"])]);
    }
    aligned(&rows)
}

fn range(answer: &Value) -> String {
    let series: Vec<&Value> = list(answer, "series").collect();
    let mut head = vec!["TIME".to_owned()];
    head.extend(series.iter().map(|s| {
        let group = ["gpu", "group"].iter().find_map(|key| s[*key].as_str()).unwrap_or_default();
        format!("{} {group}", text(&s["metric"]))
    }));
    let mut rows = vec![head];
    for (index, time) in list(answer, "times").enumerate() {
        let ns = time.as_i64().unwrap_or(0).saturating_mul(1_000_000);
        let values: Vec<&Value> = series.iter().map(|s| &s["values"][index]).collect();
        if values.iter().any(|v| !v.is_null()) {
            let mut row = vec![gpuvitals_core::time::format(ns)];
            row.extend(values.into_iter().map(rounded));
            rows.push(row);
        }
    }
    if rows.len() == 1 {
        return "no values in that range; --last and --end choose another\n".to_owned();
    }
    aligned(&rows)
}

fn health(answer: &Value) -> String {
    let part = |name: &str, value: &Value| {
        vec![name.to_owned(), text(&value["status"]), text(&value["since"]), text(&value["reason"])]
    };
    let mut rows = vec![part("gateway", answer)];
    for name in ["collector", "queue", "store"] {
        if answer[name].is_object() {
            rows.push(part(name, &answer[name]));
        }
    }
    aligned(&rows)
}

fn heading(column: &str) -> String {
    catalogue::by_column(column).map_or_else(
        || column.to_uppercase(),
        |id| {
            let unit = id.metric().unit.to_string();
            let name = column.rsplit_once('_').map_or(column, |(name, _)| name);
            format!("{} {unit}", name.to_uppercase().replace('_', " "))
        },
    )
}

fn list<'a>(answer: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    answer[key].as_array().into_iter().flatten()
}

fn footer(answer: &Value, what: &str) -> String {
    let more = if answer["pagination"]["has_next"] == true { ", more with --limit" } else { "" };
    format!("{} {what}{more}\n", text(&answer["total"]))
}

fn rounded(value: &Value) -> String {
    value.as_f64().map_or_else(|| text(value), |number| format!("{number:.2}"))
}
