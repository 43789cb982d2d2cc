//! The sums of one GPU.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::columns::Columns;
use super::line::{Line, Peaks, hour_of};
use super::part::{self, EXCLUSIVE, Instance, Parts, Slice};
use super::sharing::{NOBODY, Sharing, UNOBSERVED};
use super::work::{ListedProcess, Work, WorkTimes};
use crate::integral::seconds;
use crate::throttle::Residency;
use crate::time::{DAY_NS, HOUR_NS};
use crate::usage::fold::{HolderUse, UseFold};
use crate::{Identity, IdentityColumn};

/// A sample that is further behind the one before it: the clock was set back. The GPU's sums begin anew, as another run.
const BEHIND_NS: i64 = 10_000_000_000;
/// Longest time without rows that is told. A longer one is none: a clock was set, such as one that began in 1970.
const UNOBSERVED_MAX_NS: i64 = 31 * DAY_NS;
/// A MIG instance without a row for so long is gone, at least three samples of its GPU.
const INSTANCE_NS: i64 = 30_000_000_000;
/// A listing of processes holds for so long, at least half again as long as those before it were apart: a GPU without a process is not
/// listed, so its last one would hold on.
const LISTED_NS: i64 = 45_000_000_000;

/// The use of one GPU, as it is being added up.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) fold: UseFold,
    counted: Residency,
    /// The GPU, without a holder.
    gpu: Arc<Identity>,
    /// How often its sums have begun anew.
    pub(super) run: i64,
    /// Time of its last sample.
    pub(super) last_ns: i64,
    /// Who had it in the last row.
    last: Option<Parts>,
    slots: Vec<Slot>,
    /// Number of the next place of the fold.
    next: u32,
    unobserved: Vec<Unobserved>,
    /// Its MIG instances, and what they make of who has the GPU itself.
    instances: Vec<Instance>,
    division: Option<(Parts, Parts)>,
    /// The last listing of its processes.
    listing: Option<Listing>,
    /// Up to when it is added up, and known whose work it was.
    as_of_ns: i64,
    /// Times from one listing to the next in which the work of its holders is known.
    spells: Vec<Spell>,
}

/// Some holders of a GPU in an hour.
#[derive(Debug)]
struct Slot {
    /// Its place in the fold.
    number: u32,
    hour_ns: i64,
    parts: Parts,
    /// The spell in which these holders are told apart by their work.
    spell: Option<u32>,
    peaks: Peaks,
    /// The same of the MIG instances, part by part.
    own: Vec<Peaks>,
    /// What was told last, and the `as_of_ns` that it had when it was new.
    told: Option<(HolderUse, i64)>,
}

/// Time of an hour without rows.
#[derive(Debug)]
struct Unobserved {
    hour_ns: i64,
    unseen_ns: i64,
    /// The `as_of_ns` of its row; none: it has not been told.
    told: Option<i64>,
}

/// A listing of processes.
#[derive(Debug)]
struct Listing {
    at_ns: i64,
    until_ns: i64,
    /// The users that work on the GPU; nobody if there are none.
    users: Option<Parts>,
    /// The spell that it began, if it knows the work of the holders.
    spell: Option<u32>,
}

/// The work of holders over some time.
#[derive(Debug)]
struct Spell {
    number: u32,
    times: WorkTimes,
    /// How they are known, as rows call it.
    share: &'static str,
}

impl Account {
    pub(super) fn of(identity: &Identity, run: i64) -> Self {
        Self {
            fold: UseFold::default(),
            counted: Residency::default(),
            gpu: Arc::new(part::free(identity)),
            run,
            last_ns: i64::MIN,
            last: None,
            slots: Vec::new(),
            next: 0,
            unobserved: Vec::new(),
            instances: Vec::new(),
            division: None,
            listing: None,
            as_of_ns: i64::MIN,
            spells: Vec::new(),
        }
    }

