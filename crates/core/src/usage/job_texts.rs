//! What is told of very many batch jobs in one respect: who ran each, or by what else holders are put together.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array as _, DictionaryArray};
use foldhash::fast::RandomState;

use super::batch_jobs::{WHOLE, pairs};
use super::ledger::RUN_HOLDER;
use crate::batch::{MetricColumn, Value, numbers};
use crate::{Batch, IdentityColumn};

/// What a holder begins with that is a batch job, or a user.
const JOB_HOLDER: &str = "job:";
const USER_HOLDER: &str = "user:";
/// What a holder begins with that is a container of a pod: rows of `jobs` are about the pod.
const POD_HOLDER: &str = "pod:";

/// What the rows of `jobs` call the batch job, pod or recording that holds a GPU; none: another holder.
pub fn job_of(holder: &str) -> Option<&str> {
    if holder.starts_with(POD_HOLDER) {
        return holder.rsplit_once('/').map(|(pod, _container)| pod);
    }
    let is_run = holder.starts_with(RUN_HOLDER);
    if is_run { Some(holder) } else { holder.strip_prefix(JOB_HOLDER) }
}

/// What is told of a job, by which holders are put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobText {
    /// Its user; a holder that is a user is put to his jobs.
    User,
    /// The account that it is charged to.
    Account,
    /// The queue or partition that it was submitted to.
    Queue,
    /// Its label of this key.
    Label(Arc<str>),
}

impl JobText {
    /// The column of `jobs` that it is in.
    fn column(&self) -> &'static str {
        match self {
            Self::User => "job_user",
            Self::Account => "account",
            Self::Queue => "queue",
            Self::Label(_) => "labels",
        }
    }

    /// What a text of that column says.
    fn of<'a>(&self, text: &'a str) -> Option<&'a str> {
        let Self::Label(key) = self else { return Some(text) };
        pairs(text).find(|(known, _)| **known == **key).map(|(_, value)| value)
    }
}

/// One text of each job, the newest that anybody told: with the number of the job it is all that is kept, so that a month of a large
/// fleet has room.
#[derive(Debug)]
pub struct JobTexts {
    text: JobText,
    clusters: Vec<ClusterTexts>,
    /// The texts, each once, and the place of each.
    texts: Vec<Arc<str>>,
    places: HashMap<Arc<str>, u32, RandomState>,
}

/// Those of the jobs of a cluster.
#[derive(Debug)]
struct ClusterTexts {
    cluster: Option<Arc<str>>,
    /// By number: batch systems number their jobs, and of millions of numbers each is compared without a look at a text of its own.
    numbered: HashMap<u64, NewestText, NearNumbers>,
    /// Those whose ids are no numbers: pods and recordings.
    named: HashMap<Arc<str>, NewestText, RandomState>,
}

/// Has numbers that follow each other lie side by side in a map. The jobs of a day have such numbers: who looks for one after the other finds
/// them in the processor's own memory, and of a month of a large fleet the map has fifty megabytes.
#[derive(Debug, Clone, Default)]
struct NearNumbers(RandomState);

/// The bits by which numbers that lie side by side differ.
const NEAR_BITS: u32 = 8;
/// The bits by which a map tells numbers apart that have the same place.
const APART: u64 = 0x7f << 57;

struct NearHasher {
    state: RandomState,
    hash: u64,
}

impl BuildHasher for NearNumbers {
    type Hasher = NearHasher;

    fn build_hasher(&self) -> NearHasher {
        NearHasher { state: self.0.clone(), hash: 0 }
    }
}

