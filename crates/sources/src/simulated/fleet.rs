//! The fleet: which GPU is where, what it is called, who holds it.

use gpuvitals_core::identity::SIMULATED;
use gpuvitals_core::{Identity, IdentityColumn, IdentityError};

use super::Special;
use super::gpu::Gpu;
use super::hardware::{ISLANDS, Model, Vendor};
use super::jobs::{Change, Fixed, HOSTS, Job, Kind, PLACES, Scheduler};
use super::rng::{Stream, hash, unit};

/// PCI buses of the eight GPUs of a board.
const BUSES: [&str; PLACES] = ["1b", "43", "52", "61", "9d", "c3", "d1", "df"];

/// Purposes of streams, so that no two things share one.
const GPU: u64 = 1;
const HOST: u64 = 2;
const SCHEDULER: u64 = 3;
const SPECIAL: u64 = 4;
const MODELS: u64 = 5;

/// A GPU with its name.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) gpu: Gpu,
    pub(super) identity: Identity,
    /// First die of its card.
    pub(super) first_die: bool,
    /// Not there: no row.
    pub(super) gone: bool,
}

/// Four hosts and eight places of each: a scheduler and where its GPUs stand in the fleet.
#[derive(Debug)]
struct Island {
    scheduler: Scheduler,
    /// Number in names: islands of first places are even, those of places 8 to 15 odd.
    number: usize,
    members: [[Option<usize>; PLACES]; HOSTS],
}

/// When the vanishing GPU goes and comes, nanoseconds from the first tick.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vanishing {
    pub(super) from_ns: i64,
    pub(super) until_ns: i64,
}

/// All GPUs, in the order of host and index, and their schedulers.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) members: Vec<Member>,
    islands: Vec<Island>,
    vanishing: Vanishing,
    /// Place on the first host of the GPU that vanishes.
    vanishing_place: usize,
    gone: bool,
    changes: Vec<Change>,
}

/// Places of the special cases on the first host: a permutation that the seed picks.
fn special_places(seed: u64) -> [usize; PLACES] {
    let mut places = std::array::from_fn(|place| place);
    let mut stream = Stream::of(&[seed, SPECIAL]);
    for last in (1..PLACES).rev() {
        places.swap(last, stream.below(last + 1));
    }
    places
}

/// Model of a host.
fn model(seed: u64, host: usize) -> &'static Model {
    let island = host / HOSTS;
    let row =
        if island < 2 { island } else { Stream::of(&[seed, MODELS, wide(island)]).below(ISLANDS.len()) };
    ISLANDS.get(row).and_then(|models| models.get(host % HOSTS)).copied().unwrap_or(&super::hardware::H100)
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl Fleet {
    /// Builds the fleet as it stands before the first tick; `per_host` gives the number of GPUs of each host.
    pub(super) fn new(
        seed: u64,
        per_host: &[usize],
        cluster: &str,
        vanishing: Vanishing,
    ) -> Result<Self, IdentityError> {
        let [straggler, peer, other_peer, idle, throttling, vanishing_place, failing, _] =
            special_places(seed);
        let special = |host: usize, index: usize| match index {
            _ if host > 0 => None,
            i if i == straggler => Some(Special::Straggler),
            i if i == idle => Some(Special::IdleAllocated),
            i if i == throttling => Some(Special::Throttling),
            i if i == vanishing_place => Some(Special::Vanishing),
            i if i == failing => Some(Special::FailingMemory),
            _ => None,
        };
        let fixed = [
            Fixed {
                kind: Kind::Training,
                places: vec![straggler, peer, other_peer],
                slowdown: 1.0 / super::gpu::STRAGGLER_CLOCK,
            },
            Fixed { kind: Kind::Idle, places: vec![idle], slowdown: 1.0 },
            Fixed { kind: Kind::Training, places: vec![throttling], slowdown: 1.0 },
        ];
        let mut fleet = Self {
            members: Vec::with_capacity(per_host.iter().sum()),
            islands: Vec::new(),
            vanishing,
            vanishing_place,
            gone: false,
            changes: Vec::new(),
        };
        for (host, &gpus) in per_host.iter().enumerate() {
            let air = 21.0 + 5.0 * unit(hash(&[seed, HOST, wide(host)]));
            for index in 0..gpus {
                let model = model(seed, host);
                let own = hash(&[seed, GPU, wide(host), wide(index)]);
                fleet.seat(seed, host, index, if host == 0 { &fixed } else { &[] });
                fleet.members.push(Member {
                    gpu: Gpu::new(model, special(host, index), own, air),
                    identity: identity(seed, host, index, model, cluster)?,
                    first_die: index % model.dies == 0,
                    gone: false,
                });
            }
        }
        fleet.schedule(0)?;
        for member in &mut fleet.members {
            member.gpu.settle(0);
        }
        Ok(fleet)
    }

    /// Notes where the next member stands, and gives its island a scheduler when it is the first there.
    fn seat(&mut self, seed: u64, host: usize, index: usize, fixed: &[Fixed]) {
        let number = host / HOSTS * 2 + index / PLACES;
        let next = self.members.len();
        let island = if let Some(at) = self.islands.iter().rposition(|island| island.number == number) {
            self.islands.get_mut(at)
        } else {
            let models = std::array::from_fn(|i| model(seed, host / HOSTS * HOSTS + i));
            let stream = Stream::of(&[seed, SCHEDULER, wide(number)]);
            let fixed = if number == 0 { fixed } else { &[] };
            let scheduler = Scheduler::new(stream, models, fixed);
            self.islands.push(Island { scheduler, number, members: [[None; PLACES]; HOSTS] });
            self.islands.last_mut()
        };
        let seats = island.and_then(|island| island.members.get_mut(host % HOSTS));
        if let Some(seat) = seats.and_then(|seats| seats.get_mut(index % PLACES)) {
            *seat = Some(next);
        }
    }

    /// One tick that ends at `now_ns` (nanoseconds from the first tick).
    pub(super) fn step(&mut self, now_ns: i64, interval_ns: i64) -> Result<(), IdentityError> {
        self.schedule(now_ns)?;
        for member in self.members.iter_mut().filter(|member| !member.gone) {
            member.gpu.step(now_ns, interval_ns);
        }
        Ok(())
    }

    /// Jobs and devices come and go up to and with this time.
    fn schedule(&mut self, now_ns: i64) -> Result<(), IdentityError> {
        for at in 0..self.islands.len() {
            let Some(island) = self.islands.get_mut(at) else { break };
            let first = island.number == 0;
            if first && !self.gone && now_ns >= self.vanishing.from_ns && now_ns < self.vanishing.until_ns {
                island.scheduler.advance(self.vanishing.from_ns - 1, &mut self.changes);
                island.scheduler.serve(
                    self.vanishing_place,
                    false,
                    self.vanishing.from_ns,
                    &mut self.changes,
                );
                self.gone = true;
            }
            if first && self.gone && now_ns >= self.vanishing.until_ns {
                island.scheduler.advance(self.vanishing.until_ns - 1, &mut self.changes);
                island.scheduler.serve(
                    self.vanishing_place,
                    true,
                    self.vanishing.until_ns,
                    &mut self.changes,
                );
                self.gone = false;
            }
            island.scheduler.advance(now_ns, &mut self.changes);
            for (host, place, job) in self.changes.drain(..) {
                let seat = island.members.get(host).and_then(|seats| seats.get(place)).copied().flatten();
                if let Some(member) = seat.and_then(|seat| self.members.get_mut(seat)) {
                    member.gpu.job = job;
                    name_job(&mut member.identity, island.number, host, job)?;
                }
            }
            if first {
                self.show_or_hide();
            }
        }
        Ok(())
    }

    fn show_or_hide(&mut self) {
        let vanishes = |member: &&mut Member| member.gpu.special == Some(Special::Vanishing);
        if let Some(member) = self.members.iter_mut().take(2 * PLACES).find(vanishes) {
            if member.gone && !self.gone {
                member.gpu.reload();
            }
            member.gone = self.gone;
        }
    }
}

