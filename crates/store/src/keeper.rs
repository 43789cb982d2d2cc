//! The thread that keeps the files: it writes frozen tails, lists and unlists files, sets damaged ones aside and has
//! small ones merged, and deletes old ones. It alone changes the manifest.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, io};

use gpuvitals_core::history::spelling;
use gpuvitals_core::merge::Overwritten;
use gpuvitals_core::{Table, causes, clock};
use gpuvitals_log::Log;
use tracing::field::Empty;

use crate::board::{Part, first_and_more};
use crate::compact::{self, Due, MergeRules, MergeTask, Merged};
use crate::directory::{self, Directory};
use crate::error::StoreError;
use crate::file;
use crate::flush::FlushTask;
use crate::grain::Grain;
use crate::jobs::{Compacted, Event, Job};
use crate::manifest::{FileEntry, FileRecord, FleetRecord, Manifest, Span};
use crate::retention::{Expired, expired};
use crate::shared::{Shared, count};
use crate::step::FileStep;
use crate::tail::Tail;

/// Fewest days that fit into the room of a store whose days are merged.
const DAYS_MIN: u64 = 8;
/// Pause before a failed flush is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// What the keeper works with, and others do too.
pub(crate) struct KeeperHandles {
    pub(crate) shared: Arc<Shared>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) log: Arc<Log>,
    pub(crate) events: SyncSender<Event>,
    /// The keeper's own queue, for merges to report to.
    pub(crate) jobs: SyncSender<Job>,
}

/// The keeper's own state.
pub(crate) struct Keeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) manifest: Manifest,
    /// Files that were lost before the start: what was found then has told of them.
    lost_before: usize,
    pub(crate) log: Arc<Log>,
    pub(crate) events: SyncSender<Event>,
    /// The keeper's own queue, for merges to report to.
    pub(crate) jobs: SyncSender<Job>,
    /// Names of files that a failed try may have left listed, and of those that could not be removed: they go when a
    /// later list is in force.
    orphans: BTreeSet<String>,
    merging: Option<JoinHandle<()>>,
    /// Files take more room than they may, and merging some makes room.
    lacks_room: bool,
    /// A merge failed: none is begun before a flush has shown that the disk takes files again.
    merging_rests: bool,
    /// Table and time whose merge failed last.
    failed: Option<(Table, Span)>,
    /// All that can be merged is due.
    compacting: Option<Compacted>,
    /// Rows that are to be written to files.
    pending: Option<Arc<Tail>>,
}

/// Reports that nothing is written to files any more if the keeper ends by a panic: callers that wait for
/// room in memory would wait for ever.
struct Exit(Arc<Shared>);

impl Drop for Exit {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = "the thread that writes files has ended";
            self.0.stuck.send_replace(Some(Arc::from(reason)));
            self.0.board.set(Part::Flush, Some(reason.to_owned()));
        }
    }
}

impl Keeper {
    pub(crate) fn new(handles: KeeperHandles, manifest: Manifest) -> Self {
        let KeeperHandles { shared, directory, log, events, jobs } = handles;
        let (orphans, merging, merging_rests, pending) = (BTreeSet::new(), None, false, None);
        Self {
            shared,
            directory,
            lost_before: manifest.lost.len(),
            manifest,
            log,
            events,
            jobs,
            orphans,
            merging,
            lacks_room: false,
            merging_rests,
            failed: None,
            compacting: None,
            pending,
        }
    }

    /// Works until closed.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        let _exit = Exit(Arc::clone(&self.shared));
        self.tidy();
        loop {
            // An hour whose rows have stopped coming is merged after a while, though nothing happens.
            let rest = self.shared.config.merge_after.max(RETRY);
            let patience = if self.pending.is_some() { RETRY } else { rest };
            match jobs.recv_timeout(patience) {
                Ok(Job::Flush(tail)) => {
                    self.pending = Some(tail);
                    self.flush();
                }
                Ok(Job::Merged { inputs, outcome }) => self.merged(&inputs, outcome),
                Ok(Job::Inspect) => {
                    self.shared.inspecting.store(false, Ordering::Release);
                    self.inspect();
                }
                Ok(Job::Compact(answer)) => {
                    self.merging_rests = false;
                    self.compacting = Some(answer);
                }
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Ok(Job::Close) | Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tidy();
        }
        if let Some(merging) = self.merging.take()
            && merging.join().is_err()
        {
            tracing::error!("merging files ended with a panic");
        }
        // A merge that was done by then is listed: no table is left that no list names.
        for job in jobs.try_iter() {
            if let Job::Merged { inputs, outcome } = job {
                self.merged(&inputs, outcome);
            }
        }
    }

