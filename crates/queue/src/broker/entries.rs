//! The frames that a topic holds, in few bytes each.
//!
//! Offsets follow each other, so frames stand in blocks of consecutive ones. A block has a slot for each frame that it
//! holds, and the bytes of its small frames one behind the other; those of a large one stay where they are. Frames leave in
//! any order: a block is tidied up as they do, so that one that stays for long does not hold the memory of the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuvitals_log::Place;

use super::packed::{self, Packed};
use super::terms::Lent;
use crate::frame::{ContentType, Frame, Millis};

/// Offsets of a block.
const BLOCK: u64 = 128;
/// A block is tidied up when one in so many frames has left it since the last time.
const TIDIED_AT: usize = 16;

/// A frame that is held: in memory, on disk, or both.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldFrame {
    /// Where the log has it.
    pub(super) place: Option<Place>,
    /// Its record is damaged, so that nothing is lost with its segment.
    pub(super) is_damaged: bool,
    /// Whether it is in memory.
    pub(super) is_loaded: bool,
    /// Messages in it.
    pub(super) count: u32,
    /// What it counts against bounds.
    pub(super) cost: u64,
    pub(super) published_at: Millis,
}

impl HeldFrame {
    /// Whether it takes memory that it could do without.
    pub(super) fn is_cached(&self) -> bool {
        self.is_loaded && self.place.is_some()
    }

    /// Its place, if the segment there must not go.
    pub(super) fn needed_place(&self) -> Option<Place> {
        self.place.filter(|_| !self.is_damaged)
    }
}

/// A frame that is to be held.
#[derive(Debug)]
pub(super) struct FrameEntry {
    /// The frame, if it is in memory.
    pub(super) frame: Option<Arc<Frame>>,
    pub(super) place: Option<Place>,
    pub(super) count: u32,
    pub(super) cost: u64,
    pub(super) published_at: Millis,
}

/// Where a frame's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    OnDisk,
    Packed,
    Large,
}

/// What is kept of each frame: 24 bytes.
#[derive(Debug)]
struct FrameSlot {
    published_at: Millis,
    count: u32,
    /// A frame of 4 GiB or more, which no protocol carries, counts as one of that size.
    cost: u32,
    /// Where it begins, if it is packed.
    start: u32,
    /// Its offset in the block.
    index: u8,
    body: Body,
    is_damaged: bool,
}

#[derive(Debug, Default)]
struct Block {
    /// Its frames, sorted by their place in the block.
    slots: Vec<FrameSlot>,
    /// Of each slot, or empty while the log has none of them.
    places: Vec<Option<Place>>,
    /// The small frames.
    packed: Vec<u8>,
    /// Ids of the stamps of small frames.
    ids: Vec<Arc<str>>,
    /// The large frames.
    large: BTreeMap<u8, Arc<Frame>>,
    /// Frames that left the memory since it was tidied up.
    gone: usize,
}

impl Block {
    fn find(&self, index: u8) -> Result<usize, usize> {
        self.slots.binary_search_by_key(&index, |slot| slot.index)
    }

    fn held(&self, at: usize) -> Option<HeldFrame> {
        let slot = self.slots.get(at)?;
        Some(HeldFrame {
            place: self.places.get(at).copied().flatten(),
            is_damaged: slot.is_damaged,
            is_loaded: slot.body != Body::OnDisk,
            count: slot.count,
            cost: slot.cost.into(),
            published_at: slot.published_at,
        })
    }

    fn insert(&mut self, index: u8, entry: FrameEntry, id: Option<Arc<str>>) {
        let Err(at) = self.find(index) else { return };
        let start = u32::try_from(self.packed.len()).unwrap_or(u32::MAX);
        let body = entry.frame.map_or(Body::OnDisk, |frame| self.take_in(index, frame, id));
        let slot = FrameSlot {
            published_at: entry.published_at,
            count: entry.count,
            cost: u32::try_from(entry.cost).unwrap_or(u32::MAX),
            start,
            index,
            body,
            is_damaged: false,
        };
        if entry.place.is_some() && self.places.is_empty() {
            self.places.resize(self.slots.len(), None);
        }
        if entry.place.is_some() || !self.places.is_empty() {
            self.places.insert(at, entry.place);
        }
        self.slots.insert(at, slot);
    }

