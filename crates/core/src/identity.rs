//! The identity of a row's GPU or host.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

/// The textual identity columns of every table, in table order. The index of the GPU on its node (`gpu`) is the
/// one identity column that is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum IdentityColumn {
    /// Cluster the node belongs to.
    Cluster,
    /// Host name of the node.
    Node,
    /// The GPU's identity: NVIDIA UUID, AMD unique id, `pci@node`, or its name in foreign data, with its node
    /// if known (`gpu_0@node`, see [`Identity::name_gpu`]). Never null.
    Uuid,
    /// Vendor of the GPU: `nvidia`, `amd`.
    Vendor,
    /// Product name of the GPU.
    Model,
    /// PCI address, `0000:0c:00.0`.
    Pci,
    /// MIG instance or compute partition; null for a whole GPU.
    Partition,
    /// Version of the GPU's kernel driver.
    Driver,
    /// Version of the video BIOS, as the vendor writes it: `113-D4121EXT-CO1`.
    Vbios,
    /// Kubernetes pod that holds the GPU.
    Pod,
    /// Namespace of the pod.
    Namespace,
    /// Container in the pod.
    Container,
    /// Batch job (Slurm) that holds the GPU.
    Job,
    /// How the row was obtained: `simulated`, `csv`, `json`, `nvml`, `amd-sysfs` …; `operator`: a person said so.
    Source,
}

impl IdentityColumn {
    /// Every column, in table order.
    pub const ALL: [Self; 14] = [
        Self::Cluster,
        Self::Node,
        Self::Uuid,
        Self::Vendor,
        Self::Model,
        Self::Pci,
        Self::Partition,
        Self::Driver,
        Self::Vbios,
        Self::Pod,
        Self::Namespace,
        Self::Container,
        Self::Job,
        Self::Source,
    ];

    /// Name of the column in tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Node => "node",
            Self::Uuid => "uuid",
            Self::Vendor => "vendor",
            Self::Model => "model",
            Self::Pci => "pci",
            Self::Partition => "partition",
            Self::Driver => "driver",
            Self::Vbios => "vbios",
            Self::Pod => "pod",
            Self::Namespace => "namespace",
            Self::Container => "container",
            Self::Job => "job",
            Self::Source => "source",
        }
    }

    /// The column of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }
}

/// Name of the one numeric identity column: the GPU's index on its node.
pub const INDEX_COLUMN: &str = "gpu";

/// Longest identity text in bytes; Kubernetes names end at 253.
pub const TEXT_LEN_MAX: usize = 256;

/// Value of the `source` column that marks simulated data.
pub const SIMULATED: &str = "simulated";

/// Value of the `source` column of what a person said, such as a silence.
pub const OPERATOR: &str = "operator";

/// Value of the `source` column of what an agent says of its own readings, and no driver.
pub const AGENT: &str = "agent";

/// An error in a part of an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Longer than [`TEXT_LEN_MAX`].
    #[error("{column} is {len} bytes long, more than {TEXT_LEN_MAX}")]
    TooLong {
        /// Column that the text was meant for.
        column: &'static str,
        /// Length in bytes.
        len: usize,
    },
    /// A control character, or in `uuid`, `node` and `partition` a character not allowed in a name.
    #[error("{column} has the character {character:?}, which no {column} has")]
    Character {
        /// Column that the text was meant for.
        column: &'static str,
        /// The first such character.
        character: char,
    },
    /// `..` or a leading dot in `uuid`, `node` or `partition`: such a name is an attack or an accident.
    #[error("{column} begins with a dot or has two in a row")]
    Dots {
        /// Column that the text was meant for.
        column: &'static str,
    },
    /// An object, an array or a truth value where a name should be.
    #[error("{field} is neither a text nor a number")]
    NotText {
        /// The field of the message.
        field: String,
    },
    /// An index below 0.
    #[error("the GPU index {0} is negative")]
    Index(i32),
    /// Neither an identity nor an index is given.
    #[error("the row names no GPU")]
    Nobody,
}

/// Identity of a GPU (or, with only `node` set, of a host) when a row was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    texts: [Option<Arc<str>>; IdentityColumn::ALL.len()],
    /// Index on the node. For people; never a key.
    pub index: Option<i32>,
}

impl Identity {
    /// Text of a column.
    pub fn get(&self, column: IdentityColumn) -> Option<&str> {
        self.texts.get(column as usize).and_then(Option::as_deref)
    }

    /// Shared text of a column.
    pub fn shared(&self, column: IdentityColumn) -> Option<&Arc<str>> {
        self.texts.get(column as usize).and_then(Option::as_ref)
    }