impl Hasher for NearHasher {
    fn write_u64(&mut self, number: u64) {
        let near = self.state.hash_one(number >> NEAR_BITS);
        let place = (near << NEAR_BITS) | (number & ((1 << NEAR_BITS) - 1));
        self.hash = (place & !APART) | (self.state.hash_one(number) & APART);
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hash ^= self.state.hash_one(bytes);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

/// What was told last.
#[derive(Debug, Clone, Copy)]
struct NewestText {
    as_of_ns: i64,
    /// Its place among the texts; none: that has no such label.
    place: Option<u32>,
}

/// What a row tells, by the places of its texts among those of its columns.
#[derive(Debug, Clone, Copy)]
struct ToldRow {
    cluster: Option<usize>,
    id: usize,
    as_of_ns: i64,
    text: usize,
}

/// The columns of a batch.
struct TextColumns<'a> {
    cluster: Option<&'a DictionaryArray<Int32Type>>,
    id: &'a DictionaryArray<Int32Type>,
    step: &'a DictionaryArray<Int32Type>,
    /// Of each text of the steps, whether it means the job as a whole.
    is_whole: Vec<bool>,
    as_of_ns: MetricColumn<'a>,
    text: &'a DictionaryArray<Int32Type>,
}

impl<'a> TextColumns<'a> {
    /// None: no row of the batch has such a text.
    fn of(batch: &'a Batch, text: &JobText) -> Option<Self> {
        let column = |name: &str| batch.records().column_by_name(name);
        let texts = |name: &str| column(name).and_then(|column| column.as_dictionary_opt::<Int32Type>());
        let step = texts("step")?;
        let steps = step.values().as_string_opt::<i32>()?;
        Some(Self {
            cluster: batch.identity_column(IdentityColumn::Cluster),
            id: texts("job_id")?,
            step,
            is_whole: steps.iter().map(|step| step == Some(WHOLE)).collect(),
            as_of_ns: column("as_of_ns").and_then(numbers)?,
            text: texts(text.column())?,
        })
    }

    fn row(&self, row: usize) -> Option<ToldRow> {
        self.step.key(row).filter(|step| self.is_whole.get(*step) == Some(&true))?;
        let Value::Int(as_of_ns) = self.as_of_ns.value(row)? else { return None };
        let (id, text) = (self.id.key(row)?, self.text.key(row)?);
        Some(ToldRow { cluster: self.cluster.and_then(|texts| texts.key(row)), id, as_of_ns, text })
    }

    /// Whether a row tells something newer of its job than another; of one instant the text counts that comes last in order, so that the
    /// order of the rows is of no matter.
    fn is_newer(&self, one: &ToldRow, other: &ToldRow, wanted: &JobText) -> bool {
        let text = |row: &ToldRow| text_of(self.text, row.text).and_then(|text| wanted.of(text));
        one.as_of_ns.cmp(&other.as_of_ns).then_with(|| text(one).cmp(&text(other))) == Ordering::Greater
    }
}

/// The number that an id is; none: it is not written as a number is.
fn number_of(id: &str) -> Option<u64> {
    let is_written_so = id == "0" || id.starts_with(|first: char| matches!(first, '1'..='9'));
    if is_written_so { id.parse().ok() } else { None }
}

/// A text of a column, by its place.
fn text_of(texts: &DictionaryArray<Int32Type>, place: usize) -> Option<&str> {
    let values = texts.values().as_string_opt::<i32>()?;
    (place < values.len()).then(|| values.value(place))
}

impl JobTexts {
    /// Takes this text of each job; nothing is known yet.
    pub fn of(text: JobText) -> Self {
        Self { text, clusters: Vec::new(), texts: Vec::new(), places: HashMap::default() }
    }

    /// The columns of `jobs` that are read.
    pub fn columns(text: &JobText) -> [&'static str; 4] {
        ["job_id", "step", "as_of_ns", text.column()]
    }

    /// How many jobs it has.
    pub fn jobs(&self) -> usize {
        self.clusters.iter().map(|one| one.numbered.len() + one.named.len()).sum()
    }

    /// Adds rows of `jobs`.
    pub fn add(&mut self, batch: &Batch) {
        let Some(columns) = TextColumns::of(batch, &self.text) else { return };
        // Rows about one job lie near each other: each is looked up once.
        let mut newest: Vec<Option<ToldRow>> = vec![None; columns.id.values().len()];
        for row in 0..batch.rows() {
            let Some(next) = columns.row(row) else { continue };
            let Some(slot) = newest.get_mut(next.id) else { continue };
            let known = slot.filter(|known| known.cluster == next.cluster);
            if known.is_some_and(|known| !columns.is_newer(&next, &known, &self.text)) {
                continue;
            }
            let before = slot.replace(next).filter(|before| before.cluster != next.cluster);
            if let Some(before) = before {
                self.note(&columns, &before);
            }
        }
        for told in newest.into_iter().flatten() {
            self.note(&columns, &told);
        }
    }

