//! Parameters that several paths have. Each is the text that was asked; it says in the document what it may be, and reads itself.

use std::ops::RangeInclusive;
use std::sync::Arc;

use gpuvitals_analysis::judgement::GpuJudgement;
use gpuvitals_core::time::HOUR_NS;
use gpuvitals_core::{Table, batch, catalogue, time};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{KnownFormat, SchemaFormat};

use crate::config::{Limits, PAGE, PAGE_MAX};
use crate::dto::Pagination;
use crate::error::ApiError;
use crate::parameter::{self, WHOLE_MAX};

const TIMES: &str = "RFC 3339 (2026-01-31T12:00:00Z) or seconds, milliseconds or nanoseconds since 1970";
/// As [`crate::cursor`] writes it: a time, `_`, and a text in UTF-8 as hexadecimal bytes.
const CURSOR: &str = "^ *(?:-?(?:[0-9]{1,18}|[0-8][0-9]{18})_(?:[0-7][0-9a-f]|(?:c[2-9a-f]|d[0-9a-f])[89ab][0-9a-f]|e0[ab][0-9a-f][89ab][0-9a-f]|e[1-9a-cef](?:[89ab][0-9a-f]){2}|ed[89][0-9a-f][89ab][0-9a-f]|f0[9ab][0-9a-f](?:[89ab][0-9a-f]){2}|f[1-3](?:[89ab][0-9a-f]){3}|f48[0-9a-f](?:[89ab][0-9a-f]){2})*)? *$";

/// The table that is meant if none is named.
const USUAL_TABLE: Table = Table::GpuEvents;
const OF_GPUS: [Table; 5] =
    [Table::GpuEvents, Table::GpuDetails, Table::GpuProcesses, Table::GpuHealthEvents, Table::GpuUsage];
const WITH_METRICS: [Table; 2] = [Table::GpuEvents, Table::SystemEvents];

/// Makes parameters of what the document says of each.
macro_rules! parameters {
    ($($(#[$doc:meta])* $name:ident: $schema:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, serde::Deserialize)]
        #[serde(transparent)]
        pub(crate) struct $name(pub(crate) String);

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                $schema.into()
            }
        }

        impl utoipa::ToSchema for $name {}
    )+};
}
pub(crate) use parameters;

parameters! {
    /// Most entries of an answer.
    Limit: count(1..=PAGE_MAX, Some(PAGE));
    /// The most of something in an answer, which has all of it otherwise.
    Count: count(1..=PAGE_MAX, None);
    /// Entries to pass over.
    Offset: whole(KnownFormat::Int64, 0..=WHOLE_MAX, Some(0));
    /// Where an answer goes on: `next` of the one before.
    Cursor: text().pattern(Some(CURSOR));
    /// An instant, as RFC 3339 or as a time since 1970.
    Instant: instant();
    /// A table of rows.
    TableName: table(&Table::ALL);
    /// A table with rows of GPUs.
    GpuTable: table(&OF_GPUS);
    /// A table with metrics.
    MetricTable: table(&WITH_METRICS);
    /// Columns of values, between commas.
    Columns: text();
    /// Tests of identity columns, between semicolons.
    Where: text();
    /// Judgements of GPUs, between commas.
    Judgements: text().pattern(Some(among(&GpuJudgement::ALL.map(GpuJudgement::name))));
    /// How an answer is written.
    FormatName: text().pattern(Some("^ *(?:json|csv|arrow)? *$"));
    /// `true` or `false`.
    Flag: ObjectBuilder::new().schema_type(Type::Boolean).default(Some(false.into()));
}

/// A range of time: the hour up to now unless told otherwise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeRange {
    start_ns: Option<i64>,
    end_ns: Option<i64>,
}

impl TimeRange {
    /// What `start` and `end` say.
    ///
    /// # Errors
    /// When one is no instant.
    pub(crate) fn read(start: Option<&Instant>, end: Option<&Instant>) -> Result<Self, ApiError> {
        Ok(Self { start_ns: Instant::read("start", start)?, end_ns: Instant::read("end", end)? })
    }

    /// The first instant and the last, nanoseconds UTC since 1970.
    ///
    /// # Errors
    /// When the end is before the start.
    pub(crate) fn at(self, now_ns: i64) -> Result<(i64, i64), ApiError> {
        let end_ns = self.end_ns.unwrap_or(now_ns);
        let start_ns = self.start_ns.unwrap_or_else(|| end_ns.saturating_sub(HOUR_NS).max(0));
        if end_ns < start_ns { Err(ApiError::EndBeforeStart) } else { Ok((start_ns, end_ns)) }
    }