    /// Sets a column after checking the text. An empty text unsets it. A PCI address is converted to the
    /// kernel's spelling, because it may become the GPU's identity.
    ///
    /// # Errors
    /// If the text is too long or has characters that the column cannot have.
    pub fn set(&mut self, column: IdentityColumn, text: &str) -> Result<(), IdentityError> {
        check(column, text)?;
        let text = if column == IdentityColumn::Pci { pci(text) } else { Cow::Borrowed(text) };
        if let Some(slot) = self.texts.get_mut(column as usize) {
            *slot = (!text.is_empty()).then(|| Arc::from(text));
        }
        Ok(())
    }

    /// As [`Identity::set`]. The text is shared where it stays as it is.
    ///
    /// # Errors
    /// As [`Identity::set`].
    pub fn set_shared(&mut self, column: IdentityColumn, text: &Arc<str>) -> Result<(), IdentityError> {
        if column == IdentityColumn::Pci || text.is_empty() {
            return self.set(column, text);
        }
        check(column, text)?;
        if let Some(slot) = self.texts.get_mut(column as usize) {
            *slot = Some(Arc::clone(text));
        }
        Ok(())
    }

    /// Takes the texts of another identity in these columns where it has none.
    pub fn fill(&mut self, columns: impl IntoIterator<Item = IdentityColumn>, other: &Self) {
        for column in columns {
            if let Some(slot) = self.texts.get_mut(column as usize).filter(|slot| slot.is_none()) {
                *slot = other.shared(column).cloned();
            }
        }
    }

    /// Sets the GPU's name from foreign data (`gpu_id`): an integer (also `0.0`, as tables with gaps spell
    /// it) is the index on the node, anything else names the GPU unless a `uuid` does. A name such as `gpu_0`
    /// exists on every node, so the node is appended if known: `gpu_0@node`. Call it after `uuid` and `node`
    /// are set.
    ///
    /// # Errors
    /// If the index is negative, or no GPU can have the name, even if it is not needed.
    pub fn name_gpu(&mut self, text: &str) -> Result<(), IdentityError> {
        match text.strip_suffix(".0").unwrap_or(text).parse::<i32>() {
            Ok(index) if index < 0 => return Err(IdentityError::Index(index)),
            Ok(index) => {
                self.index = Some(index);
                return Ok(());
            }
            Err(_) => check(IdentityColumn::Uuid, text)?,
        }
        if self.uuid().is_some() {
            return Ok(());
        }
        match self.node() {
            Some(node) if !is_worldwide(text) && !names_node(text, node) => {
                let name = format!("{text}@{node}");
                self.set(IdentityColumn::Uuid, &name)
            }
            _ => self.set(IdentityColumn::Uuid, text),
        }
    }

    /// [`Identity::set`] as a chain.
    ///
    /// # Errors
    /// As [`Identity::set`].
    pub fn with(mut self, column: IdentityColumn, text: &str) -> Result<Self, IdentityError> {
        self.set(column, text)?;
        Ok(self)
    }

    /// The GPU's identity text.
    pub fn uuid(&self) -> Option<&str> {
        self.get(IdentityColumn::Uuid)
    }

    /// Name of the host, if it is known.
    pub fn node(&self) -> Option<&str> {
        self.get(IdentityColumn::Node)
    }

    /// Whether the row is simulated.
    pub fn is_simulated(&self) -> bool {
        self.get(IdentityColumn::Source) == Some(SIMULATED)
    }

    /// The key of the GPU: `uuid`, or `uuid:partition`. Files, API and store know a GPU by it.
    pub fn key(&self) -> Option<Arc<str>> {
        let uuid = self.shared(IdentityColumn::Uuid)?;
        Some(match self.get(IdentityColumn::Partition) {
            None => Arc::clone(uuid),
            Some(partition) => Arc::from(format!("{uuid}:{partition}")),
        })
    }

    /// Fills in `uuid` if the source had none: PCI address and node, else node and index.
    ///
    /// # Errors
    /// [`IdentityError::Nobody`] if nothing names the GPU.
    pub fn resolve(&mut self) -> Result<(), IdentityError> {
        if self.uuid().is_some() {
            return Ok(());
        }
        let node = self.node().unwrap_or("unknown");
        let mut uuid = String::new();
        if let Some(pci) = self.get(IdentityColumn::Pci) {
            uuid.push_str(pci);
            uuid.push('@');
            uuid.push_str(node);
        } else if let Some(index) = self.index {
            let _written = write!(uuid, "{node}:gpu{index}");
        } else {
            return Err(IdentityError::Nobody);
        }
        self.set(IdentityColumn::Uuid, &uuid)
    }

