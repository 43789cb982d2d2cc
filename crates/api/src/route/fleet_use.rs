//! `/api/v1/analysis/usage`: how much of the fleet was used over time, and by whom.

mod lines;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow_array::{Float64Array, Int64Array, RecordBatch};
use arrow_schema::ArrowError;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_core::batch::TIMESTAMP_COLUMN;
use gpuvitals_core::history::{Fleet, Part, Selector, TimeSteps};
use gpuvitals_core::usage::{GpuUse, HOLDER_COLUMNS, ToldApart, UseQuery};
use gpuvitals_core::{Identity, IdentityColumn};
use serde::Deserialize;
use utoipa::IntoParams;

use self::lines::Line;
use super::answered::Answered;
use super::gpus::Label;
use super::telemetry;
use super::usage::{USE_REUSED_NS, energy_of, idle_of};
use crate::api::Api;
use crate::ask::{self, Ask, Body, Rendered, View};
use crate::asked::{self, FormatName, Instant, TimeRange, Where, parameters};
use crate::columns::{self, TableColumn};
use crate::config::Limits;
use crate::dto::{FleetUse, FleetUseLine, Moment};
use crate::error::{ApiError, ErrorBody};
use crate::format::{self, Format, TablePage};
use crate::parameter::{self, Asked, given};
use crate::rack::RackPattern;
use crate::selector::{self, Tests};

const MILLISECOND_NS: i64 = 1_000_000;
/// Groups by which a fleet is shared out, the usual one first.
const BY: [&str; 8] = ["namespace", "job", "pod", "node", "rack", "cluster", "model", "vendor"];
/// Groups with a line of their own unless told otherwise, and the most of them.
const TOP: usize = 10;
const TOP_MAX: usize = 1_000;

parameters! {
    /// How many groups have a line of their own.
    LineCount: asked::count(1..=TOP_MAX, Some(TOP));
}

/// What may be asked of `GET /api/v1/analysis/usage`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FleetUseParams {
    /// First instant; an hour before the end unless given.
    #[param(example = "2026-11-20T15:50:00Z")]
    start: Option<Instant>,
    /// Last instant; now unless given.
    #[param(example = "2026-11-20T16:00:00Z")]
    end: Option<Instant>,
    /// Width of a step: `10s`, `1m`, `1h`, `1d`, or a number of seconds. One that gives some 300 steps unless given.
    #[param(pattern = "^ *(?:[0-9]+(?:\\.[0-9]+)? *(?:ms|s|m|min|h|d)?)? *$", example = "1m")]
    step: Option<String>,
    /// Groups: `namespace`, `job`, `pod`, `node`, `rack`, `cluster`, `model` or `vendor`; `namespace` unless given.
    #[param(pattern = "^ *(?:namespace|job|pod|node|rack|cluster|model|vendor)? *$", example = "namespace")]
    by: Option<String>,
    /// Groups with a line of their own: so many, those with the most energy. The others are one line, `rest`.
    #[param(inline, example = 5)]
    top: Option<LineCount>,
    /// Only GPUs and holders that pass these tests, as in `/api/v1/query`. Cluster, node, namespace, pod and job are those of the
    /// time; everything else is what the GPU has now.
    #[serde(rename = "where")]
    #[param(rename = "where", inline, example = "namespace=research")]
    selector: Option<Where>,
    /// `json`, `csv` or `arrow`; without it what `Accept` prefers.
    #[param(inline, example = "csv")]
    format: Option<FormatName>,
}

/// A question for the use of a fleet by step.
#[derive(Debug)]
struct FleetUseAsk {
    range: TimeRange,
    step_ns: Option<i64>,
    by: Label,
    top: usize,
    tests: Tests,
    format: Format,
}