    fn flush(&mut self) {
        let Some(tail) = self.pending.take() else { return };
        let span = tracing::info_span!("store.flush", otel.status_code = Empty, rows = tail.rows);
        let _inside = span.enter();
        match self.try_flush(&tail) {
            Ok(()) => {
                count(&self.shared.counters.flushes, 1);
                self.merging_rests = false;
                self.shared.stuck.send_replace(None);
                self.shared.board.set(Part::Flush, None);
            }
            Err(error) => {
                span.record("otel.status_code", "ERROR");
                let reason = causes(&error);
                self.shared.stuck.send_replace(Some(Arc::from(reason.as_str())));
                self.shared.board.set(Part::Flush, Some(format!("rows stay in the log: {reason}")));
                let _told = self.events.send(Event::Stuck(Arc::new(error)));
                self.pending = Some(tail);
            }
        }
    }

    fn try_flush(&mut self, tail: &Tail) -> Result<(), StoreError> {
        let root = self.directory.root().to_owned();
        // A number is used up even if the attempt fails: its leftovers are never overwritten.
        let number = self.manifest.next_order;
        self.manifest.next_order += 1;
        let task = FlushTask { directory: &self.directory, config: &self.shared.config, number };
        let (records, overwritten) = task.write(tail)?;
        let mut next = self.manifest.successor(&self.directory);
        next.flushed_through = next.flushed_through.max(Some(tail.last_sequence));
        next.add(&root, records.iter().cloned());
        if let Err(error) = self.write_fleet(&mut next) {
            // No manifest lists them yet. On a full disk they would take the remaining room, attempt by
            // attempt.
            file::discard_all(&root, &records);
            return Err(error);
        }
        self.switch(next, Some(tail))?;
        self.shared.overwritten(overwritten);
        Ok(())
    }

    /// Writes the latest values beside the manifest that will name them. Those that lack something are read from the files
    /// again at the next start: the file could not tell.
    fn write_fleet(&mut self, next: &mut Manifest) -> Result<(), StoreError> {
        next.replaced.extend(next.fleet.take().map(|fleet| fleet.name));
        if !self.shared.config.checkpoint || !self.shared.fleet_missing.is_empty() {
            return Ok(());
        }
        let fleet = self.shared.fleet.lock().unwrap_or_else(PoisonError::into_inner).snapshot();
        let name = format!("fleet-{:010}", next.number);
        let path = self.directory.root().join(&name);
        let bytes = match spelling::write(&fleet.gpus) {
            Ok(bytes) => bytes,
            Err(source) => return Err(StoreError::Fleet { path, source }),
        };
        directory::write(&path, &bytes, self.directory.steps(), FileStep::Rename)
            .map_err(|e| StoreError::io("write", &path, e))?;
        next.fleet = Some(FleetRecord { name, crc32c: crc32c::crc32c(&bytes) });
        Ok(())
    }

    /// Puts a list in force and makes it visible, with the tail that is in its files now.
    fn switch(&mut self, mut next: Manifest, flushed: Option<&Tail>) -> Result<(), StoreError> {
        next.files.sort_by_key(|file| file.order);
        next.replaced.extend(self.orphans.iter().cloned());
        next.foreign = self.shared.foreign_types();
        // Even a list that failed may be in force after a crash: the number is used up.
        self.manifest.highest = next.highest;
        if let Err(error) = next.store(&self.directory) {
            let before = self.manifest.names();
            self.orphans.extend(next.names().into_iter().filter(|name| !before.contains(name)));
            return Err(error);
        }
        let before = std::mem::replace(&mut self.manifest, next);
        if let (Some(tail), Some(recent)) = (flushed, &self.shared.recent) {
            recent.flushed(tail.of(Table::GpuEvents), &before.files);
        }
        if flushed.is_some() {
            self.truncate_log();
        }
        // Merged tables stay as long as a snapshot names them.
        let lists = [Some(before.name()), before.fleet.map(|fleet| fleet.name)].into_iter().flatten();
        self.orphans.extend(lists.filter(|name| self.manifest.replaced.contains(name)));
        let orphans = std::mem::take(&mut self.orphans);
        self.orphans = orphans.into_iter().filter(|name| !self.remove(name)).collect();
        // Last: who waits for a flush finds everything done.
        let Manifest { files, rollups, lost, .. } = &self.manifest;
        let (files, rollups, lost) =
            (Arc::from(files.as_slice()), Arc::from(rollups.as_slice()), Arc::from(lost.as_slice()));
        let _told = self.events.send(Event::Files { files, rollups, lost, flushed: flushed.is_some() });
        Ok(())
    }