/// What a GPU is called; nobody can take it for a real one: identities begin with `51300000` ("SIM" in leet),
/// carry the seed, the host and the index.
fn identity(
    seed: u64,
    host: usize,
    index: usize,
    model: &Model,
    cluster: &str,
) -> Result<Identity, IdentityError> {
    let tag = hash(&[seed]) & 0xffff_ffff;
    let uuid = match model.vendor {
        Vendor::Nvidia => {
            format!("GPU-51300000-{:04x}-{:04x}-0000-{host:08x}{index:04x}", tag >> 16, tag & 0xffff)
        }
        Vendor::Amd => format!("51300000{tag:08x}{host:06x}{index:02x}"),
    };
    let bus = BUSES.get(index % PLACES).copied().unwrap_or("00");
    let pci = format!("{:04x}:{bus}:00.0", index / PLACES);
    let mut identity = Identity::default()
        .with(IdentityColumn::Cluster, cluster)?
        .with(IdentityColumn::Node, &format!("sim-node-{:04}", host + 1))?
        .with(IdentityColumn::Uuid, &uuid)?
        .with(IdentityColumn::Vendor, model.vendor.as_str())?
        .with(IdentityColumn::Model, model.name)?
        .with(IdentityColumn::Pci, &pci)?
        .with(IdentityColumn::Driver, model.driver)?
        .with(IdentityColumn::Source, SIMULATED)?;
    identity.index = i32::try_from(index).ok();
    identity.resolve()?;
    Ok(identity)
}

/// Writes who holds the GPU into its identity.
fn name_job(
    identity: &mut Identity,
    island: usize,
    host: usize,
    job: Option<Job>,
) -> Result<(), IdentityError> {
    let Some(job) = job else {
        for column in
            [IdentityColumn::Pod, IdentityColumn::Namespace, IdentityColumn::Container, IdentityColumn::Job]
        {
            identity.set(column, "")?;
        }
        return Ok(());
    };
    let (word, namespace, container) = job.kind.names();
    let name = format!("sim-{word}-{island}-{}", job.number);
    identity.set(IdentityColumn::Pod, &format!("{name}-{host}"))?;
    identity.set(IdentityColumn::Namespace, namespace)?;
    identity.set(IdentityColumn::Container, container)?;
    identity.set(IdentityColumn::Job, &name)
}
