//! What is known of batch jobs, by the rows of `jobs`: each of those who tell has rows of its own, and here they join.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::DictionaryArray;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use foldhash::fast::RandomState;

use crate::batch::{MetricColumn, Value, numbers, text_at};
use crate::time::MINUTE_NS;
use crate::{Batch, IdentityColumn};

/// Rows of a job that runs come every ten minutes: of one that nobody has told of for so long it is not known whether it runs.
pub(super) const TOLD_AGAIN_NS: i64 = 30 * MINUTE_NS;
/// The step of rows about a job as a whole.
pub(super) const WHOLE: &str = "whole";
/// Who tells of all hosts of a job.
const CONTROLLER: &str = "controller";
/// States that say no more than whether a job runs.
const PLAIN_STATES: [&str; 2] = ["running", "ended"];
/// The columns of texts of which the newest counts, whoever tells it, in the order of [`BatchJob::texts`].
const TEXTS: [&str; 6] = ["job_name", "job_user", "account", "queue", "array_task", "labels"];

/// What is known of a batch job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchJob {
    /// Name, user, account, queue, place in an array and labels, as far as they are known.
    texts: [Option<Arc<str>>; TEXTS.len()],
    /// Number of its user.
    pub uid: Option<i64>,
    /// How many GPUs were asked for on all its hosts.
    pub gpus_asked: Option<i64>,
    /// When it began, nanoseconds UTC since 1970.
    pub start_ns: Option<i64>,
    /// When it ended; none: it runs, or its end is not known.
    pub end_ns: Option<i64>,
    /// Whether it runs; none: nobody has told of it for long.
    pub runs: Option<bool>,
    /// How it ended, `CODE:SIGNAL`.
    pub exit_code: Option<Arc<str>>,
    /// How it ended, as the batch system calls it: `cancelled`; none: it runs, or that is not known.
    pub outcome: Option<Arc<str>>,
}

impl BatchJob {
    /// Name that its user gave it.
    pub fn name(&self) -> Option<&Arc<str>> {
        let [name, ..] = &self.texts;
        name.as_ref()
    }

    /// The user who submitted it.
    pub fn user(&self) -> Option<&Arc<str>> {
        let [_, user, ..] = &self.texts;
        user.as_ref()
    }

    /// Account that it is charged to.
    pub fn account(&self) -> Option<&Arc<str>> {
        let [_, _, account, ..] = &self.texts;
        account.as_ref()
    }

    /// Queue that it ran in.
    pub fn queue(&self) -> Option<&Arc<str>> {
        let [_, _, _, queue, ..] = &self.texts;
        queue.as_ref()
    }

    /// Its array and its place there, if it is of one.
    pub fn array_task(&self) -> Option<&Arc<str>> {
        let [.., array_task, _] = &self.texts;
        array_task.as_ref()
    }

    /// Its labels, key and value.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let [.., labels] = &self.texts;
        pairs(labels.as_deref().unwrap_or_default())
    }

    /// The same with the labels that have these keys alone.
    #[must_use]
    pub fn with_labels(mut self, keys: &[Arc<str>]) -> Self {
        let [.., labels] = &mut self.texts;
        *labels = labels.as_deref().and_then(|labels| kept_labels(labels, keys)).map(Arc::from);
        self
    }
}

/// Labels, key and value, of the text in which rows have them.
pub(super) fn pairs(labels: &str) -> impl Iterator<Item = (&str, &str)> {
    labels.split(',').filter_map(|pair| pair.split_once('='))
}

