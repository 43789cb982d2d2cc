//! A file that keeps everything that a crash may leave of it.

use std::collections::BTreeMap;

use super::sector::SECTOR_LEN;

#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    pub(super) durable: Vec<u8>,
    /// Contents as reads see them.
    pub(super) view: Vec<u8>,
    /// Lengths since the last sync.
    pub(super) lens: Vec<usize>,
    /// Contents of a sector since the last sync.
    pub(super) versions: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Bits that reads get wrong.
    pub(super) flips: BTreeMap<usize, u8>,
    /// Bytes that cannot be read.
    pub(super) spoilt: std::ops::Range<usize>,
}

impl Inode {
    /// Notes the new contents of the sectors that hold `from..until`.
    fn touch(&mut self, from: usize, until: usize) {
        self.lens.push(self.view.len());
        for sector in from / SECTOR_LEN..until.div_ceil(SECTOR_LEN) {
            let start = (sector * SECTOR_LEN).min(self.view.len());
            let end = (start + SECTOR_LEN).min(self.view.len());
            let content = self.view.get(start..end).unwrap_or_default().to_vec();
            self.versions.entry(sector).or_default().push(content);
        }
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        let from = offset.min(self.view.len());
        if self.view.len() < end {
            self.view.resize(end, 0);
        }
        if let Some(target) = self.view.get_mut(offset..end) {
            target.copy_from_slice(bytes);
        }
        self.touch(from, end);
    }

    pub(super) fn set_len(&mut self, len: usize) {
        let (from, until) = (len.min(self.view.len()), len.max(self.view.len()));
        self.view.resize(len, 0);
        self.touch(from, until);
    }

    pub(super) fn sync(&mut self) {
        self.crash_to(Memory::Everything, &mut Dice(0));
    }

    pub(super) fn crash(&mut self, mode: Memory, dice: &mut Dice) {
        self.crash_to(mode, dice);
        self.view.clone_from(&self.durable);
        self.flips.clear();
    }

    /// Makes as much of the unsynced data durable as `mode` keeps.
    fn crash_to(&mut self, mode: Memory, dice: &mut Dice) {
        for (sector, versions) in std::mem::take(&mut self.versions) {
            let Some(version) = mode.choose(&versions, dice) else { continue };
            let start = sector * SECTOR_LEN;
            if self.durable.len() < start + SECTOR_LEN {
                self.durable.resize(start + SECTOR_LEN, 0);
            }
            if let Some(target) = self.durable.get_mut(start..start + SECTOR_LEN) {
                let (head, tail) = target.split_at_mut(version.len());
                head.copy_from_slice(version);
                tail.fill(0);
            }
        }
        let lens = std::mem::take(&mut self.lens);
        let len = mode.choose(&lens, dice).copied();
        self.durable.resize(len.unwrap_or(self.durable.len()), 0);
    }
}

/// The share of the unsynced data that a crash keeps.
#[derive(Clone, Copy)]
pub(super) enum Memory {
    Nothing,
    Everything,
    /// Each piece with this probability in percent.
    Some(u64),
}

impl Memory {
    pub(super) fn keeps(self, dice: &mut Dice) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Some(percent) => dice.below(100) < percent,
        }
    }

    /// The newest, an older one, or none.
    fn choose<'a, T>(self, versions: &'a [T], dice: &mut Dice) -> Option<&'a T> {
        if !self.keeps(dice) {
            return None;
        }
        let is_newest = matches!(self, Self::Everything) || dice.below(2) == 0;
        let count = versions.len();
        if is_newest {
            versions.last()
        } else {
            versions.get(usize::try_from(dice.below(count as u64)).unwrap_or(0))
        }
    }
}

/// Random numbers by splitmix64: equal seeds give equal crashes.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}