    fn take_in(&mut self, index: u8, frame: Arc<Frame>, id: Option<Arc<str>>) -> Body {
        if packed::fits(&frame) {
            let id = id.or_else(|| frame.producer.as_ref().map(|stamp| Arc::clone(&stamp.id)));
            if let Some(number) = id.map_or(Some(0), |id| number_of(&mut self.ids, &id)) {
                packed::pack(&mut self.packed, &frame, number);
                return Body::Packed;
            }
        }
        self.large.insert(index, frame);
        Body::Large
    }

    fn remove(&mut self, index: u8) -> Option<HeldFrame> {
        let at = self.find(index).ok()?;
        let held = self.held(at);
        self.slots.remove(at);
        if at < self.places.len() {
            self.places.remove(at);
        }
        self.large.remove(&index);
        self.one_is_gone();
        held
    }

    /// Lets a frame's memory go.
    fn unload(&mut self, index: u8) {
        let slot = self.find(index).ok().and_then(|at| self.slots.get_mut(at));
        if let Some(slot) = slot {
            slot.body = Body::OnDisk;
            self.large.remove(&index);
            self.one_is_gone();
        }
    }

    fn one_is_gone(&mut self) {
        self.gone += 1;
        let needs_bytes = || self.slots.iter().any(|slot| slot.body == Body::Packed);
        if self.gone * TIDIED_AT > self.slots.len() || !self.packed.is_empty() && !needs_bytes() {
            self.tidy();
        }
    }

    /// Keeps no more memory than the frames need that are there.
    fn tidy(&mut self) {
        self.gone = 0;
        let old = std::mem::take(&mut self.packed);
        let old_ids = std::mem::take(&mut self.ids);
        let is_packed = |slot: &&mut FrameSlot| slot.body == Body::Packed;
        let frame_of = |slot: &FrameSlot| Packed::first_of(old.get(slot.start as usize..)?);
        let packed_len = |slot: &FrameSlot| frame_of(slot).map_or(0, |frame| frame.bytes.len());
        let len = self.slots.iter().filter(|slot| slot.body == Body::Packed).map(packed_len).sum();
        self.packed = Vec::with_capacity(len);
        for slot in self.slots.iter_mut().filter(is_packed) {
            let Some(frame) = frame_of(slot) else { continue };
            let id = frame.id.and_then(|id| old_ids.get(usize::from(id)));
            let number = id.and_then(|id| number_of(&mut self.ids, id)).unwrap_or(0);
            slot.start = u32::try_from(self.packed.len()).unwrap_or(u32::MAX);
            frame.pack(&mut self.packed, number);
        }
        self.shrink();
    }

    /// Keeps no memory ready for more.
    fn shrink(&mut self) {
        self.slots.shrink_to_fit();
        self.places.shrink_to_fit();
        self.packed.shrink_to_fit();
        self.ids.shrink_to_fit();
    }

    fn lend(&self, index: u8) -> Option<Lent<Arc<Frame>>> {
        let at = self.find(index).ok()?;
        let slot = self.slots.get(at)?;
        let in_memory = match slot.body {
            Body::OnDisk => None,
            Body::Large => self.large.get(&index).map(Arc::clone),
            Body::Packed => {
                let packed = Packed::first_of(self.packed.get(slot.start as usize..)?)?;
                let id = packed.id.and_then(|id| self.ids.get(usize::from(id)));
                Some(Arc::new(packed.frame(slot.count, id)))
            }
        };
        Some(match in_memory {
            Some(item) => Lent { item, place: None },
            None => Lent {
                item: Arc::new(Frame::new(ContentType::Batch, slot.count, Vec::new())),
                place: self.places.get(at).copied().flatten(),
            },
        })
    }
}

