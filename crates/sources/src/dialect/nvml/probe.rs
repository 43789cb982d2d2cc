//! One GPU with its MIG instances.

use std::sync::Arc;

use gpuvitals_core::clock::Moment;
use gpuvitals_core::{Identity, IdentityColumn, MetricId};

use super::board::Board;
use super::code::Code;
use super::events::{Events, Xids};
use super::known::{KnownGpu, PowerUsage, lost};
use super::mig::{self, MigInstance};
use super::raw::{Gpu, Raw};
use super::tick::GpuTick;
use crate::probe::{Driver, Due, Probe, ProbeError, Reading, Row};

const MIG_MODE: MetricId = MetricId::of("mig_mode");
const MIG_MODE_PENDING: MetricId = MetricId::of("mig_mode_pending");
const PARTITIONS: MetricId = MetricId::of("partition_count");
const XID_COUNT: MetricId = MetricId::of("xid_count");
const XID_LAST: MetricId = MetricId::of("xid_last");

/// Reads one GPU.
pub(super) struct NvmlProbe {
    raw: &'static Raw,
    /// As last looked up; none while it is sick.
    gpu: Option<Gpu>,
    identity: Arc<Identity>,
    driver: Arc<str>,
    power_usage: PowerUsage,
    events: Option<Arc<Events>>,
    xids: Arc<Xids>,
    /// Whether events of the present handle are waited for.
    is_watched: bool,
    board: Board,
    instances: Vec<MigInstance>,
}

impl NvmlProbe {
    pub(super) fn new(known: KnownGpu, events: Option<Arc<Events>>) -> Self {
        let KnownGpu { raw, gpu, identity, power_usage } = known;
        let driver = identity.shared(IdentityColumn::Driver).map_or_else(|| Arc::from(""), Arc::clone);
        Self {
            raw,
            gpu: Some(gpu),
            identity,
            power_usage,
            events,
            xids: Arc::default(),
            is_watched: false,
            board: Board::new(&driver, power_usage),
            driver,
            instances: Vec::new(),
        }
    }

    /// The handle; looked up, and everything asked again, after it was lost.
    fn open(&mut self) -> Result<Gpu, ProbeError> {
        if let Some(gpu) = self.gpu {
            return Ok(gpu);
        }
        let gpu = self.look_up()?;
        self.gpu = Some(gpu);
        self.board = self.fresh_board();
        self.instances.clear();
        self.is_watched = false;
        Ok(gpu)
    }

    fn fresh_board(&self) -> Board {
        Board::new(&self.driver, self.power_usage)
    }

    fn look_up(&self) -> Result<Gpu, ProbeError> {
        let uuid = self.identity.uuid().unwrap_or_default();
        self.raw.by_uuid(uuid).map_err(|code| lost(self.raw, code))
    }

    fn read_all(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        // Rare readings complete the slow tier: they never come alone.
        let due = Due { slow: due.slow || due.rare, ..due };
        let gpu = self.open()?;
        let tick = GpuTick { raw: self.raw, gpu, now_ns: Moment::now().mono_ns, due };
        let row = reading.row(&self.identity);
        self.board.read(tick, row)?;
        if due.slow {
            self.read_xids(gpu, row)?;
        }
        if due.rare {
            self.read_partitions(gpu, row)?;
        }
        self.board.ledger.close(due, row);
        let mut is_stale = self.board.ledger.is_stale;
        for instance in &mut self.instances {
            is_stale |= instance.read(tick, reading)?;
        }
        if is_stale {
            let fresh = self.look_up()?;
            self.is_watched &= fresh == gpu;
            self.gpu = Some(fresh);
            // Instances that still exist keep their state: a call that is refused once more is not repeated.
            self.find_instances()?;
        }
        Ok(())
    }

    fn read_xids(&mut self, gpu: Gpu, row: &mut Row) -> Result<(), ProbeError> {
        if !self.is_watched {
            let (raw, events, xids, board) = (self.raw, &self.events, &self.xids, &mut self.board);
            let watch = || events.as_ref().map_or(Err(Code::NOT_SUPPORTED), |it| it.watch(raw, gpu, xids));
            self.is_watched = board.ledger.ask(&mut board.xids, &[XID_COUNT, XID_LAST], watch)?.is_some();
        }
        if self.is_watched {
            let (count, last) = self.xids.seen();
            row.int(XID_COUNT, count);
            if let Some(last) = last {
                row.int(XID_LAST, last);
            }
        }
        Ok(())
    }

    fn read_partitions(&mut self, gpu: Gpu, row: &mut Row) -> Result<(), ProbeError> {
        let board = &mut self.board;
        let metrics = [MIG_MODE, MIG_MODE_PENDING, PARTITIONS];
        let modes = board.ledger.ask(&mut board.mig, &metrics, || self.raw.mig_modes(gpu))?;
        let Some((mode, pending)) = modes else { return Ok(()) };
        row.int(MIG_MODE, mode);
        row.int(MIG_MODE_PENDING, pending);
        if mode == 1 || !self.instances.is_empty() {
            self.find_instances()?;
        }
        row.int(PARTITIONS, i64::try_from(self.instances.len()).unwrap_or(i64::MAX));
        Ok(())
    }

    /// Lists the instances; if they have changed, everything is queried again.
    fn find_instances(&mut self) -> Result<(), ProbeError> {
        let gpu = self.open()?;
        if let Some(found) = mig::find(self.raw, gpu, &self.identity, &self.instances)? {
            if !self.instances.is_empty() || !found.is_empty() {
                self.board = self.fresh_board();
            }
            self.instances = found;
        }
        Ok(())
    }
}

impl Probe for NvmlProbe {
    fn driver(&self) -> Driver {
        Driver::Nvml
    }

    fn targets(&self) -> Vec<Arc<Identity>> {
        let parts = self.instances.iter().map(|instance| &instance.identity);
        std::iter::once(&self.identity).chain(parts).map(Arc::clone).collect()
    }

    fn fill(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        let result = self.read_all(due, reading);
        if result.is_err() {
            // Values read before the device failed are not a row: half of it would look like a healthy GPU.
            reading.clear();
            self.gpu = None;
        }
        result
    }
}
