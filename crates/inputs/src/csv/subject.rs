//! The GPU of a row: identity columns and labels, resolved once for each GPU and recognised by their bytes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gpuvitals_core::batch::{IdentityId, RowId, Value};
use gpuvitals_core::foreign::{Meaning, absence, meaning};
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::{Identity, IdentityColumn, IdentityError};
use memchr::memmem;

use super::cell::{ExtraCell, MessageField, plain_number};
use super::owner::SubjectDraft;
use super::part::Whose;
use super::plan::{CsvForm, Plan, Role};
use super::split::Splitter;
use super::{labels, messages, owner};
use crate::report::{Cause, Refusal};

/// Bytes of identity fields that are remembered; a file with more GPUs than that (about 20,000) resolves them
/// repeatedly.
const REMEMBERED_LEN_MAX: usize = 8 << 20;

/// Between the fields of a key: no UTF-8 text has this byte.
const KEY_SEPARATOR: u8 = 0xff;

/// A GPU (with the other identity of its rows) and the place of its last row.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) identity: Arc<Identity>,
    pub(super) extras: Vec<ExtraCell>,
    /// What identifies it, as in the file.
    pub(super) fields: Vec<MessageField>,
    /// Number of the batch that `id` and `row` belong to.
    pub(super) batch: u64,
    pub(super) id: Option<IdentityId>,
    pub(super) row: Option<(i64, RowId)>,
    /// It has the first metric of a shared name under a name of its own ([`Scale::second`](super::cell::Scale::second)).
    pub(super) has_own: bool,
    /// Last time given to a row that had none.
    pub(super) last_ns: i64,
    /// The subject of its card, if it is an instance of one.
    pub(super) card: Option<usize>,
    /// The last look at its processes.
    pub(super) look: Option<Look>,
}

/// A look at the processes of a GPU.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) time_ns: i64,
    pub(super) pids: HashSet<Box<[u8]>>,
    /// What the processes seen so far hold together.
    pub(super) sum: Option<Value>,
}

/// The GPUs met so far.
#[derive(Debug)]
pub(super) struct Subjects {
    /// Columns whose bytes distinguish subjects.
    columns: Vec<usize>,
    labels: Option<usize>,
    name_finder: memmem::Finder<'static>,
    by_key: HashMap<Box<[u8]>, usize, foldhash::fast::RandomState>,
    /// Of the long form: subjects by all that they are, so that labels of single metrics make no others.
    by_content: Option<HashMap<String, usize>>,
    all: Vec<Subject>,
    /// Time of the newest row that had none of its own, under other headers.
    untimed_after_ns: i64,
    remembered_len: usize,
    key: Vec<u8>,
}

impl Subjects {
    /// Those under another header. Rows without times of their own go on behind the newest of these.
    pub(super) fn after(&self, plan: &Plan) -> Self {
        let untimed = self.all.iter().map(|subject| subject.last_ns);
        let untimed_after_ns = untimed.fold(self.untimed_after_ns, i64::max);
        Self { untimed_after_ns, ..Self::new(plan) }
    }