/// The use of the fleet over time, as a whole and by group.
///
/// Each value is a sum over GPUs of what the GPU did on average in the step while it reported, so it does not depend on how often
/// it was sampled, and a GPU without values is in none. A GPU that changes hands within a step counts in each group by its share of
/// the time; the groups and `rest` add up to the whole. Time between two rows belongs to the step of the earlier one, and is held and
/// idle by the rule of `/api/v1/analysis/idle`; hours and energy of a line are those of `/api/v1/analysis/energy` in the same range.
/// Where rows have been deleted and only rollups wider than the step are left, their values stand in the step in which they begin.
#[utoipa::path(
    get, path = "/api/v1/analysis/usage", tag = "analysis", operation_id = "fleetUse", params(FleetUseParams),
    responses(
        (status = 200, description = "The use; as CSV or Arrow a row for each line and step in which a GPU reported.",
         content((FleetUse = "application/json"), (String = "text/csv"), (String = "application/vnd.apache.arrow.stream")),
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the answer would be too large.", body = ErrorBody),
        (status = 404, description = "One of the hosts is unknown, or no values are kept.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn over_time(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<FleetUseParams>,
) -> Answered {
    api.answer(FleetUseAsk::parse(&params, &api.config().limits, &headers)?, &headers).await
}

impl Ask for FleetUseAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let (start_ns, end_ns) = self.range.at(view.now_ns())?;
        let step_ns = self.step_ns.unwrap_or_else(|| parameter::step_for(end_ns - start_ns));
        let steps = TimeSteps::new(start_ns, end_ns, step_ns, 0)?;
        if steps.count > view.limits.steps_max {
            let buckets = i64::try_from(steps.count).unwrap_or(i64::MAX);
            let (max, advice) = (view.limits.steps_max, "take a larger step or a shorter range");
            return Err(ApiError::TooManyValues { buckets, series: 1, max, advice });
        }
        let selector = self.tests.selector().await?;
        let fleet = view.history.fleet().await?;
        telemetry::known_hosts(&fleet, &selector::named_hosts(&selector))?;
        let Part { answer: fleet, missing: of_fleet } = fleet;
        let tested = selector.matchers().iter().map(|matcher| matcher.column);
        let told_apart = ToldApart::by(tested.chain(self.by.column()));
        let query = UseQuery { step_ns: Some(step_ns), told_apart, ..UseQuery::of(start_ns, end_ns) };
        let Part { answer: uses, missing } = view.history.usage(query).await?;
        view.render(ask::joined(of_fleet, missing), move |view, partial| {
            let until_ns = self.range.until_ns(view.now_ns(), USE_REUSED_NS);
            let asked = Asking { by: self.by, fleet: &fleet, racks: view.racks.as_ref(), selector };
            let found = asked.lines(&uses, steps, self.top);
            if self.format != Format::Json {
                let records = &found.table(self.by.name(), steps)?;
                return Body::table(until_ns, self.format, &TablePage { records, next: None, partial });
            }
            let answer = FleetUse {
                times: steps.times().map(|ns| ns.div_euclid(MILLISECOND_NS)).collect(),
                step_ms: step_ns / MILLISECOND_NS,
                start: Moment(start_ns),
                end: Moment(end_ns),
                whole: found.whole,
                groups: found.groups,
                rest: found.rest,
                total: found.total,
                partial: partial.to_vec(),
            };
            Body::until(until_ns, &answer)
        })
        .await
    }
}

impl FleetUseAsk {
    fn parse(params: &FleetUseParams, limits: &Limits, headers: &HeaderMap) -> Result<Self, ApiError> {
        let [usual, ..] = BY;
        let by = given(params.by.as_ref()).unwrap_or(usual);
        let label = Label::by_name(by).filter(|_| BY.contains(&by));
        let (top, most) = (params.top.as_ref().map(|asked| &asked.0), limits.page_max.min(TOP_MAX));
        Ok(Self {
            range: TimeRange::read(params.start.as_ref(), params.end.as_ref())?,
            step_ns: given(params.step.as_ref()).map(parameter::step).transpose()?,
            by: label.ok_or_else(|| ApiError::parameter("by", by, BY.join(", ")))?,
            top: parameter::whole("top", top, 1, most)?.unwrap_or(TOP),
            tests: Tests::parse(params.selector.as_ref())?,
            format: Format::asked(params.format.as_ref(), headers)?,
        })
    }
}

/// What the lines are made by.
struct Asking<'a> {
    by: Label,
    fleet: &'a Fleet,
    racks: Option<&'a RackPattern>,
    selector: Selector,
}

/// The lines of an answer.
struct FleetUseLines {
    whole: FleetUseLine,
    groups: Vec<FleetUseLine>,
    rest: Option<FleetUseLine>,
    /// How many groups there are in all.
    total: usize,
}

impl<'a> Asking<'a> {
    /// The text of a use in a column: that of its holder, or of its GPU now.
    fn text(&self, one: &'a GpuUse, column: IdentityColumn) -> Option<&'a str> {
        if HOLDER_COLUMNS.contains(&column) {
            return one.text(column).map(AsRef::as_ref);
        }
        self.identity(one)?.get(column)
    }

    fn identity(&self, one: &GpuUse) -> Option<&'a Identity> {
        self.fleet.get(&one.gpu).map(|gpu| &gpu.identity)
    }