    /// The GPU that this is a partition of; none if it is no partition, or its own name is all that is known. Who holds the
    /// partition does not hold the GPU.
    pub fn card(&self) -> Option<Self> {
        self.get(IdentityColumn::Partition)?;
        self.uuid().filter(|uuid| !uuid.starts_with("MIG-"))?;
        let mut card = self.clone();
        for column in [
            IdentityColumn::Partition,
            IdentityColumn::Pod,
            IdentityColumn::Namespace,
            IdentityColumn::Container,
            IdentityColumn::Job,
        ] {
            card.set(column, "").ok()?;
        }
        Some(card)
    }

    /// Whether this GPU is known by its place on the node only (see [`Identity::resolve`]), and `other` is
    /// the one in that place under its own name: both are one GPU, whose name could not be read at first.
    pub fn stands_for(&self, other: &Self) -> bool {
        let is_same = |column| self.get(column) == other.get(column);
        let is_there = match (self.get(IdentityColumn::Pci), other.get(IdentityColumn::Pci)) {
            (Some(one), Some(another)) => one == another,
            _ => self.index.is_some() && self.index == other.index,
        };
        is_there
            && is_same(IdentityColumn::Node)
            && is_same(IdentityColumn::Vendor)
            && is_same(IdentityColumn::Partition)
            && self.is_named_by_place()
            && !other.is_named_by_place()
    }

    fn is_named_by_place(&self) -> bool {
        let mut place = self.clone();
        let named = place.set(IdentityColumn::Uuid, "").and_then(|()| place.resolve());
        named.is_ok() && place.uuid() == self.uuid()
    }
}

/// `NVIDIA A100-SXM4-40GB MIG 1g.5gb`, as the driver names a MIG instance, to the GPU's name and the profile.
pub fn split_profile(model: &str) -> (&str, Option<&str>) {
    model.split_once(" MIG ").map_or((model, None), |(model, profile)| (model, Some(profile)))
}

