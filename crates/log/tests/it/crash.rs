//! Crashes: after any of them, everything acknowledged is there, once and in order, and otherwise only a
//! prefix of the records in flight.

use std::io::ErrorKind;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use gpuvitals_log::fault::{Fault, FaultDisk, Op};
use gpuvitals_log::{Appended, Durability, Log, LogConfig, LogError, Place};

use crate::bench::{commit_here, files, outcome_of, success_of, tiny};

/// One thing that a program does with the log; all of them wait for their outcome.
#[derive(Debug, Clone, Copy)]
enum Action {
    Append(Durability),
    /// One record, and while it is answered this many others, which then form one group.
    Group(u64),
    Sync,
    /// Truncates this many records behind the next sequence.
    TruncateBehind(u64),
    Reopen,
    Crash(u64),
    Plan(Option<Op>, u64, Fault),
}

/// The log's obligation for a submitted record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owed {
    /// Answered as synced, or served by a recovery: it must be there.
    Presence,
    /// Answered as written: as good as unknown after a crash, present otherwise.
    Written,
    /// Not answered.
    Nothing,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    number: u64,
    sequence: Option<u64>,
    place: Option<Place>,
    owed: Owed,
}

/// The expected state of the log.
#[derive(Debug, Clone, Default)]
struct Model {
    /// In the order of submission; without those that were refused, which must not be there.
    entries: Vec<Entry>,
    /// Below this, whole segments may be gone.
    truncated: u64,
    last_number: u64,
    last_sequence: u64,
}

fn body(number: u64) -> Bytes {
    let words =
        if number.is_multiple_of(13) { 312 } else { 1 + usize::try_from(number * 7 % 37).expect("small") };
    let mut bytes = number.to_le_bytes().repeat(words);
    bytes.resize(bytes.len() + words % 8, 0xee);
    bytes.into()
}

impl Model {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn note(&mut self, number: u64, durability: Durability, outcome: &Result<Appended, LogError>) {
        let (appended, owed) = match outcome {
            Ok(appended) if durability == Durability::Synced => (Some(appended), Owed::Presence),
            Ok(appended) => (Some(appended), Owed::Written),
            Err(LogError::Poisoned { .. }) => (None, Owed::Nothing),
            Err(_) => return,
        };
        let sequence = appended.map(|appended| appended.sequence);
        if let Some(sequence) = sequence {
            assert!(sequence > self.last_sequence, "{sequence} after {}", self.last_sequence);
            self.last_sequence = sequence;
        }
        let place = appended.map(|appended| appended.place);
        self.entries.push(Entry { number, sequence, place, owed });
    }

    fn note_synced(&mut self) {
        self.entries
            .iter_mut()
            .filter(|entry| entry.owed == Owed::Written)
            .for_each(|entry| entry.owed = Owed::Presence);
    }

    /// Compares with the records that a recovery serves, and adopts them as the expected state.
    fn check(&mut self, served: &[(u64, u64, Place)]) {
        assert!(served.is_sorted_by(|a, b| a.0 < b.0), "sequences do not grow: {served:?}");
        let first = served.first().map_or(self.entries.len(), |(_, number, _)| {
            self.entries
                .iter()
                .position(|entry| entry.number == *number)
                .expect("a record that was never accepted")
        });
        let may_be_gone = |entry: &Entry| entry.sequence.is_some_and(|sequence| sequence < self.truncated);
        let gone = if served.is_empty() { &self.entries[..] } else { &self.entries[..first] };
        for entry in gone {
            assert!(
                may_be_gone(entry) || (served.is_empty() && entry.owed != Owed::Presence),
                "lost {entry:?}"
            );
        }
        for ((sequence, number, place), entry) in
            served.iter().zip(self.entries.get(first..).unwrap_or_default())
        {
            assert_eq!(*number, entry.number, "out of order");
            assert!(entry.sequence.is_none_or(|told| told == *sequence), "{entry:?} came back as {sequence}");
            assert!(entry.place.is_none_or(|told| told == *place), "{entry:?} came back at {place:?}");
        }
        let end = first + served.len();
        assert!(end <= self.entries.len(), "more than was accepted");
        for entry in &self.entries[end..] {
            assert!(entry.owed != Owed::Presence, "lost {entry:?}, served {served:?}");
        }
        self.entries = served
            .iter()
            .map(|(sequence, number, place)| Entry {
                number: *number,
                sequence: Some(*sequence),
                place: Some(*place),
                owed: Owed::Presence,
            })
            .collect();
    }
}