    /// Until when its answer serves: one up to now for so many nanoseconds, another for as long as its rows stay.
    pub(crate) fn until_ns(self, now_ns: i64, reuse_ns: i64) -> i64 {
        self.end_ns.map_or_else(|| now_ns.saturating_add(reuse_ns), |_| i64::MAX)
    }
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// A pattern of some of these words between commas.
fn among(words: &[&str]) -> String {
    let words = words.join("|");
    format!("^ *(?:(?:{words})? *, *)*(?:{words})? *$")
}

fn whole(format: KnownFormat, range: RangeInclusive<usize>, usual: Option<usize>) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(format)))
        .minimum(Some(*range.start()))
        .maximum(Some(*range.end()))
        .default(usual.map(Into::into))
}

/// A number of things, and the one that is meant if none is given.
pub(crate) fn count(range: RangeInclusive<usize>, usual: Option<usize>) -> ObjectBuilder {
    whole(KnownFormat::Int32, range, usual)
}

/// A number that need not be whole.
pub(crate) fn number() -> ObjectBuilder {
    let format = Some(SchemaFormat::KnownFormat(KnownFormat::Double));
    ObjectBuilder::new().schema_type(Type::Number).format(format)
}

fn table(allowed: &[Table]) -> ObjectBuilder {
    let pattern = format!("^ *(?:{})? *$", names_of(allowed, "|"));
    text().pattern(Some(pattern)).default(Some(USUAL_TABLE.name().into()))
}

fn instant() -> OneOfBuilder {
    let date_time = text().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
    let number = text().pattern(Some(r"^[0-9]+(\.[0-9]{1,18})?$"));
    let empty = text().max_length(Some(0));
    let words = "RFC 3339; seconds, milliseconds, microseconds or nanoseconds since 1970; empty: not given.";
    OneOfBuilder::new().item(date_time).item(number).item(empty).description(Some(words))
}

impl Limit {
    /// A number of entries; the usual one if none is asked for.
    ///
    /// # Errors
    /// If it is no whole number from 1 to the most that is allowed.
    pub(crate) fn read(asked: Option<&Self>, limits: &Limits) -> Result<usize, ApiError> {
        let number = parameter::whole("limit", asked.map(|asked| &asked.0), 1, limits.page_max)?;
        Ok(number.unwrap_or(limits.page.min(limits.page_max)))
    }
}

impl Count {
    /// The number, if one is asked for.
    ///
    /// # Errors
    /// If it is no whole number from 1 to the most that is allowed.
    pub(crate) fn read(
        name: &'static str,
        asked: Option<&Self>,
        limits: &Limits,
    ) -> Result<Option<usize>, ApiError> {
        parameter::whole(name, asked.map(|asked| &asked.0), 1, limits.page_max)
    }
}

impl Offset {
    /// How many entries to pass over.
    ///
    /// # Errors
    /// If it is no whole number.
    pub(crate) fn read(asked: Option<&Self>) -> Result<usize, ApiError> {
        Ok(parameter::whole("offset", asked.map(|asked| &asked.0), 0, WHOLE_MAX)?.unwrap_or(0))
    }
}

impl Instant {
    /// Nanoseconds UTC since 1970. A `+` of a time zone that arrived as a blank is restored.
    ///
    /// # Errors
    /// If it is not a time.
    pub(crate) fn read(name: &'static str, asked: Option<&Self>) -> Result<Option<i64>, ApiError> {
        let Some(Self(text)) = asked.filter(|asked| !asked.0.is_empty()) else { return Ok(None) };
        let parsed = time::parse_bound(text).or_else(|error| match text.rsplit_once(' ') {
            Some((head, zone)) => time::parse_bound(&format!("{head}+{zone}")).map_err(|_| error),
            None => Err(error),
        });
        parsed.map(Some).map_err(|_| ApiError::parameter(name, text, TIMES))
    }
}