    /// Whether an unlisted file was removed.
    fn remove(&self, name: &str) -> bool {
        let path = self.directory.root().join(name);
        match self.directory.steps().take(FileStep::Remove, &path).and_then(|()| fs::remove_file(&path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(name, %error, "a file that is no longer of use stays until the next flush or start");
                false
            }
            _ => true,
        }
    }

    /// Truncates log records that are in files. A failure is skipped at the next start and repeated with a
    /// later flush.
    fn truncate_log(&self) {
        let through = self.manifest.flushed_through.unwrap_or(0);
        let asked = self.directory.steps().take(FileStep::Truncate, &self.directory.wal());
        if asked.is_ok()
            && let Err(error) = self.log.truncate_before(through.saturating_add(1))
        {
            tracing::warn!(error = causes(&error), "the log keeps records that are in files");
        }
    }

    /// Sets condemned files aside.
    fn inspect(&mut self) {
        let bad: Vec<_> = self.manifest.all_files().filter(|file| file.damage().is_some()).cloned().collect();
        if bad.is_empty() {
            return;
        }
        let mut next = self.manifest.successor(&self.directory);
        next.files.retain(|file| file.damage().is_none());
        next.rollups.retain(|file| file.damage().is_none());
        for file in &bad {
            next.lose(file, format!("is damaged ({})", file.damage().map_or("", AsRef::as_ref)));
        }
        if let Err(error) = self.switch(next, None) {
            tracing::warn!(error = causes(&error), "a damaged file stays listed until the next try");
            return;
        }
        for file in &bad {
            if let Err(error) = self.directory.quarantine(&file.name) {
                tracing::warn!(name = file.name, %error, "a damaged file is not set aside");
            }
        }
        let since = self.manifest.lost.iter().skip(self.lost_before);
        let since: Vec<_> = since.map(|file| file.describe(&self.directory)).collect();
        self.shared.board.set(Part::Files, first_and_more(&since));
        count(&self.shared.counters.quarantined, bad.len() as u64);
    }

    fn tidy(&mut self) {
        self.shared.tell_foreign();
        self.delete_expired();
        self.merge_if_due();
    }

    /// Deletes files that are too old, or too many once what can be merged has been. Queries that read them read on.
    fn delete_expired(&mut self) {
        let Expired { by_age, mut by_size, excess } = expired(&self.manifest, &self.shared.config);
        self.lacks_room = (excess > 0 || !by_size.is_empty()) && self.can_make_room();
        if self.lacks_room {
            by_size.clear();
        } else {
            self.shared.board.set(Part::Room, (excess > 0).then(|| self.too_large(excess)));
        }
        let goes = |file: &Arc<FileEntry>| by_age.iter().chain(&by_size).any(|gone| Arc::ptr_eq(gone, file));
        if by_age.is_empty() && by_size.is_empty() {
            return;
        }
        let mut next = self.manifest.successor(&self.directory);
        next.files.retain(|file| !goes(file));
        next.rollups.retain(|file| !goes(file));
        next.replaced.extend(by_age.iter().chain(&by_size).map(|file| file.name.clone()));
        if let Err(error) = self.switch(next, None) {
            tracing::warn!(error = causes(&error), "old files stay listed until the next try");
            return;
        }
        let counters = &self.shared.counters;
        let told = [
            (by_age, &counters.rows_too_old, "older than store.keep"),
            (by_size, &counters.rows_too_many, "beyond store.max_bytes"),
        ];
        for (gone, counter, reason) in told {
            // A rollup's are not rows that came.
            let raw = gone.iter().filter(|file| file.grain == Grain::Raw);
            let rows = raw.map(|file| file.rows).sum();
            count(counter, rows);
            if !gone.is_empty() {
                tracing::info!(files = gone.len(), rows, reason, "old files are deleted");
            }
            for file in gone {
                file.doom();
            }
        }
    }

    /// What is wrong if the newest hour alone takes more room than all files may.
    fn too_large(&self, excess: u64) -> String {
        let most = self.shared.config.max_bytes.unwrap_or(u64::MAX);
        format!(
            "the newest hour alone takes {} bytes of files, more than store.max_bytes ({most}); nothing of it is deleted: raise \
             store.max_bytes, or have fewer rows come",
            most.saturating_add(excess)
        )
    }