    pub(super) fn is_far_behind(&self, time_ns: i64) -> bool {
        time_ns < self.last_ns.saturating_sub(BEHIND_NS)
    }

    pub(super) fn vendor(&self) -> Option<&str> {
        self.gpu.get(IdentityColumn::Vendor)
    }

    /// Adds a row of the GPU, which these have by what its row says; whether it has changed hands by it.
    pub(super) fn add(&mut self, columns: &Columns<'_>, row: usize, time_ns: i64, own: &Parts) -> bool {
        let (parts, spell) = self.whose(time_ns, own);
        self.last_ns = time_ns;
        let hour_ns = hour_of(time_ns);
        let is_same = |slot: &Slot| {
            slot.hour_ns == hour_ns && slot.spell == spell && part::are_same(&slot.parts, &parts)
        };
        let at = self.slots.iter().rposition(is_same).unwrap_or_else(|| {
            let number = self.next;
            self.next = self.next.wrapping_add(1);
            let (peaks, own) = (Peaks::default(), vec![Peaks::default(); parts.len()]);
            let parts = Arc::clone(&parts);
            self.slots.push(Slot { number, hour_ns, parts, spell, peaks, own, told: None });
            self.slots.len() - 1
        });
        let Some(slot) = self.slots.get_mut(at) else { return false };
        slot.peaks = slot.peaks.and(columns.peaks(row));
        let number = slot.number;
        let stay = columns.used.stay_by_limit(row, time_ns, &mut self.counted);
        if let Some(gap) = self.fold.add(number, stay) {
            self.note_gap(gap);
        }
        let before = self.last.replace(Arc::clone(&parts));
        before.is_some_and(|before| !part::are_same(&before, &parts))
    }

    /// Who has the GPU at a row, and the spell in which these are told apart by their work.
    fn whose(&mut self, time_ns: i64, own: &Parts) -> (Parts, Option<u32>) {
        let apart_ns = time_ns.saturating_sub(self.last_ns.max(0));
        let gone_ns = time_ns.saturating_sub(apart_ns.saturating_mul(3).max(INSTANCE_NS));
        let instances = self.instances.len();
        self.instances.retain(|one| one.seen_ns >= gone_ns);
        if self.instances.len() < instances {
            self.division = None;
        }
        if !self.instances.is_empty() {
            return (self.divided(own), None);
        }
        let listing = self.listing.as_ref().filter(|listing| time_ns <= listing.until_ns);
        let is_free = own.iter().all(|part| *part.holder == *NOBODY);
        let users = listing.and_then(|listing| listing.users.as_ref()).filter(|_| is_free);
        let parts = users.unwrap_or(own);
        let spell = listing.and_then(|listing| listing.spell).filter(|_| parts.len() > 1);
        // One copy, so that the next row need not be compared text by text.
        let kept = self.last.as_ref().filter(|last| part::are_same(last, parts));
        (Arc::clone(kept.unwrap_or(parts)), spell)
    }

    /// The parts of the instances and of those who have the GPU itself.
    fn divided(&mut self, own: &Parts) -> Parts {
        if let Some((of, divided)) = &self.division
            && part::are_same(of, own)
        {
            return Arc::clone(divided);
        }
        let divided = part::by_slices(&self.instances, own);
        self.division = Some((Arc::clone(own), Arc::clone(&divided)));
        divided
    }