/// The number of an id in a list that shares what its producer is known by. `None` if the list is full.
fn number_of(ids: &mut Vec<Arc<str>>, id: &Arc<str>) -> Option<u8> {
    let known = ids.iter().rposition(|known| Arc::ptr_eq(known, id));
    let number = u8::try_from(known.unwrap_or(ids.len())).ok()?;
    if known.is_none() {
        ids.push(Arc::clone(id));
    }
    Some(number)
}

/// The frames of a topic, by offset.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// By the first offset of each, in blocks; none is empty.
    blocks: BTreeMap<u64, Block>,
    len: usize,
}

/// The block of an offset, and the offset there.
fn split(offset: u64) -> (u64, u8) {
    (offset / BLOCK, u8::try_from(offset % BLOCK).unwrap_or(u8::MAX))
}

impl Entries {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, offset: u64) -> Option<HeldFrame> {
        let (block, index) = split(offset);
        let block = self.blocks.get(&block)?;
        block.held(block.find(index).ok()?)
    }

    pub(super) fn contains(&self, offset: u64) -> bool {
        let (block, index) = split(offset);
        self.blocks.get(&block).is_some_and(|block| block.find(index).is_ok())
    }

    /// The frames from `start` on, in order.
    pub(super) fn from(&self, start: u64) -> impl Iterator<Item = (u64, HeldFrame)> {
        let (first, index) = split(start);
        self.blocks.range(first..).flat_map(move |(number, block)| {
            let skipped = if *number == first { block.find(index).unwrap_or_else(|at| at) } else { 0 };
            let slots = block.slots.iter().enumerate().skip(skipped);
            slots
                .filter_map(move |(at, slot)| Some((number * BLOCK + u64::from(slot.index), block.held(at)?)))
        })
    }

    /// All frames, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, HeldFrame)> {
        self.from(0)
    }

    /// The frame to be given to someone: as it is, or a blank one and where to read it.
    pub(super) fn lend(&self, offset: u64) -> Option<Lent<Arc<Frame>>> {
        let (block, index) = split(offset);
        self.blocks.get(&block)?.lend(index)
    }

    /// Holds a frame, unless there is one of that offset. `id` is what the producer of its stamp is known by.
    pub(super) fn insert(&mut self, offset: u64, entry: FrameEntry, id: Option<Arc<str>>) {
        if self.contains(offset) {
            return;
        }
        let (number, index) = split(offset);
        if !self.blocks.contains_key(&number)
            && let Some((_, before)) = self.blocks.range_mut(..number).next_back()
        {
            // It is full as a rule.
            before.shrink();
        }
        self.blocks.entry(number).or_default().insert(index, entry, id);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, offset: u64) -> Option<HeldFrame> {
        let (number, index) = split(offset);
        let block = self.blocks.get_mut(&number)?;
        let held = block.remove(index)?;
        if block.slots.is_empty() {
            self.blocks.remove(&number);
        }
        self.len -= 1;
        Some(held)
    }

    /// Lets a frame's memory go: it is on disk.
    pub(super) fn unload(&mut self, offset: u64) {
        let (block, index) = split(offset);
        if let Some(block) = self.blocks.get_mut(&block) {
            block.unload(index);
        }
    }

    /// A frame that is on disk lies elsewhere, or in the same place, damaged.
    pub(super) fn moved(&mut self, offset: u64, place: Place, is_damaged: bool) {
        let (block, index) = split(offset);
        let Some(block) = self.blocks.get_mut(&block) else { return };
        let Ok(at) = block.find(index) else { return };
        if let (Some(slot), Some(known)) = (block.slots.get_mut(at), block.places.get_mut(at)) {
            slot.is_damaged = is_damaged;
            *known = Some(place);
        }
    }
}
