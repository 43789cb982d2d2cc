//! Columnar answers for charts.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use utoipa::ToSchema;

/// Values by step of time.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "times": [1_795_190_400_000_i64, 1_795_190_410_000_i64, 1_795_190_420_000_i64], "step_ms": 10_000,
    "series": [{
        "metric": "power_w", "unit": "W", "aggregate": "mean", "group": "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21",
        "gpu": "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21", "name": "sim-node-01 / GPU 0", "hostname": "sim-node-01",
        "labels": {"gpu": "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21"}, "values": [612.4, null, 598.1]
    }]
}))]
pub(crate) struct QueryAnswer<'a> {
    /// Start of each step, milliseconds UTC since 1970; multiples of the step without gaps.
    pub(crate) times: Vec<i64>,
    /// Width of a step in milliseconds.
    pub(crate) step_ms: i64,
    /// Width in milliseconds of the steps of the coarsest rollup that was read; missing if only rows were read. Where it is
    /// wider than `step_ms`, rows have been deleted: a value stands at the start of its rollup's step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(crate) rollup_ms: Option<i64>,
    /// One for each metric, aggregate and group that has a value, by group; with `top` or `bottom` by rank.
    pub(crate) series: Vec<Series<'a>>,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: &'a [String],
}

/// One line of a chart.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Series<'a> {
    /// The column whose values these are.
    pub(crate) metric: &'static str,
    /// Unit of the values; empty for plain numbers and counts.
    #[schema(value_type = String)]
    pub(crate) unit: Cow<'static, str>,
    /// The aggregate of each step.
    #[schema(value_type = String, example = "mean")]
    pub(crate) aggregate: Cow<'static, str>,
    /// Name of the group: the texts of its columns with commas between them, such as a GPU's id or a model, or `all`.
    #[schema(value_type = String)]
    pub(crate) group: Cow<'a, str>,
    /// The text of the group in each column of `group_by`; `null` where its rows have none.
    #[schema(value_type = std::collections::BTreeMap<String, Option<String>>)]
    pub(crate) labels: GroupLabels<'a>,
    /// The GPU, if each GPU has its own series.
    pub(crate) gpu: Option<&'a str>,
    /// The name of that GPU for people; missing where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(crate) name: Option<String>,
    /// The host, if the series is of one host or GPU.
    pub(crate) hostname: Option<&'a str>,
    /// `true` if values of a simulated GPU are among them; missing if all were measured.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub(crate) simulated: bool,
    /// One value a step; `null` if nothing was read.
    #[schema(value_type = Vec<Option<f64>>)]
    pub(crate) values: Values<'a>,
}

/// Columns and texts of a group.
#[derive(Debug)]
pub(crate) struct GroupLabels<'a>(pub(crate) Vec<(&'static str, Option<&'a str>)>);

impl Serialize for GroupLabels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// Values in the precision their column has, so that 85.3 does not become 85.30000305175781.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Values<'a> {
    /// One a step.
    pub(crate) of_steps: &'a [Option<f64>],
    /// Whether they come from 32-bit floats.
    pub(crate) single: bool,
}

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.single {
            #[expect(clippy::cast_possible_truncation, reason = "they were 32-bit floats")]
            return serializer.collect_seq(self.of_steps.iter().map(|value| value.map(|v| v as f32)));
        }
        serializer.collect_seq(self.of_steps)
    }
}