    /// Notes a row of a MIG instance of this GPU: who has it, and what is its own.
    pub(super) fn note_instance(
        &mut self,
        key: &Arc<str>,
        slice: &Slice,
        parts: &Parts,
        time_ns: i64,
        peaks: Peaks,
    ) {
        if let Some(one) = self.instances.iter_mut().find(|one| one.key == *key) {
            one.seen_ns = time_ns;
            if one.slice != *slice || !part::are_same(&one.parts, parts) {
                (one.slice, one.parts) = (slice.clone(), Arc::clone(parts));
                self.division = None;
            }
        } else {
            let (key, slice, parts) = (Arc::clone(key), slice.clone(), Arc::clone(parts));
            self.instances.push(Instance { key, slice, parts, seen_ns: time_ns });
            self.division = None;
        }
        let Some(last) = &self.last else { return };
        let mut slots = self.slots.iter_mut().rev();
        let Some(slot) = slots.find(|slot| part::are_same(&slot.parts, last)) else { return };
        for (part, own) in slot.parts.iter().zip(&mut slot.own) {
            if part.instance.as_ref() == Some(key) {
                *own = own.and(peaks);
            }
        }
    }

    /// Takes a listing of the GPU's processes: what it says of work is of the time since the listing before.
    pub(super) fn list(&mut self, time_ns: i64, processes: &[ListedProcess], sharing: &dyn Sharing) {
        if self.listing.as_ref().is_some_and(|before| time_ns <= before.at_ns) {
            return;
        }
        let parts = self.last.as_ref();
        let holds =
            |holder: &str| parts.is_some_and(|parts| parts.iter().any(|part| *part.holder == *holder));
        let work = Work::of(processes, sharing, holds);
        let before = self.listing.take();
        if let (Some(number), Some(times)) = (before.as_ref().and_then(|before| before.spell), &work.times) {
            self.know(number, times, work.share);
            // What is told anew has a later version, also without a row since then.
            self.as_of_ns = self.as_of_ns.max(time_ns);
        }
        let apart_ns = before.map_or(0, |before| time_ns.saturating_sub(before.at_ns));
        let spell = work.times.map(|times| {
            let number = self.spells.last().map_or(0, |spell| spell.number.wrapping_add(1));
            // Until the next listing says how it was.
            self.spells.push(Spell { number, times, share: work.share });
            number
        });
        self.listing = Some(Listing {
            at_ns: time_ns,
            until_ns: time_ns.saturating_add((apart_ns / 2).saturating_mul(3).max(LISTED_NS)),
            users: (!work.users.is_empty()).then(|| part::of_users(&work.users, &self.gpu)),
            spell,
        });
    }

    /// Sets the work of a spell. Of a holder whose processes have gone since it began nothing newer is known.
    fn know(&mut self, number: u32, times: &WorkTimes, share: &'static str) {
        if let Some(spell) = self.spells.iter_mut().find(|spell| spell.number == number) {
            // What is known in another way has another unit.
            let is_alike = spell.share == share;
            let is_gone =
                |one: &&(Arc<str>, f64)| is_alike && times.iter().all(|(holder, _)| *holder != one.0);
            let gone = spell.times.iter().filter(is_gone);
            spell.times = times.iter().chain(gone).cloned().collect();
            spell.share = share;
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.spell == Some(number)) {
            slot.told = None;
        }
    }

    /// Notes a time without rows, hour by hour.
    pub(super) fn note_gap(&mut self, (mut from_ns, until_ns): (i64, i64)) {
        if until_ns.saturating_sub(from_ns) > UNOBSERVED_MAX_NS {
            return;
        }
        while from_ns < until_ns {
            let hour_ns = hour_of(from_ns);
            let end_ns = hour_ns.saturating_add(HOUR_NS).min(until_ns);
            let unseen_ns = end_ns - from_ns;
            match self.unobserved.iter_mut().find(|hour| hour.hour_ns == hour_ns) {
                Some(hour) => {
                    hour.unseen_ns += unseen_ns;
                    hour.told = None;
                }
                None => self.unobserved.push(Unobserved { hour_ns, unseen_ns, told: None }),
            }
            from_ns = end_ns;
        }
    }

    /// Up to when it is added up; none before the first row. It never falls: of two rows of one key the later one stays.
    pub(super) fn as_of_ns(&mut self) -> Option<i64> {
        self.as_of_ns = self.as_of_ns.max(self.fold.last_ns()?);
        Some(self.as_of_ns)
    }