    fn note(&mut self, columns: &TextColumns<'_>, told: &ToldRow) {
        let cluster = columns.cluster.zip(told.cluster).and_then(|(texts, place)| text_of(texts, place));
        let Some((id, text)) = text_of(columns.id, told.id).zip(text_of(columns.text, told.text)) else {
            return;
        };
        let place = self.text.of(text).map(|text| self.place(text));
        let newest = NewestText { as_of_ns: told.as_of_ns, place };
        let cluster = self.cluster(cluster);
        let Self { clusters, texts, .. } = self;
        let Some(ClusterTexts { numbered, named, .. }) = clusters.get_mut(cluster) else { return };
        if let Some(number) = number_of(id) {
            note_newest(numbered, number, newest, texts);
        } else if let Some(known) = named.get_mut(id) {
            known.replace(newest, texts);
        } else {
            named.insert(Arc::from(id), newest);
        }
    }

    /// The place of a text.
    fn place(&mut self, text: &str) -> u32 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let (place, text) = (u32::try_from(self.texts.len()).unwrap_or(u32::MAX), Arc::<str>::from(text));
        self.texts.push(Arc::clone(&text));
        self.places.insert(text, place);
        place
    }

    /// The place of a cluster. There are few.
    fn cluster(&mut self, cluster: Option<&str>) -> usize {
        let found = self.clusters.iter().position(|known| known.cluster.as_deref() == cluster);
        found.unwrap_or_else(|| {
            let cluster = cluster.map(Arc::from);
            let (numbered, named) = (HashMap::default(), HashMap::default());
            self.clusters.push(ClusterTexts { cluster, numbered, named });
            self.clusters.len() - 1
        })
    }

    /// Adds what others found, of the same text.
    pub fn and(&mut self, other: Self) {
        let places: Vec<u32> = other.texts.iter().map(|text| self.place(text)).collect();
        let moved = |newest: NewestText| {
            let place = newest.place.and_then(|place| places.get(place as usize).copied());
            NewestText { place, ..newest }
        };
        for ClusterTexts { cluster, numbered, named } in other.clusters {
            let cluster = self.cluster(cluster.as_deref());
            let Self { clusters, texts, .. } = self;
            let Some(known) = clusters.get_mut(cluster) else { continue };
            for (number, newest) in numbered {
                note_newest(&mut known.numbered, number, moved(newest), texts);
            }
            for (id, newest) in named {
                let newest = moved(newest);
                known.named.entry(id).and_modify(|known| known.replace(newest, texts)).or_insert(newest);
            }
        }
    }

    /// What a holder of a cluster is put together by; none: it is not known.
    pub fn group(&self, cluster: Option<&str>, holder: &str) -> Option<Arc<str>> {
        if self.text == JobText::User
            && let Some(user) = holder.strip_prefix(USER_HOLDER)
        {
            return Some(Arc::from(user));
        }
        let place = self.place_of(cluster, holder)?;
        self.texts.get(place as usize).cloned()
    }

    /// The place of this among the texts; none: it is not known, or the holder is a user.
    pub(super) fn place_of(&self, cluster: Option<&str>, holder: &str) -> Option<u32> {
        let id = job_of(holder)?;
        let of_cluster = self.clusters.iter().find(|known| known.cluster.as_deref() == cluster)?;
        let newest = match number_of(id) {
            Some(number) => of_cluster.numbered.get(&number),
            None => of_cluster.named.get(id),
        };
        newest?.place
    }
}

/// Keeps the newest of what was told of a job.
fn note_newest(
    jobs: &mut HashMap<u64, NewestText, NearNumbers>,
    job: u64,
    newest: NewestText,
    texts: &[Arc<str>],
) {
    jobs.entry(job).and_modify(|known| known.replace(newest, texts)).or_insert(newest);
}