    fn lines(&self, uses: &'a [GpuUse], steps: TimeSteps, top: usize) -> FleetUseLines {
        let mut groups: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
        for (place, one) in uses.iter().enumerate() {
            if self.selector.selects(|column| self.text(one, column)) {
                let name = self.by.text(|column| self.text(one, column), self.racks);
                groups.entry(name).or_default().push(place);
            }
        }
        let of = |places: &[usize]| places.iter().filter_map(|place| uses.get(*place)).collect::<Vec<_>>();
        let mut ranked: Vec<(f64, Option<&str>, Vec<usize>)> = groups
            .into_iter()
            .map(|(name, places)| (energy_of(None, &of(&places)).energy_kwh.unwrap_or(-1.0), name, places))
            .collect();
        ranked.sort_by(|one, other| other.0.total_cmp(&one.0));
        let total = ranked.len();
        let mut line_of: Vec<Option<usize>> = vec![None; uses.len()];
        let mut parts: Vec<(Option<String>, Vec<usize>)> = Vec::new();
        for (rank, (_, name, places)) in ranked.into_iter().enumerate() {
            let line = rank.min(top);
            for place in &places {
                line_of.get_mut(*place).into_iter().for_each(|own| *own = Some(line));
            }
            match parts.get_mut(line) {
                Some((_, rest)) => rest.extend(places),
                None => parts.push((name.filter(|_| rank < top).map(str::to_owned), places)),
            }
        }
        let (whole, lines) = lines::of(uses, steps, &line_of, parts.len());
        let all: Vec<usize> = parts.iter().flat_map(|(_, places)| places.iter().copied()).collect();
        let mut shown: Vec<FleetUseLine> = parts
            .into_iter()
            .zip(lines)
            .map(|((name, places), line)| self.show(name, &of(&places), &line))
            .collect();
        let rest = if total > top { shown.pop() } else { None };
        FleetUseLines { whole: self.show(None, &of(&all), &whole), groups: shown, rest, total }
    }

    fn show(&self, group: Option<String>, uses: &[&GpuUse], line: &Line<'_>) -> FleetUseLine {
        let held: Vec<&GpuUse> = uses.iter().copied().filter(|one| one.is_held()).collect();
        let (energy, idle) = (energy_of(group, uses), idle_of(None, &held, None));
        // Nobody held one of them, which is known.
        let nobodys =
            |hours: Option<f64>| hours.or((held.is_empty() && energy.gpu_hours.is_some()).then_some(0.0));
        let keys: HashSet<&Arc<str>> = uses.iter().map(|one| &one.gpu).collect();
        let is_simulated =
            |key: &Arc<str>| self.fleet.get(key).is_some_and(|gpu| gpu.identity.is_simulated());
        FleetUseLine {
            simulated: keys.into_iter().any(is_simulated),
            gpus: line.gpus(),
            held_gpus: line.held(),
            idle_gpus: line.idle(),
            utilization_pct: line.utilization(),
            power_w: line.power(),
            power_gpus: line.with_power(),
            energy_kwh: energy.energy_kwh,
            gpu_hours: energy.gpu_hours,
            busy_gpu_hours: energy.busy_gpu_hours,
            held_gpu_hours: nobodys(idle.held_gpu_hours),
            idle_gpu_hours: nobodys(idle.idle_gpu_hours),
            gpus_seen: energy.gpus,
            group: energy.group,
        }
    }
}

impl FleetUseLines {
    /// A row for each line and step in which a GPU reported.
    fn table(&self, by: &'static str, steps: TimeSteps) -> Result<RecordBatch, ArrowError> {
        let lines: Vec<(&str, &FleetUseLine)> = std::iter::once(("whole", &self.whole))
            .chain(self.groups.iter().map(|line| ("group", line)))
            .chain(self.rest.iter().map(|line| ("rest", line)))
            .collect();
        let reports = |line: &FleetUseLine, step: usize| line.gpus.get(step).copied().flatten().is_some();
        let rows: Vec<(&str, &FleetUseLine, usize)> = lines
            .into_iter()
            .flat_map(|(kind, line)| (0..steps.count).map(move |step| (kind, line, step)))
            .filter(|(_, line, step)| reports(line, *step))
            .collect();
        let times: Int64Array = rows.iter().map(|(_, _, step)| Some(steps.time(*step))).collect();
        let kinds = rows.iter().map(|(kind, ..)| Some(*kind));
        let groups = rows.iter().map(|(_, line, _)| line.group.as_deref());
        let mut columns = vec![
            TableColumn::of(TIMESTAMP_COLUMN, format::START, Arc::new(times)),
            TableColumn::texts(
                "line",
                "whole, group, or rest: the groups without a line of their own.",
                kinds,
            ),
            TableColumn::texts(by, "", groups),
        ];
        for (name, unit, help, values) in FleetUseLine::MEASURES {
            let values: Float64Array =
                rows.iter().map(|(_, line, step)| values(line).get(*step).copied().flatten()).collect();
            columns.push(TableColumn::measured(name, unit.into(), help, Arc::new(values)));
        }
        columns::table(columns)
    }
}
