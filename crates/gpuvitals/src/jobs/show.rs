//! Which job or pod is asked for, and of when; and its steps.

use clap::Args;
use gpuvitals_core::quantity::counted;
use serde_json::Value;

use super::range::{RangeFlags, range};
use crate::failure::Failure;
use crate::percent::escaped;
use crate::table::{after_a_name, instant, narrowed, number, text};

/// `gpuvitals jobs show`
#[derive(Debug, Args)]
pub(crate) struct ShowFlags {
    /// Holder as the list names it, or the id of a batch job, or its place in an array (4719_1)
    pub id: String,
    /// Of when
    #[command(flatten)]
    pub range: RangeFlags,
    /// The cluster, where several have a job or pod of this name
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,
}

/// The path of the question.
///
/// # Errors
/// If an end of the range is none.
pub(super) fn show_path(asked: &ShowFlags) -> Result<String, Failure> {
    let cluster = asked.cluster.as_ref().map_or(String::new(), |name| format!("&cluster={}", escaped(name)));
    Ok(format!("/api/v1/jobs/{}?{}{cluster}", escaped(&asked.id), range(&asked.range)?))
}

/// Heads and fields of what a job used of the GPUs of a step.
const USED: [(&str, &str); 4] = [
    ("GPU HOURS", "held_gpu_hours"),
    ("BUSY", "busy_gpu_hours"),
    ("WASTED", "wasted_gpu_hours"),
    ("KWH", "energy_kwh"),
];

/// A line a step, and what they do not say; empty where none is known.
pub(super) fn steps(answer: &Value, width: Option<usize>) -> String {
    let steps: Vec<&Value> = answer["steps"].as_array().into_iter().flatten().collect();
    if steps.is_empty() {
        return String::new();
    }
    let used = USED.map(|(head, _)| head);
    let heads = ["STEP", "GPUS"].into_iter().chain(used).chain(["START", "END", "STATE", "HOSTS"]);
    let mut rows: Vec<Vec<String>> = vec![heads.map(str::to_owned).collect()];
    for step in &steps {
        let hosts: Vec<&str> =
            step["hosts"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut row = vec![text(&step["step"]), text(&step["gpus"])];
        let used = &step["used"];
        row.extend(USED.map(|(_, field)| number(used[field].as_f64())));
        row.extend([instant(&step["start"]), instant(&step["end"]), text(&step["state"])]);
        row.push(text(&Value::from(hosts.join(","))));
        rows.push(row);
    }
    let yields = after_a_name(rows.first().map_or(0, Vec::len));
    let (table, without) = narrowed(rows, &yields, width);
    let total = answer["steps_total"].as_u64().unwrap_or_default();
    let left_out = if total > steps.len() as u64 {
        format!("{} of {}, those that began last\n", steps.len(), counted(total, "step"))
    } else {
        String::new()
    };
    let is_interpolated = steps.iter().any(|step| step["interpolated"] == true);
    let cut = if is_interpolated {
        "a step that begins or ends within an hour has a part of that hour's sums that is as long; steps at one time on the same GPUs have the \
         same\n"
    } else {
        ""
    };
    format!("\n{table}{left_out}{cut}{without}")
}