    pub(super) fn new(plan: &Plan) -> Self {
        let long = plan.form == CsvForm::Long;
        let labels = plan.find(|role| matches!(role, Role::Labels));
        let tells = |role: &Role| match role {
            Role::Gpu | Role::Identity(_) => true,
            Role::Extra(_) => long,
            _ => false,
        };
        let columns =
            plan.columns.iter().enumerate().filter(|(_, c)| tells(&c.role)).map(|(i, _)| i).collect();
        Self {
            columns,
            labels,
            name_finder: labels::name_finder(),
            by_key: HashMap::default(),
            by_content: long.then(HashMap::new),
            all: Vec::new(),
            untimed_after_ns: 0,
            remembered_len: 0,
            key: Vec::new(),
        }
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Subject> {
        self.all.get_mut(index)
    }

    /// The subject of a part of the current record; `number` tells parts apart.
    pub(super) fn find(
        &mut self,
        plan: &Plan,
        record: &Splitter,
        (number, whose): (usize, &Whose),
    ) -> Result<usize, Refusal> {
        self.key.clear();
        self.key.extend_from_slice(&number.to_le_bytes());
        for &column in &self.columns {
            self.key.extend_from_slice(record.field(column));
            self.key.push(KEY_SEPARATOR);
        }
        if let Some(column) = self.labels {
            let field = record.field(column);
            let span = labels::name_span(&self.name_finder, field).unwrap_or(0..0);
            self.key.extend_from_slice(field.get(..span.start).unwrap_or_default());
            self.key.push(KEY_SEPARATOR);
            self.key.extend_from_slice(field.get(span.end..).unwrap_or_default());
        }
        if let Some(&index) = self.by_key.get(self.key.as_slice()) {
            return Ok(index);
        }
        let subject = subject(plan, record, whose)?;
        if self.remembered_len > REMEMBERED_LEN_MAX {
            self.by_key.clear();
            self.by_content.iter_mut().for_each(HashMap::clear);
            self.all.clear();
            self.remembered_len = 0;
        }
        // A subject takes more memory than its key: the identity's texts and the entry itself.
        self.remembered_len += self.key.len() + size_of::<Subject>();
        let content = self
            .by_content
            .is_some()
            .then(|| format!("{:?} {:?} {}", subject.identity, subject.extras, *whose == Whose::Host));
        let known = content.as_ref().and_then(|content| self.by_content.as_ref()?.get(content));
        if let Some(&index) = known {
            self.by_key.insert(self.key.as_slice().into(), index);
            return Ok(index);
        }
        let card = self.card_of(&subject);
        self.by_key.insert(self.key.as_slice().into(), self.all.len());
        if let Some((content, by_content)) = content.zip(self.by_content.as_mut()) {
            self.remembered_len += content.len();
            by_content.insert(content, self.all.len());
        }
        self.all.push(Subject { card, last_ns: self.untimed_after_ns, ..subject });
        Ok(self.all.len() - 1)
    }

    /// The subject of the card that a subject is an instance of.
    fn card_of(&mut self, instance: &Subject) -> Option<usize> {
        let identity = Arc::new(instance.identity.card()?);
        if let Some(known) = self.all.iter().position(|known| known.identity == identity) {
            return Some(known);
        }
        let is_its = |(name, _): &&MessageField| match meaning(name) {
            Meaning::Identity(column) => identity.get(column).is_some(),
            _ => true,
        };
        let fields = instance.fields.iter().filter(is_its).cloned().collect();
        let last_ns = self.untimed_after_ns;
        self.all.push(Subject { last_ns, ..Subject::new(identity, Vec::new(), fields) });
        self.remembered_len += size_of::<Subject>();
        Some(self.all.len() - 1)
    }
}

fn subject(plan: &Plan, record: &Splitter, whose: &Whose) -> Result<Subject, Refusal> {
    let mut draft = SubjectDraft::default();
    let mut gpu = None;
    for (index, column) in plan.columns.iter().enumerate() {
        let text = std::str::from_utf8(record.field(index)).unwrap_or_default().trim();
        let is_absent = absence(text).is_some();
        if text.is_empty() || (is_absent && matches!(column.role, Role::Gpu | Role::Identity(_))) {
            continue;
        }
        let refused = |error: IdentityError| refusal(index, error.to_string());
        let as_written = text;
        let text = match &column.role {
            Role::Gpu => owner::gpu_name(text),
            Role::Identity(column) => owner::safe(*column, text),
            _ => Cow::Borrowed(text),
        };
        // A message has a name that its reader takes for the same.
        let named = match column.role {
            Role::Gpu => Some((Meaning::Gpu, INDEX_COLUMN)),
            Role::Identity(column) => Some((Meaning::Identity(column), column.name())),
            _ => None,
        };
        if let Some((wanted, own)) = named {
            let name = if meaning(&column.name) == wanted { column.name.as_str() } else { own };
            draft.fields.push((name.into(), messages::name(&text)));
        }
        match &column.role {
            Role::Gpu => gpu = Some((index, as_written.to_owned())),
            Role::Identity(column) => draft.identity.set(*column, &text).map_err(refused)?,
            Role::Extra(name) if plan.form == CsvForm::Long && !is_absent => {
                let number = plain_number(&text);
                draft.extras.push(ExtraCell { name: Arc::clone(name), number, text: text.into_owned() });
            }
            Role::Labels => {
                let named = draft.read_labels(plan, &text, &column.name);
                let named = named.map_err(|reason| refusal(index, reason))?;
                gpu = gpu.or(named.map(|name| (index, name)));
            }
            _ => {}
        }
    }
    if let Whose::Labels(labels) = whose {
        let named = draft.read_labels(plan, labels, "labels");
        let named = named.map_err(|reason| Refusal { cause: Cause::Identity, column: None, reason })?;
        gpu = named.map(|name| (0, name)).or(gpu);
    }
    let (column, gpu) = gpu.map_or((None, None), |(index, text)| (Some(index), Some(text)));
    let column =
        column.or_else(|| plan.find(|role| matches!(role, Role::Gpu | Role::Identity(IdentityColumn::Uuid))));
    owner::settle(&mut draft, plan, whose, gpu.as_deref()).map_err(|error| Refusal {
        cause: Cause::Identity,
        column,
        reason: error.to_string(),
    })?;
    Ok(Subject::new(Arc::new(draft.identity), draft.extras, draft.fields))
}

impl Subject {
    fn new(identity: Arc<Identity>, extras: Vec<ExtraCell>, fields: Vec<MessageField>) -> Self {
        Self {
            identity,
            extras,
            fields,
            batch: 0,
            id: None,
            row: None,
            has_own: false,
            last_ns: 0,
            card: None,
            look: None,
        }
    }
}

fn refusal(column: usize, reason: String) -> Refusal {
    Refusal { cause: Cause::Identity, column: Some(column), reason }
}

impl SubjectDraft {
    /// Copies labels to identity columns that the row lacks; labels that repeat a column are dropped, the others
    /// are kept as text in `label_<name>`. Returns the GPU's name in the labels if no column has it.
    fn read_labels(&mut self, plan: &Plan, text: &str, column: &str) -> Result<Option<String>, String> {
        let Self { identity, extras, fields } = self;
        let Some(labels) = labels::parse(text) else {
            // Not a list of labels: kept unchanged.
            extras.push(ExtraCell { name: column.into(), number: None, text: text.to_owned() });
            return Ok(None);
        };
        let mut gpu = None;
        let has_gpu = plan.columns.iter().any(|c| matches!(c.role, Role::Gpu));
        // The exporter's own pod is in `pod` if the GPU's is in `exported_pod`.
        let exported = |name: &str| name.starts_with("exported_");
        let (first, second): (Vec<_>, Vec<_>) = labels.into_iter().partition(|(name, _)| exported(name));
        // The names of AMD's device-metrics-exporter.
        let is_amds = second.iter().any(|(name, _)| *name == "gpu_id");
        for (name, value) in first.iter().chain(&second) {
            if absence(value).is_some() || plan.columns.iter().any(|c| c.name.eq_ignore_ascii_case(name)) {
                continue;
            }
            if is_amds && matches!(*name, "clock_type" | "clock_index") {
                // They tell metrics apart, not GPUs.
                continue;
            }
            let meaning = match *name {
                "card_model" if is_amds => Meaning::Identity(IdentityColumn::Model),
                name => meaning(name),
            };
            match meaning {
                Meaning::Gpu if gpu.is_none() && !has_gpu => {
                    gpu = Some(value.as_ref().to_owned());
                    fields.push(((*name).into(), messages::name(value)));
                }
                Meaning::Gpu | Meaning::MetricName => {}
                // Prometheus calls the scrape `job`; the batch job has other names.
                Meaning::Identity(column) if !name.eq_ignore_ascii_case("job") => {
                    if identity.get(column).is_none() {
                        identity.set(column, value).map_err(|error| format!("label {name}: {error}"))?;
                        fields.push(((*name).into(), messages::name(value)));
                    }
                }
                _ => extras.push(ExtraCell {
                    name: format!("label_{name}").into(),
                    number: None,
                    text: value.as_ref().to_owned(),
                }),
            }
        }
        Ok(gpu)
    }
}