/// Opens, replays and compares. `None` if the disk failed meanwhile, as calls that may fail can.
fn open_and_check(disk: &FaultDisk, spares: u32, may_fail: bool, model: &mut Model) -> Option<Arc<Log>> {
    for name in files(disk, "spare") {
        let bytes = disk.contents(&name).expect("spare");
        // A header is all that it may have got, if it was about to become a segment.
        assert!(bytes[1024..].iter().all(|byte| *byte == 0), "{name} is not zeros");
    }
    let (log, mut recovery) = Log::open(disk.clone(), LogConfig { spares, ..tiny() }).ok()?;
    if may_fail && !recovery.damage.is_empty() {
        return None; // a sector was not read: the next opening may
    }
    assert_eq!(recovery.damage, [], "a crash is not damage");
    let mut served = Vec::new();
    for record in recovery.by_ref() {
        let record = record.ok()?;
        let number = u64::from_le_bytes(*record.payload.first_chunk().expect("number"));
        assert_eq!(record.payload, body(number));
        served.push((record.sequence, number, record.place));
    }
    assert_eq!(served.len() as u64, recovery.records);
    model.check(&served);
    model.last_sequence = served.last().map_or(0, |(sequence, ..)| *sequence);
    assert!(recovery.next_sequence > model.last_sequence);
    Some(Arc::new(log))
}

/// A log under test, with its expected state.
struct Run {
    disk: FaultDisk,
    spares: u32,
    model: Model,
    log: Option<Arc<Log>>,
    /// Calls may fail, and unneeded files stay.
    has_faults: bool,
}

impl Run {
    /// A log with `spares` spares, and `pace` steps of their making before each call.
    fn new(spares: u32, pace: u64) -> Self {
        let disk = FaultDisk::new();
        disk.set_background_pace(pace);
        Self { disk, spares, model: Model::default(), log: None, has_faults: false }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Plan(op, calls_before, fault) => {
                self.has_faults = true;
                return self.disk.fail_call(op, calls_before, fault);
            }
            Action::Crash(seed) => {
                self.disk.crash(seed);
                self.end();
            }
            _ => {}
        }
        if self.log.is_none() {
            self.log = open_and_check(&self.disk, self.spares, self.has_faults, &mut self.model);
        }
        let Some(log) = self.log.clone() else { return };
        match action {
            Action::Append(durability) => {
                let number = self.model.next_number();
                // On the writer's thread and on this one in turn.
                let outcome = if number.is_multiple_of(2) {
                    outcome_of(log.append(1, body(number), durability))
                } else {
                    commit_here(&log, 1, body(number), durability)
                };
                self.model.note(number, durability, &outcome);
                if durability == Durability::Synced && outcome.is_ok() {
                    self.model.note_synced();
                }
            }
            Action::Group(count) => self.group(&log, count),
            Action::Sync => {
                if log.sync().is_ok() {
                    self.model.note_synced();
                }
            }
            Action::TruncateBehind(count) => {
                let sequence = log.stats().next_sequence.saturating_sub(count);
                self.model.truncated = self.model.truncated.max(sequence);
                log.truncate_before(sequence).ok();
            }
            Action::Reopen => {
                if log.close().is_ok() {
                    self.model.note_synced();
                }
                self.log = None;
                self.log = open_and_check(&self.disk, self.spares, self.has_faults, &mut self.model);
            }
            Action::Crash(_) | Action::Plan(..) => {}
        }
        self.read_back(&log);
        if log.stats().poisoned {
            self.end();
        }
    }

    /// Records are at the places returned for them, and no more files are kept than reported.
    fn read_back(&self, log: &Log) {
        let entries = &self.model.entries;
        let middle = entries.len() / 2;
        for entry in [entries.first(), entries.get(middle), entries.last()].into_iter().flatten() {
            let Some(place) = entry.place else { continue };
            match log.read(place) {
                Ok(record) => {
                    assert_eq!((Some(record.sequence), record.place), (entry.sequence, place));
                    assert_eq!(record.payload, body(entry.number));
                }
                Err(LogError::Gone { .. }) => {
                    assert!(entry.sequence.is_some_and(|sequence| sequence < self.model.truncated));
                }
                // The disk may fail, but not lose a file.
                Err(LogError::Read { source, .. }) if source.kind() != ErrorKind::NotFound => {}
                Err(error) => panic!("{entry:?}: {error}"),
            }
        }
        let segments = log.segments();
        assert!(segments.is_sorted_by(|before, after| before.end <= after.base), "{segments:?}");
        if !self.has_faults {
            let spares = [files(&self.disk, "spare"), files(&self.disk, "zeroing")].concat();
            assert!(spares.len() <= self.spares as usize, "{spares:?}");
        }
    }

    /// Ends the log. Its handles may outlive this, but not its thread.
    fn end(&mut self) {
        if let Some(log) = self.log.take() {
            log.close().ok();
        }
    }

    fn group(&mut self, log: &Arc<Log>, count: u64) {
        let durability =
            |number: u64| if number.is_multiple_of(3) { Durability::Written } else { Durability::Synced };
        let numbers: Vec<u64> = (0..=count).map(|_| self.model.next_number()).collect();
        let (sender, outcomes) = mpsc::sync_channel(numbers.len());
        let (first, rest) = (numbers[0], numbers[1..].to_vec());
        let inner = Arc::clone(log);
        log.append_with(
            1,
            body(first),
            durability(first),
            Box::new(move |outcome| {
                sender.send((first, outcome)).expect("send");
                for number in rest {
                    let sender = sender.clone();
                    let done = Box::new(move |outcome| sender.send((number, outcome)).expect("send"));
                    inner.append_with(1, body(number), durability(number), done);
                }
            }),
        );
        // Written records are answered first: note them in the order of submission.
        let mut outcomes: Vec<_> = outcomes.into_iter().collect();
        outcomes.sort_by_key(|(number, _)| *number);
        let last_synced = outcomes
            .iter()
            .filter(|(number, outcome)| durability(*number) == Durability::Synced && outcome.is_ok())
            .map(|(number, _)| *number)
            .next_back();
        for (number, outcome) in outcomes {
            self.model.note(number, durability(number), &outcome);
            if Some(number) == last_synced {
                self.model.note_synced();
            }
        }
    }
}