/// Those of the labels that have these keys, as rows have them; none: there are none.
pub fn kept_labels(labels: &str, keys: &[Arc<str>]) -> Option<String> {
    let kept = pairs(labels).filter(|(key, _)| keys.iter().any(|kept| **kept == **key));
    let kept: Vec<String> = kept.map(|(key, value)| format!("{key}={value}")).collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

/// Joins the rows of `jobs` by cluster and job.
#[derive(Debug, Default)]
pub struct BatchJobs {
    /// By number of the job, in each cluster that has one of it.
    known: HashMap<Arc<str>, Vec<JoinedJob>, RandomState>,
}

/// The rows of one job so far.
#[derive(Debug, Default)]
struct JoinedJob {
    cluster: Option<Arc<str>>,
    /// Each with the time as of which it is.
    texts: [Option<(i64, Arc<str>)>; TEXTS.len()],
    uid: Option<(i64, i64)>,
    gpus_asked: Option<(i64, i64)>,
    controller: Option<JobSpan>,
    /// What each host tells of it.
    hosts: HashMap<Arc<str>, JobSpan, RandomState>,
}

/// From when to when a job ran, as one of those who tell knows it.
#[derive(Debug, Clone, Default)]
struct JobSpan {
    as_of_ns: i64,
    start_ns: Option<i64>,
    end_ns: Option<i64>,
    exit_code: Option<Arc<str>>,
    outcome: Option<Arc<str>>,
}

/// The columns of a batch.
struct JobColumns<'a> {
    id: Option<&'a DictionaryArray<Int32Type>>,
    step: Option<&'a DictionaryArray<Int32Type>>,
    told_by: Option<&'a DictionaryArray<Int32Type>>,
    exit_code: Option<&'a DictionaryArray<Int32Type>>,
    state: Option<&'a DictionaryArray<Int32Type>>,
    cluster: Option<&'a DictionaryArray<Int32Type>>,
    host: Option<&'a DictionaryArray<Int32Type>>,
    texts: [Option<&'a DictionaryArray<Int32Type>>; TEXTS.len()],
    as_of_ns: Option<MetricColumn<'a>>,
    start_ns: Option<MetricColumn<'a>>,
    end_ns: Option<MetricColumn<'a>>,
    uid: Option<MetricColumn<'a>>,
    gpus_asked: Option<MetricColumn<'a>>,
}

impl<'a> JobColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let column = |name: &str| batch.records().column_by_name(name);
        let text = |name: &str| column(name).and_then(|column| column.as_dictionary_opt::<Int32Type>());
        let number = |name: &str| column(name).and_then(numbers);
        Self {
            id: text("job_id"),
            step: text("step"),
            told_by: text("told_by"),
            exit_code: text("exit_code"),
            state: text("state"),
            cluster: batch.identity_column(IdentityColumn::Cluster),
            host: batch.identity_column(IdentityColumn::Node),
            texts: TEXTS.map(text),
            as_of_ns: number("as_of_ns"),
            start_ns: number("start_ns"),
            end_ns: number("end_ns"),
            uid: number("uid"),
            gpus_asked: number("gpus_asked"),
        }
    }
}

pub(super) fn told(texts: Option<&DictionaryArray<Int32Type>>, row: usize) -> Option<&str> {
    text_at(texts?, row)
}

pub(super) fn whole_number(numbers: Option<MetricColumn<'_>>, row: usize) -> Option<i64> {
    match numbers?.value(row)? {
        Value::Int(number) => Some(number),
        Value::Float32(_) | Value::Float(_) => None,
    }
}