    fn merge_if_due(&mut self) {
        // Until its outcome has been handled, a merge is running: its inputs are still listed.
        if self.merging.is_some()
            || self.merging_rests
            || !self.shared.config.merge && self.compacting.is_none()
            || self.pending.is_some()
            || self.shared.ending.load(Ordering::Relaxed)
        {
            return;
        }
        let when = match (&self.compacting, self.lacks_room) {
            (Some(_), _) => Due::All,
            (None, true) => Due::ForRoom,
            (None, false) => Due::At(clock::instant()),
        };
        let Some(inputs) = self.due(when) else {
            self.compacted(Ok(()));
            return;
        };
        let number = self.manifest.next_order;
        self.manifest.next_order += compact::NUMBERS;
        let (shared, directory) = (Arc::clone(&self.shared), Arc::clone(&self.directory));
        let jobs = self.jobs.clone();
        let spawned = std::thread::Builder::new().name("store-merge".to_owned()).spawn(move || {
            let _inside = tracing::info_span!("store.merge", files = inputs.len()).entered();
            let task = MergeTask { inputs: &inputs, directory: &directory, number, shared: &shared };
            // A merge that ends without a word would be the last one.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| task.run()))
                .unwrap_or(Merged::Failed(StoreError::Closed));
            // A keeper that has ended needs no news: the files are unchanged.
            let _told = jobs.send(Job::Merged { inputs, outcome });
        });
        match spawned {
            Ok(handle) => self.merging = Some(handle),
            Err(error) => {
                self.merging_rests = true;
                self.shared.board.set(Part::Merge, Some(format!("starting a merge: {error}")));
                self.compacted(Err(StoreError::io("start a thread for", Path::new("store-merge"), error)));
            }
        }
    }

    fn due(&self, when: Due) -> Option<Vec<Arc<FileEntry>>> {
        let rules =
            MergeRules { config: &self.shared.config, day_bytes: self.day_bytes(), failed: self.failed };
        compact::due(&self.manifest.files, when, &rules)
    }

    /// Whether there are files that take less room once they are merged, and nothing keeps them from it.
    fn can_make_room(&self) -> bool {
        self.shared.config.merge
            && !self.merging_rests
            && self.pending.is_none()
            && (self.merging.is_some() || self.due(Due::ForRoom).is_some())
    }

    /// Most bytes of a day that is merged: until the merge is done they are on the disk twice, and later they are deleted at
    /// once.
    fn day_bytes(&self) -> u64 {
        let config = &self.shared.config;
        let free = gpuvitals_log::free_bytes(self.directory.root()).unwrap_or(u64::MAX);
        config.day_bytes.min(free / 2).min(config.max_bytes.map_or(u64::MAX, |most| most / DAYS_MIN))
    }

    fn merged(&mut self, inputs: &[Arc<FileEntry>], outcome: Merged) {
        if let Some(merging) = self.merging.take()
            && merging.join().is_err()
        {
            tracing::error!("merging files ended with a panic");
        }
        match outcome {
            Merged::Done(records, overwritten) => self.replace_merged(inputs, records, overwritten),
            Merged::Stopped => {}
            Merged::Damaged => self.inspect(),
            Merged::Failed(error) => {
                self.failed = compact::span_of(inputs);
                self.small_files_stay(error);
            }
        }
    }

    fn small_files_stay(&mut self, error: StoreError) {
        self.merging_rests = true;
        self.shared.board.set(Part::Merge, Some(format!("small files stay: {}", causes(&error))));
        self.compacted(Err(error));
    }

    /// Tells who waits for it, if anybody does: when the lists before it are visible, too.
    fn compacted(&mut self, outcome: Result<(), StoreError>) {
        if let Some(answer) = self.compacting.take() {
            let _told = self.events.send(Event::Compacted { answer, outcome });
        }
    }

    fn replace_merged(
        &mut self,
        inputs: &[Arc<FileEntry>],
        records: Vec<FileRecord>,
        overwritten: Overwritten,
    ) {
        let root = self.directory.root();
        let is_input = |file: &Arc<FileEntry>| inputs.iter().any(|input| Arc::ptr_eq(input, file));
        let listed = self.manifest.files.iter().filter(|file| is_input(file)).count();
        if listed != inputs.len() {
            // One of them was set aside meanwhile.
            file::discard_all(root, &records);
            return;
        }
        let mut next = self.manifest.successor(&self.directory);
        next.files.retain(|file| !is_input(file));
        // Those of the inputs, which the new ones stand for.
        let is_of_input = |rollup: &Arc<FileEntry>| {
            inputs.iter().any(|input| (input.table, input.order) == (rollup.table, rollup.order))
        };
        let outdated: Vec<_> = next.rollups.extract_if(.., |rollup| is_of_input(rollup)).collect();
        next.replaced.extend(inputs.iter().chain(&outdated).map(|input| input.name.clone()));
        next.add(root, records);
        match self.switch(next, None) {
            Ok(()) => {
                for input in inputs.iter().chain(&outdated) {
                    input.doom();
                }
                count(&self.shared.counters.merges, 1);
                self.shared.overwritten(overwritten);
                self.shared.board.set(Part::Merge, None);
            }
            Err(error) => self.small_files_stay(error),
        }
    }
}