const SCRIPT: [Action; 22] = [
    Action::Append(Durability::Synced),
    Action::Append(Durability::Written),
    Action::Append(Durability::Synced),
    Action::Group(4),
    Action::Append(Durability::Written),
    Action::Sync,
    Action::Group(9),
    Action::Append(Durability::Synced),
    Action::TruncateBehind(6),
    Action::Append(Durability::Written),
    Action::Reopen,
    Action::Group(3),
    Action::Append(Durability::Written),
    Action::Append(Durability::Synced),
    Action::Crash(2),
    Action::Append(Durability::Written),
    Action::Group(12),
    Action::Reopen,
    Action::Reopen,
    Action::TruncateBehind(1),
    Action::Append(Durability::Synced),
    Action::Group(5),
];

/// The power fails at every single call that a fixed script makes, those of the background included, and each
/// time several different things survive.
#[test]
fn the_power_may_go_at_every_call() {
    for (spares, pace) in [(0, 0), (1, 1), (2, 3)] {
        let calls = (0..10_000).find(|calls| !the_power_goes_at(*calls, spares, pace)).expect("calls");
        assert!(calls > 100, "{calls} calls");
    }
}

/// Returns whether the script got that far.
fn the_power_goes_at(calls: u64, spares: u32, pace: u64) -> bool {
    let mut run = Run::new(spares, pace);
    run.disk.fail_call(None, calls, Fault::PowerOff);
    let mut is_off = false;
    for action in SCRIPT {
        is_off = run.disk.calls_all() > calls;
        if is_off {
            break;
        }
        if let Action::Crash(seed) = action {
            run.disk.crash(seed); // and with it the plan
            run.end();
            let left = calls.saturating_sub(run.disk.calls_all());
            run.disk.fail_call(None, left, Fault::PowerOff);
            continue;
        }
        run.act(action);
    }
    run.end();
    for seed in 0..12 {
        let mut model = run.model.clone();
        let disk = run.disk.crashed(seed);
        let log = open_and_check(&disk, spares, false, &mut model)
            .unwrap_or_else(|| panic!("call {calls}, {spares} spares, seed {seed}: opens"));
        success_of(log.append(1, body(1_000_000), Durability::Synced));
    }
    is_off
}

/// splitmix64
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn action(&mut self) -> Action {
        match self.below(20) {
            0..5 => Action::Append(Durability::Synced),
            5..8 => Action::Append(Durability::Written),
            8..12 => Action::Group(self.below(12)),
            12 => Action::Sync,
            13 | 14 => Action::TruncateBehind(self.below(30)),
            15 => Action::Reopen,
            16 | 17 => Action::Crash(self.below(u64::MAX)),
            _ => {
                let fault = match self.below(4) {
                    0 => Fault::PowerOff,
                    1 => Fault::Short,
                    2 => Fault::Error(ErrorKind::StorageFull),
                    _ => Fault::Error(ErrorKind::Other),
                };
                let ops = [None, Some(Op::Write), Some(Op::SyncData), Some(Op::SyncDir), Some(Op::Rename)];
                let op = ops[usize::try_from(self.below(ops.len() as u64)).expect("small")];
                Action::Plan(op, self.below(8), fault)
            }
        }
    }
}

/// Returns how many calls of the disk it made.
fn run_program(seed: u64) -> u64 {
    let mut dice = Dice(seed);
    let mut run = Run::new(u32::try_from(dice.below(3)).expect("small"), dice.below(4));
    for _ in 0..40 {
        run.act(dice.action());
    }
    run.act(Action::Crash(dice.below(u64::MAX)));
    assert!(run.log.is_some(), "a disk without faults opens");
    run.end();
    run.disk.calls_all()
}

/// Or a seed that fails could not be repeated.
#[test]
fn equal_seeds_make_equal_calls() {
    for seed in 0..100 {
        assert_eq!(run_program(seed), run_program(seed), "seed {seed}");
    }
}

/// Seeds of one run, on all cores; more with `GPUVITALS_SEEDS`, from `GPUVITALS_SEED` on.
#[test]
fn random_programs_lose_and_invent_nothing() {
    let setting =
        |name, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let first: u64 = setting("GPUVITALS_SEED", 0);
    let end = first + setting("GPUVITALS_SEEDS", 1500);
    let next = AtomicU64::new(first);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            if let Err(panic) = std::panic::catch_unwind(|| run_program(seed)) {
                eprintln!("to repeat: GPUVITALS_SEED={seed} GPUVITALS_SEEDS=1");
                std::panic::resume_unwind(panic);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
}