impl BatchJobs {
    /// The columns of `jobs` that they are made of.
    pub fn columns() -> impl Iterator<Item = &'static str> {
        let others = ["job_id", "step", "told_by", "as_of_ns", "start_ns", "end_ns", "uid", "gpus_asked"];
        others.into_iter().chain(["exit_code", "state"]).chain(TEXTS)
    }

    /// Adds rows of `jobs`. Says how many are about whole jobs: no other one is taken.
    pub fn add(&mut self, batch: &Batch) -> usize {
        let columns = JobColumns::of(batch);
        let mut taken = 0;
        for row in 0..batch.rows() {
            let about_whole = told(columns.step, row) == Some(WHOLE);
            let id = told(columns.id, row).filter(|_| about_whole);
            let Some((id, as_of_ns)) = id.zip(whole_number(columns.as_of_ns, row)) else { continue };
            let cluster = told(columns.cluster, row);
            let of_clusters = self.known.entry(Arc::from(id)).or_default();
            let place = of_clusters.iter().position(|job| job.cluster.as_deref() == cluster);
            let place = place.unwrap_or_else(|| {
                let cluster = cluster.map(Arc::from);
                of_clusters.push(JoinedJob { cluster, ..JoinedJob::default() });
                of_clusters.len() - 1
            });
            if let Some(job) = of_clusters.get_mut(place) {
                job.add(&columns, row, as_of_ns);
                taken += 1;
            }
        }
        taken
    }

    /// The number of the job that has this place in an array, `ARRAY_TASK`, in a cluster, or without one in any; none: none is known. Of
    /// several it is the one that was told of last.
    pub fn of_array_task(&self, cluster: Option<&str>, task: &str) -> Option<&Arc<str>> {
        let told_ns = |job: &JoinedJob| {
            let [.., array_task, _] = &job.texts;
            let (told_ns, known) = array_task.as_ref()?;
            let is_there = cluster.is_none() || job.cluster.as_deref() == cluster;
            (is_there && **known == *task).then_some(*told_ns)
        };
        let told = self.known.iter().filter_map(|(id, of_clusters)| {
            let last_ns = of_clusters.iter().filter_map(told_ns).max()?;
            Some((last_ns, id))
        });
        told.max().map(|(_, id)| id)
    }

    /// What is known of the job of this number in this cluster, as of an instant, nanoseconds UTC since 1970; none: nothing.
    pub fn get(&self, cluster: Option<&str>, id: &str, at_ns: i64) -> Option<BatchJob> {
        let mut of_clusters = self.known.get(id)?.iter();
        Some(of_clusters.find(|job| job.cluster.as_deref() == cluster)?.joined(at_ns))
    }
}

impl JoinedJob {
    /// Of one instant what comes last in order counts, so that the order of the rows is of no matter.
    fn add(&mut self, columns: &JobColumns<'_>, row: usize, as_of_ns: i64) {
        for (newest, texts) in self.texts.iter_mut().zip(columns.texts) {
            if let Some(text) = told(texts, row)
                && newest
                    .as_ref()
                    .is_none_or(|(since_ns, known)| (as_of_ns, text) > (*since_ns, known.as_ref()))
            {
                *newest = Some((as_of_ns, Arc::from(text)));
            }
        }
        for (newest, numbers) in [(&mut self.uid, columns.uid), (&mut self.gpus_asked, columns.gpus_asked)] {
            *newest = (*newest).max(whole_number(numbers, row).map(|number| (as_of_ns, number)));
        }
        let span = JobSpan {
            as_of_ns,
            start_ns: whole_number(columns.start_ns, row),
            end_ns: whole_number(columns.end_ns, row),
            exit_code: told(columns.exit_code, row).map(Arc::from),
            outcome: told(columns.state, row).filter(|state| !PLAIN_STATES.contains(state)).map(Arc::from),
        };
        if told(columns.told_by, row) == Some(CONTROLLER) {
            let before = self.controller.take();
            self.controller = Some(span.beside(before));
        } else {
            let host: Arc<str> = Arc::from(told(columns.host, row).unwrap_or_default());
            let before = self.hosts.remove(&host);
            self.hosts.insert(host, span.beside(before));
        }
    }

    fn joined(&self, at_ns: i64) -> BatchJob {
        let whole = self.controller.as_ref();
        let hosts = || self.hosts.values();
        // A row is of a whole hour: it may know of an end after the instant.
        let end_ns = |span: &JobSpan| span.end_ns.filter(|end_ns| *end_ns <= at_ns);
        let is_running =
            |span: &JobSpan| end_ns(span).is_none() && at_ns.saturating_sub(span.as_of_ns) <= TOLD_AGAIN_NS;
        let runs = match whole {
            Some(span) if end_ns(span).is_some() => Some(false),
            Some(span) if is_running(span) => Some(true),
            _ if hosts().any(is_running) => Some(true),
            // The controller may have been lost.
            _ if !self.hosts.is_empty() && hosts().all(|span| end_ns(span).is_some()) => Some(false),
            _ => None,
        };
        // Nodes begin and end one after the other: the controller's word counts.
        // Where it has ended while it runs, an earlier run of it may have.
        let is_of_run = |span: &&JobSpan| runs != Some(true) || end_ns(span).is_none();
        let first_ns = || hosts().filter(is_of_run).filter_map(|span| span.start_ns).min();
        let last = hosts().max_by_key(|span| end_ns(span));
        let is_over = runs == Some(false);
        let ended = whole.filter(|span| end_ns(span).is_some()).or(last).filter(|_| is_over);
        BatchJob {
            texts: self.texts.each_ref().map(|newest| newest.as_ref().map(|(_, text)| Arc::clone(text))),
            uid: self.uid.map(|(_, uid)| uid),
            gpus_asked: self.gpus_asked.map(|(_, gpus)| gpus),
            start_ns: whole.and_then(|span| span.start_ns).or_else(first_ns),
            end_ns: ended.and_then(end_ns),
            runs,
            exit_code: ended.and_then(|span| span.exit_code.clone()),
            outcome: ended.and_then(|span| span.outcome.clone()),
        }
    }
}