impl Instant {
    /// One that has two names; the newer counts where both are given.
    ///
    /// # Errors
    /// If either is not a time.
    pub(crate) fn either(
        (name, asked): (&'static str, Option<&Self>),
        (older, asked_older): (&'static str, Option<&Self>),
    ) -> Result<Option<i64>, ApiError> {
        let older_ns = Self::read(older, asked_older)?;
        Ok(Self::read(name, asked)?.or(older_ns))
    }
}

impl TableName {
    /// The table; that of GPUs if none is asked for.
    ///
    /// # Errors
    /// If there is no such table.
    pub(crate) fn read(asked: Option<&Self>) -> Result<Table, ApiError> {
        table_named(asked.map(|asked| &asked.0))
    }
}

impl GpuTable {
    /// The table; that of GPUs if none is asked for.
    ///
    /// # Errors
    /// If there is no such table, or it has no rows of GPUs.
    pub(crate) fn read(asked: Option<&Self>) -> Result<Table, ApiError> {
        let table = table_named(asked.map(|asked| &asked.0))?;
        let refused = || ApiError::parameter("table", table.name(), names_of(&OF_GPUS, ", "));
        OF_GPUS.contains(&table).then_some(table).ok_or_else(refused)
    }
}

impl MetricTable {
    /// The table; that of GPUs if none is asked for.
    ///
    /// # Errors
    /// If there is no such table, or it has no metrics.
    pub(crate) fn read(asked: Option<&Self>) -> Result<Table, ApiError> {
        let table = table_named(asked.map(|asked| &asked.0))?;
        let allowed = "gpu_events or system_events: these have metrics";
        let refused = || ApiError::parameter("table", table.name(), allowed);
        WITH_METRICS.contains(&table).then_some(table).ok_or_else(refused)
    }
}

fn table_named(text: Option<&String>) -> Result<Table, ApiError> {
    let Some(name) = parameter::given(text) else { return Ok(USUAL_TABLE) };
    Table::by_name(name).ok_or_else(|| ApiError::parameter("table", name, names_of(&Table::ALL, ", ")))
}

fn names_of(tables: &[Table], between: &str) -> String {
    tables.iter().map(|table| table.name()).collect::<Vec<_>>().join(between)
}

impl Columns {
    /// Names of columns in rows, of the catalogue or of unknown columns; none if none is asked for.
    ///
    /// # Errors
    /// If one is neither a column of the table nor a possible name of an unknown one.
    pub(crate) fn read(table: Table, asked: Option<&Self>) -> Result<Option<Vec<String>>, ApiError> {
        let names = parameter::list("metrics", asked.map(|asked| &asked.0))?;
        let is_identity = |name: &str| {
            let is_value = table.column(name).is_some() || catalogue::by_column(name).is_some();
            !is_value && !batch::is_unknown(table, name)
        };
        if let Some(bad) = names.iter().find(|name| name.is_empty() || is_identity(name)) {
            let allowed = "names of columns of values; GET /api/v1/metrics lists them";
            return Err(ApiError::parameter("metrics", bad, allowed));
        }
        Ok((!names.is_empty()).then(|| names.iter().map(ToString::to_string).collect()))
    }
}

impl Judgements {
    /// The judgements; none if none is asked for.
    ///
    /// # Errors
    /// If one is none.
    pub(crate) fn read(asked: Option<&Self>) -> Result<Vec<GpuJudgement>, ApiError> {
        let of = |word: &Arc<str>| {
            let known = GpuJudgement::ALL.into_iter().find(|one| one.name() == word.as_ref());
            known.ok_or_else(|| {
                let allowed =
                    format!("{}, between commas", GpuJudgement::ALL.map(GpuJudgement::name).join(", "));
                ApiError::parameter("judgement", word, allowed)
            })
        };
        parameter::list("judgement", asked.map(|asked| &asked.0))?.iter().map(of).collect()
    }
}

impl Flag {
    /// Whether it is set.
    ///
    /// # Errors
    /// If it is neither `true` nor `false`.
    pub(crate) fn read(name: &'static str, asked: Option<&Self>) -> Result<bool, ApiError> {
        let flag = asked.map(|asked| gpuvitals_listener::parameter::flag(name, &asked.0));
        Ok(flag.transpose()?.unwrap_or(false))
    }
}

/// Which part of a list is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paging {
    limit: usize,
    offset: usize,
}

impl Paging {
    /// By the parameters `limit` and `offset`.
    ///
    /// # Errors
    /// As [`Limit::read`] and [`Offset::read`].
    pub(crate) fn parse(
        limit: Option<&Limit>,
        offset: Option<&Offset>,
        limits: &Limits,
    ) -> Result<Self, ApiError> {
        Ok(Self { limit: Limit::read(limit, limits)?, offset: Offset::read(offset)? })
    }

    /// The part of a list, how many entries that has in all, and which part it is.
    pub(crate) fn cut<T>(self, list: Vec<T>) -> (Vec<T>, usize, Pagination) {
        let total = list.len();
        let part = list.into_iter().skip(self.offset).take(self.limit).collect();
        (part, total, Pagination::of(self.limit, self.offset, total))
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::time::SECOND_NS;

    use super::*;

    #[test]
    fn instants() {
        let check = |text: &str, ns: Option<i64>| {
            let asked = Instant(text.to_owned());
            assert_eq!(Instant::read("start", Some(&asked)).ok().flatten(), ns, "{text}");
        };
        check("1970-01-01T00:00:01Z", Some(SECOND_NS));
        check("1970-01-01T01:00:01 01:00", Some(SECOND_NS));
        check("1970-01-01T01:00:01+01:00", Some(SECOND_NS));
        check("0001-01-01T00:00:00Z", Some(0));
        check("yesterday", None);
        check("not a time", None);
        check("", None);
    }
}