impl NewestText {
    /// Stays, or becomes what is newer; of one instant the text counts that comes last in order.
    fn replace(&mut self, other: Self, texts: &[Arc<str>]) {
        let text = |one: &Self| one.place.and_then(|place| texts.get(place as usize));
        if (other.as_of_ns, text(&other)) > (self.as_of_ns, text(self)) {
            *self = other;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::HOUR_NS;
    use crate::{BatchBuilder, Identity, Origin, Table};

    const NOW_NS: i64 = 1_000 * HOUR_NS;

    /// A row: cluster, job, as of how many nanoseconds from now on, user, labels.
    type Told<'a> = (&'a str, &'a str, i64, &'a str, &'a str);

    fn batch(rows: &[Told<'_>]) -> Batch {
        let mut builder = BatchBuilder::new(Table::Jobs);
        for (cluster, id, as_of, user, labels) in rows {
            let host = Identity::default().with(IdentityColumn::Node, "n1").unwrap();
            let host = builder.intern(&host.with(IdentityColumn::Cluster, cluster).unwrap());
            let row = builder.row(NOW_NS, host);
            let texts = [("job_id", *id), ("step", "whole"), ("told_by", "prolog"), ("job_user", *user)];
            for (column, text) in texts.into_iter().chain([("labels", *labels)]) {
                if !text.is_empty() {
                    builder.set_extra_text(row, column, text).unwrap();
                }
            }
            builder.set_extra(row, "as_of_ns", Value::Int(NOW_NS + as_of)).unwrap();
        }
        builder.finish(Origin::default(), 1).unwrap()
    }

    #[test]
    fn the_newest_text_of_a_job_counts_whoever_tells_it_and_in_whatever_order() {
        let rows: &[Told<'_>] = &[
            ("", "7", 5, "kim", "team=nlp"),
            ("", "7", 9, "", "phase=2"),
            ("east", "7", 1, "lee", ""),
            ("", "7", 4, "old", "team=old"),
            ("", "8", 3, "ann", ""),
            ("", "8", 3, "bob", ""),
            ("", "9", 3, "", "app=x,team=cv"),
            ("", "9", 3, "", "phase=1"),
            ("", "07", 9, "max", ""),
            ("", "18446744073709551617", 9, "eve", ""),
            ("", "run:x", 1, "old", ""),
            ("", "run:x", 2, "ray", ""),
        ];
        for turn in 0..rows.len() {
            let mut turned = rows.to_vec();
            turned.rotate_left(turn);
            let (first, rest) = turned.split_at(turn);
            let of = |text: JobText| {
                let (mut one, mut other) = (JobTexts::of(text.clone()), JobTexts::of(text));
                one.add(&batch(rest));
                if !first.is_empty() {
                    other.add(&batch(first));
                }
                other.and(one);
                other
            };
            let users = of(JobText::User);
            assert_eq!(users.jobs(), 6);
            let user = |cluster: Option<&str>, holder: &str| users.group(cluster, holder);
            assert_eq!(user(None, "job:7").as_deref(), Some("kim"), "turn {turn}");
            assert_eq!(user(Some("east"), "job:7").as_deref(), Some("lee"));
            assert_eq!(user(None, "job:8").as_deref(), Some("bob"), "turn {turn}");
            assert_eq!(user(None, "job:07").as_deref(), Some("max"), "another one than 7");
            assert_eq!(user(None, "job:18446744073709551617").as_deref(), Some("eve"), "however long it is");
            assert_eq!(user(None, "job:+7"), None);
            assert_eq!(user(None, "run:x").as_deref(), Some("ray"), "turn {turn}");
            assert_eq!(user(None, "user:zoe").as_deref(), Some("zoe"));
            assert_eq!(user(Some("west"), "job:7"), None);
            assert_eq!(user(None, "pod:a/b/c"), None);
            let teams = of(JobText::Label("team".into()));
            assert_eq!(teams.group(None, "job:7"), None, "the newest labels have no team");
            assert_eq!(of(JobText::Label("phase".into())).group(None, "job:7").as_deref(), Some("2"));
            assert_eq!(teams.group(None, "user:zoe"), None);
            assert_eq!(teams.group(None, "job:9").as_deref(), Some("cv"), "turn {turn}");
        }
    }
}
