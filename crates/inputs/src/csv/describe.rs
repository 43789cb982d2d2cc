//! What a file is taken for, for people and programs: what each column became, and why.

use gpuvitals_core::Table;
use gpuvitals_core::catalogue::MetricId;
use serde::Serialize;

use super::labels;
use super::plan::{Column, CsvForm, Plan, Role};
use super::times::ZoneFrom;

/// What a file is taken for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CsvDescription {
    /// `wide` or `long`.
    pub form: &'static str,
    /// The tool whose names the columns have, if the header gives it away.
    pub dialect: Option<&'static str>,
    /// The zone of times without one; none: each time has its own, or there are no times.
    pub timezone: Option<String>,
    /// Where that zone comes from: `file`, `user`, `machine`; none without times.
    pub timezone_from: Option<&'static str>,
    /// The columns, in their order.
    pub columns: Vec<CsvColumn>,
    /// Of the long form: the names of metrics at the beginning of the file, as columns.
    pub metrics: Vec<CsvColumn>,
    /// A column that tells rows of one GPU and time apart, if there are such rows.
    pub apart: Option<String>,
    /// What was guessed or is left out, in sentences.
    pub remarks: Vec<String>,
}

/// What a column became.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CsvColumn {
    /// Name in the file.
    pub name: String,
    /// `time`, `gpu`, `identity`, `metric`, `metric_name`, `metric_value`, `unit`, `labels`, `own` (kept under its own name)
    /// or `absent`.
    pub role: &'static str,
    /// Column of the table.
    pub column: Option<String>,
    /// Table of the rows.
    pub table: Option<&'static str>,
    /// Unit of the table's column.
    pub unit: Option<&'static str>,
    /// The unit in the file's name of it, if it has one.
    pub file_unit: Option<String>,
    /// Value in the table = value in the file × factor.
    pub factor: Option<f64>,
    /// The GPU that its name has in it.
    pub gpu: Option<String>,
    /// A value of the file.
    pub example: Option<String>,
    /// Why it is not what its name suggests, or not known.
    pub why: Option<String>,
}

/// What a plan takes its file for.
pub(super) fn describe(plan: &Plan) -> CsvDescription {
    let times = plan.times.as_ref();
    let from = times.map(|times| times.zone_from);
    CsvDescription {
        form: if plan.form == CsvForm::Long { "long" } else { "wide" },
        dialect: plan.dialect.map(|dialect| dialect.name),
        timezone: times.filter(|_| from != Some(ZoneFrom::File)).map(|times| times.zone.name().to_owned()),
        timezone_from: from.map(|from| match from {
            ZoneFrom::File => "file",
            ZoneFrom::User => "user",
            ZoneFrom::Machine => "machine",
        }),
        columns: plan.columns.iter().enumerate().map(|(index, it)| column(plan, index, it)).collect(),
        metrics: plan.series.iter().map(|series| column(plan, 0, series)).collect(),
        apart: plan.apart.clone(),
        // How many rows are repeated is known when all are read.
        remarks: plan
            .remarks()
            .filter(|it| Some(*it) != plan.repeats.as_deref())
            .map(str::to_owned)
            .collect(),
    }
}

fn column(plan: &Plan, index: usize, column: &Column) -> CsvColumn {
    let (role, name): (_, Option<String>) = match &column.role {
        _ if index >= plan.fields_min => ("absent", None),
        Role::Nothing => ("absent", None),
        Role::Time => ("time", Some("timestamp_ns".to_owned())),
        Role::Gpu => ("gpu", None),
        Role::Identity(column) => ("identity", Some(column.name().to_owned())),
        Role::Metric(scale) => ("metric", Some(scale.id.metric().column.to_owned())),
        Role::Extra(name) => ("own", Some(name.to_string())),
        Role::MetricName => ("metric_name", None),
        Role::MetricValue => ("metric_value", None),
        Role::Unit => ("unit", None),
        Role::Labels => ("labels", None),
    };
    let scale = if let Role::Metric(scale) = &column.role { Some(scale) } else { None };
    let metric = scale.map(|scale: &super::cell::Scale| MetricId::metric(scale.id));
    let unknown = || (role == "own").then(|| "no metric is known by that name".to_owned());
    CsvColumn {
        name: column.name.clone(),
        role,
        column: name,
        table: metric.map(|metric| Table::name(metric.table)),
        unit: metric.map(|metric| metric.unit.as_str()).filter(|unit| !unit.is_empty()),
        file_unit: column.unit.clone(),
        factor: scale.map(super::cell::Scale::factor),
        gpu: column.gpu.as_deref().map(|gpu| labels::gpu(gpu).unwrap_or_else(|| gpu.to_owned())),
        example: column.example.clone(),
        why: column.why.clone().or_else(|| column.lost.clone()).or_else(unknown),
    }
}