    /// What each holder used in each hour that may still change, or has not been told often enough.
    pub(super) fn lines(&mut self, as_of_ns: i64) -> Vec<Line> {
        let mut lines = Vec::new();
        let places = self.fold.held().iter().map(|place| (place.number, place.held));
        let held: HashMap<u32, HolderUse, RandomState> = places.collect();
        for slot in &mut self.slots {
            let Some(used) = held.get(&slot.number) else { continue };
            let spell = slot.spell.and_then(|number| {
                let at = self.spells.binary_search_by_key(&number, |spell| spell.number).ok()?;
                self.spells.get(at)
            });
            slot.add_to(&mut lines, *used, spell, as_of_ns);
        }
        lines.extend(self.unobserved.iter_mut().map(|hour| Line {
            hour_ns: hour.hour_ns,
            holder: UNOBSERVED.into(),
            share: EXCLUSIVE,
            identity: Arc::clone(&self.gpu),
            used: HolderUse { seconds: seconds(hour.unseen_ns), ..HolderUse::default() },
            peaks: Peaks::default(),
            is_news: hour.told.is_none(),
            as_of_ns: *hour.told.get_or_insert(as_of_ns),
        }));
        lines
    }

    /// Forgets the hours to which nothing is added any more: all of them has been told, and told again, if none of it was new in the hour
    /// that is given or after it. An hour stays or goes as a whole, since a holder's row is made of all of its slots.
    pub(super) fn settle(&mut self, as_of_ns: i64, new_ns: Option<i64>) {
        // The next listing says how the work of this spell was.
        let listing = self.listing.as_ref().filter(|listing| as_of_ns <= listing.until_ns);
        let going = listing.and_then(|listing| listing.spell);
        let is_open =
            |slot: &&Slot| self.fold.is_open(slot.number) || (going.is_some() && slot.spell == going);
        let open = self.slots.iter().filter(is_open);
        let last_ns = hour_of(as_of_ns);
        let from_ns = open.map(|slot| slot.hour_ns).chain(new_ns).fold(last_ns, i64::min);
        if self.slots.iter().any(|slot| slot.hour_ns < from_ns) {
            let slots = &mut self.slots;
            self.fold
                .forget(|number| slots.iter().any(|slot| slot.number == number && slot.hour_ns < from_ns));
            slots.retain(|slot| slot.hour_ns >= from_ns);
            let is_used = |number: u32| slots.iter().any(|slot| slot.spell == Some(number));
            self.spells.retain(|spell| Some(spell.number) == going || is_used(spell.number));
        }
        self.unobserved.retain(|hour| hour.hour_ns >= from_ns);
    }
}

impl Slot {
    /// Adds what each of the holders used, who used this together, to the lines of theirs.
    fn add_to(&mut self, lines: &mut Vec<Line>, used: HolderUse, spell: Option<&Spell>, as_of_ns: i64) {
        let before = self.told.filter(|(told, _)| *told == used);
        let (_, as_of_ns) = *self.told.insert(before.unwrap_or((used, as_of_ns)));
        let is_news = before.is_none();
        let worked = spell.map(|spell| (spell.share, part::by_work(&self.parts, &spell.times)));
        for (at, part) in self.parts.iter().enumerate() {
            let work = worked.as_ref().and_then(|(share, worked)| Some((*share, *worked.get(at)?)));
            let own = self.own.get(at).filter(|_| part.instance.is_some());
            let line = Line {
                hour_ns: self.hour_ns,
                holder: Arc::clone(&part.holder),
                share: work.map_or(part.share, |(share, _)| share),
                identity: Arc::clone(&part.identity),
                used: match work {
                    Some((_, work)) => used.part_by_work(part.fraction, work),
                    None => used.part(part.fraction),
                },
                peaks: *own.unwrap_or(&self.peaks),
                is_news,
                as_of_ns,
            };
            line.join(lines);
        }
    }
}
