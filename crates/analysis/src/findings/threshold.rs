//! Every number that decides about a finding. Of a pair the first opens a finding and the second keeps it open.

use gpuvitals_core::time::{DAY_NS, MINUTE_NS, SECOND_NS};

/// Minutes that are looked at.
pub const WINDOW_MINUTES: usize = 10;
/// Fewest minutes under load, or for the same holder, by which a GPU is compared with others.
pub const LOADED_MINUTES_MIN: usize = 4;
/// Mean utilisation of a minute in % from which the GPU was under load in it.
pub const LOADED_FROM_PCT: f64 = 50.0;
/// Fewest other GPUs under load that a GPU is compared with.
pub const PEERS_MIN: usize = 3;

/// A GPU that has not reported for longer is out of service: no finding any more.
pub const GONE_AFTER_NS: i64 = 7 * DAY_NS;
/// Share of the nodes of a model that must have the same number of GPUs for a smaller one to lack some.
pub const COMMON_SIZE_SHARE: f64 = 0.8;
/// Share of all nodes, and number of nodes, from which silence is that of the fleet: its collection broke.
pub const SILENT_FLEET_SHARE: f64 = 0.5;
/// Fewest silent nodes that make the fleet silent; see [`SILENT_FLEET_SHARE`].
pub const SILENT_FLEET_NODES: usize = 3;

/// Minutes of the last ten in which several nodes sent rows of one GPU.
pub const TWO_NODES_MINUTES: (usize, usize) = (3, 1);

/// How often in a day XIDs that programs cause come to a GPU until the fault is its own.
pub const REPEATED_XID_TIMES: usize = 3;
/// Fewest jobs and pods that they came to.
pub const REPEATED_XID_HOLDERS: usize = 2;

/// Share of time that heat holds the clock down.
pub const HEAT_SHARE: (f64, f64) = (0.10, 0.03);
/// Share of time that the power brake of the chassis holds the clock down.
pub const BRAKE_SHARE: (f64, f64) = (0.05, 0.01);
/// Clock of a GPU under load as a share of its peers' median, below which it is slow without a reason.
pub const HELD_CLOCK: (f64, f64) = (0.88, 0.93);
/// Largest share of time at the power limit or slowed by heat at which a slow clock has no reason.
pub const UNEXPLAINED_SHARE: f64 = 0.10;

/// Clock of a GPU as a share of the median of its job, below which it is a straggler.
pub const STRAGGLER_CLOCK: (f64, f64) = (0.93, 0.96);
/// Distance from the median of the job in robust deviations at which it is one.
pub const STRAGGLER_DISTANCE: (f64, f64) = (4.0, 3.0);
/// Fewest GPUs of a job under load for stragglers among them.
pub const STRAGGLER_GPUS_MIN: usize = 3;
/// Smallest deviation among the clocks or powers of a job that counts, as a share of the median.
pub const DEVIATION_MIN: f64 = 0.01;
/// Smallest deviation among the utilisations of a job that counts, in %.
pub const UTILIZATION_DEVIATION_MIN_PCT: f64 = 3.0;
/// Utilisation in % below that of its job, at which a GPU with little power waits for something of its own.
pub const STARVED_PCT: (f64, f64) = (30.0, 20.0);
/// Its power as a share of the median of the job.
pub const STARVED_POWER: (f64, f64) = (0.75, 0.85);
/// Fewest GPUs of a job for that.
pub const STARVED_GPUS_MIN: usize = 4;

/// Utilisation in % from which a GPU that waits in a kernel says that it is busy.
pub const HUNG_BUSY_PCT: f64 = 99.0;
/// Power as a share of that of before, up to which a busy GPU stands still.
pub const HUNG_POWER: (f64, f64) = (0.60, 0.75);
/// Activity of tensor cores and memory as a share of that of before, above which the job still works: kernels that wait for another rank
/// read next to nothing.
pub const HUNG_ACTIVITY: f64 = 0.35;
/// The same of SMs, of which such kernels hold a fifth.
pub const HUNG_SM_ACTIVITY: f64 = 0.6;
/// Activity in % of the most possible from which its fall says something.
pub const ACTIVITY_LEVEL_MIN_PCT: f64 = 2.0;
/// Fewest GPUs of a job, those that fell silent included.
pub const HUNG_GPUS_MIN: usize = 2;
/// Fewest rows of a GPU that show it: where they are far apart they take longer than the kind's time.
pub const HUNG_ROWS_MIN: i64 = 3;
/// Share of the GPUs of a job that may do nothing or be unknown meanwhile; one always may.
pub const HUNG_OTHERS_SHARE: f64 = 0.125;

/// A program that set a mark so long ago goes on: steps are shorter, and its recorder tells every ten seconds.
pub const MARKED_NOW_NS: i64 = 30 * SECOND_NS;
/// So does one whose last mark is no older than this and was set when its GPUs had already stood still for a minute.
pub const MARKED_SINCE_NS: i64 = 5 * MINUTE_NS;

/// How long all GPUs of a job that worked do nothing until it has stalled: the hold time of checkpoints and evaluations.
pub const STALLED_AFTER_NS: i64 = 10 * MINUTE_NS;
/// The same of a pod: servers wait for requests, and nobody asked for an end.
pub const STALLED_POD_AFTER_NS: i64 = 30 * MINUTE_NS;
/// Or so many times as long as the longest pause after which it went on.
pub const STALLED_PAUSES: i64 = 3;
/// Fewest minutes under load by which a GPU has worked, as more than half of the job's must have.
pub const STALLED_LOADED_MINUTES: usize = 8;

/// Newest minutes by which links are judged.
pub const LINK_MINUTES: usize = 3;
/// Share of the GPUs of a model that must have the same link for another one to be degraded.
pub const COMMON_LINK_SHARE: f64 = 0.7;
/// Temperature in °C at which no fan stands still.
pub const FAN_NEEDED_FROM_C: f64 = 70.0;
/// Mean speed of the fan in % from which it is at its limit.
pub const FAN_AT_LIMIT_PCT: (f64, f64) = (97.0, 94.0);
/// Median speed of its peers' fans in % up to which a fan at its limit is a fault of the GPU.
pub const FAN_OF_PEERS_PCT: f64 = 80.0;

/// How long the GPUs of a job do nothing until that is a finding.
pub const IDLE_AFTER_NS: i64 = 30 * MINUTE_NS;