impl JobSpan {
    /// The newer of two, of one instant the one with an end; when the job began both may know.
    fn beside(self, before: Option<Self>) -> Self {
        let Some(before) = before else { return self };
        let is_newer = |one: &Self, other: &Self| {
            (one.as_of_ns, one.end_ns.is_some()) >= (other.as_of_ns, other.end_ns.is_some())
        };
        let (newer, older) = if is_newer(&self, &before) { (self, before) } else { (before, self) };
        Self { start_ns: newer.start_ns.or(older.start_ns), ..newer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{HOUR_NS, SECOND_NS};
    use crate::{BatchBuilder, Identity, Origin, Table};

    const NOW_NS: i64 = 1_000 * HOUR_NS;

    /// A row: who told, on which host, how many seconds ago; seconds from then on at which the job began and ended; texts.
    type Told<'a> = (&'a str, &'a str, i64, [Option<i64>; 2], &'a [(&'a str, &'a str)]);

    fn jobs(rows: &[Told<'_>]) -> BatchJobs {
        let mut jobs = BatchJobs::default();
        for (told_by, host, ago_s, times, texts) in rows {
            let mut builder = BatchBuilder::new(Table::Jobs);
            let host = Identity::default().with(IdentityColumn::Node, host).unwrap();
            let host = builder.intern(&host);
            let as_of_ns = NOW_NS - ago_s * SECOND_NS;
            let row = builder.row(as_of_ns, host);
            for (column, text) in
                [("job_id", "7"), ("step", "whole"), ("told_by", told_by)].iter().chain(*texts)
            {
                builder.set_extra_text(row, column, text).unwrap();
            }
            builder.set_extra(row, "as_of_ns", Value::Int(as_of_ns)).unwrap();
            for (column, at_s) in ["start_ns", "end_ns"].into_iter().zip(times) {
                if let Some(at_s) = at_s {
                    builder.set_extra(row, column, Value::Int(NOW_NS + at_s * SECOND_NS)).unwrap();
                }
            }
            jobs.add(&builder.finish(Origin::default(), 1).unwrap());
        }
        jobs
    }

    fn of(rows: &[Told<'_>]) -> BatchJob {
        jobs(rows).get(None, "7", NOW_NS).unwrap()
    }

    #[test]
    fn a_job_is_found_by_its_place_in_an_array() {
        let jobs = jobs(&[("controller", "head", 60, [Some(-100), None], &[("array_task", "6_1")])]);
        assert_eq!(jobs.of_array_task(None, "6_1").map(|id| &**id), Some("7"));
        assert_eq!(jobs.of_array_task(None, "6_2"), None);
        assert_eq!(jobs.of_array_task(Some("east"), "6_1"), None, "it is in no cluster");
    }

    #[test]
    fn how_a_job_ended_is_what_the_batch_system_calls_it() {
        let times = [Some(-100), Some(-60)];
        let rows: &[Told<'_>] = &[
            ("controller", "head", 60, times, &[("state", "ended")]),
            ("epilog", "n1", 59, times, &[("state", "ended")]),
            ("controller", "head", 50, times, &[("state", "cancelled")]),
        ];
        let job = of(rows);
        assert_eq!((job.runs, job.outcome.as_deref()), (Some(false), Some("cancelled")));
        let [first, epilog, _] = rows else { unreachable!() };
        assert_eq!(of(&[*first, *epilog]).outcome, None, "nobody said how");
    }

    #[test]
    fn what_each_knows_of_a_job_joins_and_the_newest_word_counts() {
        let rows: &[Told<'_>] = &[
            ("prolog", "n1", 90, [Some(-100), None], &[("job_user", "kim"), ("queue", "gpu")]),
            (
                "controller",
                "head",
                60,
                [Some(-101), None],
                &[("job_name", "new"), ("account", "ml"), ("labels", "team=nlp,phase=2")],
            ),
            ("controller", "head", 80, [Some(-101), None], &[("job_name", "old")]),
        ];
        let job = of(rows);
        let texts = [job.name(), job.user(), job.account(), job.queue(), job.array_task()];
        let texts = texts.map(|text| text.map(AsRef::as_ref));
        assert_eq!(texts, [Some("new"), Some("kim"), Some("ml"), Some("gpu"), None]);
        assert_eq!(job.labels().collect::<Vec<_>>(), [("team", "nlp"), ("phase", "2")]);
        let chosen = job.clone().with_labels(&["phase".into(), "other".into()]);
        assert_eq!(chosen.labels().collect::<Vec<_>>(), [("phase", "2")]);
        assert_eq!((job.runs, job.start_ns), (Some(true), Some(NOW_NS - 101 * SECOND_NS)));
        assert_eq!(job.end_ns, None);
        assert_eq!(jobs(rows).get(Some("east"), "7", NOW_NS), None, "another cluster counts its own jobs");
        assert_eq!(jobs(rows).get(None, "8", NOW_NS), None);
    }

    #[test]
    fn a_job_is_over_when_its_controller_says_so_or_all_of_its_hosts() {
        let code = [("exit_code", "3:0")];
        let mut rows: Vec<Told<'_>> = vec![
            ("prolog", "n1", 90, [Some(-100), None], &[]),
            ("prolog", "n2", 90, [Some(-99), None], &[]),
            ("epilog", "n1", 20, [None, Some(-20)], &code),
        ];
        assert_eq!((of(&rows).runs, of(&rows).end_ns), (Some(true), None), "one host still runs");
        rows.push(("epilog", "n2", 10, [None, Some(-10)], &[]));
        let over = of(&rows);
        assert_eq!((over.runs, over.start_ns), (Some(false), Some(NOW_NS - 100 * SECOND_NS)));
        assert_eq!((over.end_ns, over.exit_code), (Some(NOW_NS - 10 * SECOND_NS), None));
        rows.push(("controller", "head", 5, [Some(-101), Some(-5)], &code));
        let over = of(&rows);
        assert_eq!((over.end_ns, over.exit_code.as_deref()), (Some(NOW_NS - 5 * SECOND_NS), Some("3:0")));
        // It was put back into the queue, and runs again.
        rows.push(("controller", "head", 1, [Some(-2), None], &[]));
        assert_eq!((of(&rows).runs, of(&rows).end_ns), (Some(true), None));
        // The end of one was lost.
        let silent = of(&[("prolog", "n1", 3_600, [Some(-7_200), None], &[])]);
        assert_eq!((silent.runs, silent.end_ns), (None, None));
    }

    #[test]
    fn what_came_after_an_instant_is_not_told_of_it() {
        let rows: &[Told<'_>] = &[
            ("prolog", "n1", 90, [Some(-100), None], &[]),
            ("epilog", "n1", 20, [None, Some(-20)], &[("exit_code", "3:0")]),
        ];
        let before = jobs(rows).get(None, "7", NOW_NS - 30 * SECOND_NS).unwrap();
        assert_eq!((before.runs, before.end_ns, before.exit_code), (Some(true), None, None));
        assert_eq!((of(rows).runs, of(rows).end_ns), (Some(false), Some(NOW_NS - 20 * SECOND_NS)));
    }

    #[test]
    fn a_job_that_runs_again_began_where_it_has_not_ended() {
        let rows: &[Told<'_>] = &[
            ("prolog", "n1", 90, [Some(-100), None], &[]),
            ("epilog", "n1", 50, [None, Some(-50)], &[]),
            ("prolog", "n2", 20, [Some(-20), None], &[]),
            ("prolog", "n3", 19, [Some(-19), None], &[]),
        ];
        let again = of(rows);
        assert_eq!((again.runs, again.start_ns), (Some(true), Some(NOW_NS - 20 * SECOND_NS)));
    }
}