/// Whether the name is globally unique: a UUID or serial number, not a word and a count.
fn is_worldwide(name: &str) -> bool {
    let bare = ["GPU-", "MIG-", "0x"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let digits = bare.bytes().filter(u8::is_ascii_hexdigit).count();
    digits >= 12 && bare.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Whether the name already contains the node: `node:gpu3`, `0000:0c:00.0@node`.
fn names_node(name: &str, node: &str) -> bool {
    name.strip_prefix(node).is_some_and(|rest| rest.starts_with(':'))
        || name.strip_suffix(node).is_some_and(|rest| rest.ends_with('@'))
}

/// `00000000:0C:00.0` as nvidia-smi prints it to the kernel's `0000:0c:00.0`.
fn pci(text: &str) -> Cow<'_, str> {
    let short = text.strip_prefix("0000").filter(|rest| rest.len() >= 12).unwrap_or(text);
    if short.bytes().any(|b| b.is_ascii_uppercase()) {
        short.to_ascii_lowercase().into()
    } else {
        short.into()
    }
}

/// A host as `cluster/node`, by its name alone if no cluster is known: two clusters may have hosts of one name.
pub fn host_id(cluster: Option<&str>, node: &str) -> Arc<str> {
    cluster.map_or_else(|| node.into(), |cluster| format!("{cluster}/{node}").into())
}

fn check(column: IdentityColumn, text: &str) -> Result<(), IdentityError> {
    let name = column.name();
    if text.len() > TEXT_LEN_MAX {
        return Err(IdentityError::TooLong { column: name, len: text.len() });
    }
    let strict = matches!(column, IdentityColumn::Uuid | IdentityColumn::Node | IdentityColumn::Partition);
    let bad =
        |c: char| if strict { !(c.is_ascii_alphanumeric() || "-_.:@+".contains(c)) } else { c.is_control() };
    if let Some(character) = text.chars().find(|&c| bad(c)) {
        return Err(IdentityError::Character { column: name, character });
    }
    if strict && (text.starts_with('.') || text.contains("..")) {
        return Err(IdentityError::Dots { column: name });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused() {
        let set = |text: &str| Identity::default().with(IdentityColumn::Uuid, text).map(|_| ());
        assert_eq!(set("../../x"), Err(IdentityError::Character { column: "uuid", character: '/' }));
        assert_eq!(set(".."), Err(IdentityError::Dots { column: "uuid" }));
        assert_eq!(set("a\0b"), Err(IdentityError::Character { column: "uuid", character: '\0' }));
        assert!(matches!(set(&"x".repeat(300)), Err(IdentityError::TooLong { len: 300, .. })));
        assert_eq!(set("GPU-5fd4f087-86f3-7a43-b711-4771313afc50"), Ok(()));
    }

    #[test]
    fn a_gpu_without_uuid_is_named_by_address_then_by_index() {
        let mut by_pci = Identity::default()
            .with(IdentityColumn::Node, "n1")
            .and_then(|i| i.with(IdentityColumn::Pci, "0000:0c:00.0"))
            .unwrap();
        by_pci.resolve().unwrap();
        assert_eq!(by_pci.uuid(), Some("0000:0c:00.0@n1"));
        let mut by_index = Identity { index: Some(3), ..Identity::default() };
        by_index.resolve().unwrap();
        assert_eq!(by_index.uuid(), Some("unknown:gpu3"));
        assert_eq!(Identity::default().resolve(), Err(IdentityError::Nobody));
    }

    #[test]
    fn a_gpu_known_by_its_place_is_the_one_that_is_named_there() {
        let gpu = |index: i32, pci: &str, uuid: &str| {
            let id = Identity { index: Some(index), ..Identity::default() };
            let id = id.with(IdentityColumn::Node, "n1").and_then(|id| id.with(IdentityColumn::Pci, pci));
            let mut id = id.and_then(|id| id.with(IdentityColumn::Uuid, uuid)).unwrap();
            id.resolve().unwrap();
            id
        };
        let named = gpu(1, "0000:0c:00.0", "GPU-1");
        assert!(gpu(1, "", "").stands_for(&named));
        assert!(gpu(7, "0000:0c:00.0", "").stands_for(&named), "an address says more than an index");
        for other in [gpu(1, "0000:0d:00.0", ""), gpu(0, "", ""), gpu(1, "0000:0c:00.0", "GPU-2")] {
            assert!(!other.stands_for(&named), "{other:?}");
        }
        assert!(!named.stands_for(&gpu(1, "", "")), "it has a name");
        assert!(!gpu(1, "", "").stands_for(&gpu(1, "", "")), "the same has no better name");
        let part = named.with(IdentityColumn::Partition, "1g.5gb:0").unwrap();
        assert!(!gpu(1, "", "").stands_for(&part), "a part is not the whole");
    }

    #[test]
    fn a_foreign_name_is_one_gpu_only_with_its_node() {
        let check = |node: &str, name: &str, uuid: Option<&str>| {
            let mut id = Identity::default().with(IdentityColumn::Node, node).unwrap();
            id.name_gpu(name).unwrap();
            assert_eq!(id.uuid(), uuid, "{name} on {node}");
        };
        check("a", "gpu_0", Some("gpu_0@a"));
        check("b", "gpu_0", Some("gpu_0@b"));
        check("", "gpu_0", Some("gpu_0"));
        check("a", "0000:0c:00.0", Some("0000:0c:00.0@a"));
        check(
            "a",
            "GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
            Some("GPU-5fd4f087-86f3-7a43-b711-4771313afc50"),
        );
        check("a", "0x1a2b3c4d5e6f7788", Some("0x1a2b3c4d5e6f7788"));
        check("n1", "n1:gpu3", Some("n1:gpu3"));
        check("n1", "0000:0c:00.0@n1", Some("0000:0c:00.0@n1"));
        check("a", "3", None);
        let mut counted = Identity::default();
        counted.name_gpu("7.0").unwrap();
        assert_eq!((counted.index, counted.uuid()), (Some(7), None));
        assert_eq!(Identity::default().name_gpu("-1"), Err(IdentityError::Index(-1)));
        let mut known = Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap();
        known.name_gpu("gpu_0").unwrap();
        assert_eq!(known.uuid(), Some("GPU-1"));
        assert!(known.name_gpu("../../x").is_err(), "a hostile name is no good beside a uuid either");
    }

    #[test]
    fn a_pci_address_has_one_spelling() {
        for spelling in ["00000000:0C:00.0", "0000:0C:00.0", "0000:0c:00.0"] {
            let id = Identity::default().with(IdentityColumn::Pci, spelling).unwrap();
            assert_eq!(id.get(IdentityColumn::Pci), Some("0000:0c:00.0"));
        }
    }

    #[test]
    fn the_partition_is_part_of_the_key() {
        let id = Identity::default()
            .with(IdentityColumn::Uuid, "GPU-1")
            .and_then(|i| i.with(IdentityColumn::Partition, "cpx3"))
            .unwrap();
        assert_eq!(id.key().as_deref(), Some("GPU-1:cpx3"));
    }
}
