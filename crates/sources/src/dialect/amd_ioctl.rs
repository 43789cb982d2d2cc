//! AMD GPUs by ioctls on their render nodes: no root, no file of sysfs, and fewer values.
//!
//! Power comes in whole watts; fans, links and error counts are not available. A call wakes a GPU that
//! sleeps, so its `power/runtime_status` is read first. It costs as much as sysfs: both query the same
//! firmware.

mod answer;
mod call;
mod columns;
mod device;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_core::{AbsenceReason, Identity};
use rustix::fs::Access;

use crate::dialect::amd_sysfs::{Card, Missing, Sleep, cards};
use crate::discovery::Discovery;
use crate::finding::{Finding, Verdict};
use crate::machine::Machine;
use crate::probe::{Driver, Due, Probe, ProbeError, Reading};

use call::RenderNode;
use columns::Lacks;
use device::{Device, Query};

pub use answer::{DevInfo, GpuHeaps, parse_dev_info, parse_memory};

/// Name of the kernel driver, as it gives it itself.
const AMDGPU: &str = "amdgpu";

/// Finds the GPUs of amdgpu that have a render node. None is opened yet.
pub fn find(machine: &Machine) -> Discovery {
    let mut found = Discovery::default();
    let subject = Driver::AmdIoctl.as_str();
    if machine.is_captured() {
        let text = "asks the kernel of this machine, whatever files are given; not used for a captured tree";
        found.findings.push(Finding::new(Verdict::Note, subject, text));
        return found;
    }
    for card in cards(machine).iter().filter(|card| card.driver.as_deref() == Some(AMDGPU)) {
        let (probe, finding) = look_at(machine, card);
        found.probes.extend(probe.map(|probe| Box::new(probe) as Box<dyn Probe>));
        found.findings.push(finding);
    }
    if found.findings.is_empty() {
        found.findings.push(Finding::new(Verdict::Note, subject, "no GPU of the driver amdgpu"));
    }
    found
}

fn look_at(machine: &Machine, card: &Card) -> (Option<IoctlProbe>, Finding) {
    let subject = format!("{} {}", Driver::AmdIoctl, card.subject());
    // In partition mode there are more, and the first answers for the whole GPU.
    let nodes = card.render_nodes(machine);
    let Some(node) = nodes.into_iter().find(|node| node.exists()) else {
        let text = format!("no render node in {}", machine.dev.join("dri").display());
        let finding = Finding::new(Verdict::Broken, subject, text);
        return (None, finding.remedy("a container needs the device: --device /dev/dri"));
    };
    if rustix::fs::access(&node, Access::READ_OK | Access::WRITE_OK).is_err() {
        let finding =
            Finding::new(Verdict::Broken, subject, format!("no right to open {}", node.display())).denied();
        return (None, finding.remedy(RIGHTS));
    }
    let text = format!("{}, by {}", card.model, node.display());
    let identity = Arc::new(card.identity(machine, Driver::AmdIoctl, None));
    let open: OpenDevice = |node| Ok(Box::new(RenderNode::open(node)?));
    (Some(IoctlProbe::new(identity, node, &card.device, open)), Finding::new(Verdict::Good, subject, text))
}

const RIGHTS: &str = "add the user to the group that owns it, render or video";

type OpenDevice = fn(&Path) -> io::Result<Box<dyn Device>>;

/// Reads one GPU by its render node.
#[derive(Debug)]
struct IoctlProbe {
    identity: Arc<Identity>,
    /// Its render node, and its folder in sysfs.
    node: PathBuf,
    folder: PathBuf,
    open: OpenDevice,
    sleep: Option<Sleep>,
    device: Option<Box<dyn Device>>,
    /// Which sensors it has been found to lack, and why.
    lacks: Lacks,
}

impl IoctlProbe {
    fn new(identity: Arc<Identity>, node: PathBuf, folder: &Path, open: OpenDevice) -> Self {
        let folder = folder.to_owned();
        Self { identity, node, folder, open, sleep: None, device: None, lacks: Lacks::default() }
    }

    /// Opens the node and makes sure that it is one of amdgpu.
    fn open(&self) -> Result<Box<dyn Device>, ProbeError> {
        let failed = |error: io::Error| {
            let text = format!("{}: {error}", self.node.display());
            match error.kind() {
                io::ErrorKind::PermissionDenied => ProbeError::Denied(format!("{text}; {RIGHTS}")),
                io::ErrorKind::NotFound => ProbeError::Gone(text),
                _ => gone_or_failed(Missing::of(&error), text),
            }
        };
        let device = (self.open)(&self.node).map_err(failed)?;
        let mut name = [0; 32];
        let len = device.driver_name(&mut name).map_err(failed)?;
        if name.get(..len) != Some(AMDGPU.as_bytes()) {
            let name = String::from_utf8_lossy(name.get(..len).unwrap_or_default()).into_owned();
            return Err(ProbeError::Failed(format!("{} is of the driver {name:?}", self.node.display())));
        }
        Ok(device)
    }
}

impl Probe for IoctlProbe {
    fn driver(&self) -> Driver {
        Driver::AmdIoctl
    }

    fn renumber(&mut self, index: i32) {
        Arc::make_mut(&mut self.identity).index = Some(index);
    }

    fn targets(&self) -> Vec<Arc<Identity>> {
        vec![Arc::clone(&self.identity)]
    }

    fn fill(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        let folder = &self.folder;
        if self.sleep.get_or_insert_with(|| Sleep::open(folder)).is_asleep(due) {
            let text = "asleep (power/runtime_status); left so";
            reading.row(&self.identity).down(AbsenceReason::Suspended, text);
            return Ok(());
        }
        let device = match self.device.take() {
            Some(device) => device,
            None => self.open()?,
        };
        let row = reading.row(&self.identity);
        if columns::fill(device.as_ref(), &mut self.lacks, due, row).is_err() {
            // Reopened at the next reading, and probed again for unsupported queries: another driver version
            // may be loaded.
            self.sleep = None;
            self.lacks = Lacks::default();
            reading.clear();
            return Err(ProbeError::Gone(format!("{}: its driver has released it", self.node.display())));
        }
        self.device = Some(device);
        Ok(())
    }
}

fn gone_or_failed(missing: Missing, text: String) -> ProbeError {
    if missing == Missing::Gone { ProbeError::Gone(text) } else { ProbeError::Failed(text) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rustix::io::Errno;

    use super::*;

    /// A recorded GPU: an answer or an error for each query. A query without a line is not supported.
    #[derive(Debug, Clone)]
    struct Recorded {
        driver: &'static str,
        sensors: BTreeMap<u32, Result<u32, Errno>>,
        memory: Result<[u64; 12], Errno>,
        dev_info: Result<[u64; 2], Errno>,
    }

    impl Device for Recorded {
        fn driver_name(&self, name: &mut [u8]) -> io::Result<usize> {
            name[..self.driver.len()].copy_from_slice(self.driver.as_bytes());
            Ok(self.driver.len())
        }

        fn info(&self, query: Query, answer: &mut [u8]) -> io::Result<()> {
            let bytes: Vec<u8> = match query {
                Query::Sensor(number) => {
                    let value = self.sensors.get(&number).copied().unwrap_or(Err(Errno::INVAL));
                    value.map(|value| value.to_ne_bytes().to_vec())
                }
                Query::Memory => {
                    self.memory.map(|heaps| heaps.iter().flat_map(|n| n.to_ne_bytes()).collect())
                }
                Query::DevInfo => self
                    .dev_info
                    .map(|clocks| [0; 4].into_iter().chain(clocks).flat_map(u64::to_ne_bytes).collect()),
            }?;
            let len = bytes.len().min(answer.len());
            answer[..len].copy_from_slice(&bytes[..len]);
            Ok(())
        }
    }

    /// A Radeon RX 560 with 4 GiB, 1 GiB of it in use.
    fn polaris() -> Recorded {
        const MIB: u64 = 1 << 20;
        let heap = |total: u64, used: u64| [total * MIB, total * MIB, used * MIB, total * MIB];
        let heaps = [heap(4096, 1024), heap(256, 8), heap(8192, 64)].concat();
        Recorded {
            driver: AMDGPU,
            sensors: [(1, 1196), (2, 1750), (3, 63_500), (4, 97), (5, 48), (7, 1043)]
                .map(|(n, v)| (n, Ok(v)))
                .into(),
            memory: Ok(heaps.try_into().unwrap()),
            dev_info: Ok([1_196_000, 1_750_000]),
        }
    }

    fn probe(device: Recorded, folder: &Path) -> IoctlProbe {
        let mut identity = Identity::default();
        identity.index = Some(0);
        identity.resolve().unwrap();
        let denied: OpenDevice = |_| Err(Errno::ACCESS.into());
        let mut probe = IoctlProbe::new(Arc::new(identity), "/dev/dri/renderD128".into(), folder, denied);
        probe.device = Some(Box::new(device));
        probe
    }

    fn cells(
        device: Recorded,
        due: Due,
    ) -> (BTreeMap<&'static str, f64>, BTreeMap<&'static str, AbsenceReason>) {
        let mut reading = Reading::default();
        probe(device, Path::new("/no/such/device")).read(due, &mut reading).unwrap();
        let row = &reading.rows()[0];
        let values = row.values().iter().map(|(metric, value)| (metric.metric().column, value.as_f64()));
        let absences: BTreeMap<_, _> =
            row.absences().iter().map(|(metric, reason)| (metric.metric().column, *reason)).collect();
        assert_eq!(absences.len(), row.absences().len(), "each is told once: {absences:?}");
        let values: BTreeMap<_, _> = values.collect();
        assert!(values.keys().all(|column| !absences.contains_key(column)), "there and absent");
        (values, absences)
    }

    #[test]
    fn answers_become_columns_in_their_units() {
        let (values, absences) = cells(polaris(), Due::ALL);
        let expected = [
            ("gpu_clock_max_mhz", 1196.0),
            ("gpu_clock_mhz", 1196.0),
            ("gtt_total_mb", 8192.0),
            ("gtt_used_mb", 64.0),
            ("mem_clock_max_mhz", 1750.0),
            ("mem_clock_mhz", 1750.0),
            ("memory_free_mb", 3072.0),
            ("memory_total_mb", 4096.0),
            ("memory_used_mb", 1024.0),
            ("memory_used_pct", 25.0),
            ("power_average_w", 48.0),
            ("power_w", 48.0),
            ("temperature_c", 63.5),
            ("temperature_edge_c", 63.5),
            ("utilization_pct", 97.0),
            ("visible_memory_total_mb", 256.0),
            ("visible_memory_used_mb", 8.0),
            ("voltage_gfx_mv", 1043.0),
        ];
        assert_eq!(values.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(absences, [("voltage_soc_mv", AbsenceReason::NotSupported)].into());
    }

    #[test]
    fn the_fast_tier_asks_for_no_more_than_it_gives() {
        let (values, absences) = cells(polaris(), Due::default());
        assert!(!values.contains_key("gtt_used_mb") && !values.contains_key("gpu_clock_max_mhz"));
        assert_eq!((values["power_w"], absences.len()), (48.0, 0));
    }

    #[test]
    fn instantaneous_power_goes_before_the_average() {
        let mut device = polaris();
        device.sensors.insert(0xc, Ok(51));
        let (values, _) = cells(device, Due::ALL);
        assert_eq!((values["power_w"], values["power_average_w"]), (51.0, 48.0));
    }

    #[test]
    fn nothing_is_no_power_and_no_voltage_of_a_clock_that_runs() {
        let mut device = polaris();
        device.sensors.extend([(5, Ok(0)), (6, Ok(0)), (7, Ok(0))]);
        let (values, absences) = cells(device.clone(), Due::ALL);
        for column in ["power_w", "power_average_w", "voltage_soc_mv", "voltage_gfx_mv"] {
            assert!(!values.contains_key(column), "{column}");
            assert_eq!(absences[column], AbsenceReason::NotSupported);
        }
        device.sensors.insert(1, Ok(0));
        assert_eq!(cells(device, Due::ALL).0.get("voltage_gfx_mv"), Some(&0.0), "the engine is off");
    }

    #[test]
    fn nothing_comes_of_memory_that_cannot_be_in_use() {
        for (used, is_told) in [(u64::MAX, false), ((4096 << 20) + 1, true)] {
            let mut device = polaris();
            device.memory = device.memory.map(|mut heaps| {
                heaps[2] = used;
                heaps
            });
            let (values, absences) = cells(device, Due::ALL);
            assert_eq!(values.contains_key("memory_used_mb"), is_told, "{used}");
            for column in ["memory_used_pct", "memory_free_mb"] {
                assert_eq!(absences.get(column), Some(&AbsenceReason::Invalid), "{used}: {column}");
            }
        }
    }

    #[test]
    fn a_sensor_that_fails_once_is_told_each_time_and_asked_again() {
        let mut device = polaris();
        device.sensors.extend([(3, Err(Errno::TIME)), (5, Err(Errno::TIME)), (0xc, Err(Errno::TIME))]);
        let (_, absences) = cells(device, Due { slow: true, rare: false });
        for column in ["temperature_c", "temperature_edge_c", "power_w", "power_average_w"] {
            assert_eq!(absences.get(column), Some(&AbsenceReason::TimedOut), "{column}");
        }
    }

    #[test]
    fn a_sensor_below_zero_degrees_is_cold_and_not_hot() {
        let mut device = polaris();
        device.sensors.insert(3, Ok((-4_000_i32).cast_unsigned()));
        assert_eq!(cells(device, Due::ALL).0.get("temperature_c"), Some(&-4.0));
    }

    #[test]
    fn an_error_is_an_absence_with_its_reason() {
        let check = |errno: Errno, due: Due, expected: Option<AbsenceReason>| {
            let mut device = polaris();
            device.sensors.insert(4, Err(errno));
            device.memory = Err(errno);
            device.dev_info = Err(errno);
            let (values, absences) = cells(device, due);
            for column in ["utilization_pct", "memory_used_mb"] {
                assert!(!values.contains_key(column));
                assert_eq!(absences.get(column).copied(), expected, "{column}, {errno}");
            }
        };
        check(Errno::TIME, Due::default(), Some(AbsenceReason::TimedOut));
        check(Errno::IO, Due::default(), Some(AbsenceReason::Invalid));
        check(Errno::INVAL, Due::default(), None);
        check(Errno::INVAL, Due::ALL, Some(AbsenceReason::NotSupported));
    }

    #[test]
    fn a_gpu_that_goes_is_gone_and_opened_again_as_found() {
        let mut device = polaris();
        device.sensors.insert(2, Err(Errno::NODEV));
        let mut probe = probe(device, Path::new("/no/such/device"));
        let mut reading = Reading::default();
        assert!(matches!(probe.read(Due::ALL, &mut reading), Err(ProbeError::Gone(_))));
        assert!(reading.rows().is_empty());
        let Err(ProbeError::Denied(text)) = probe.read(Due::ALL, &mut reading) else { panic!("not denied") };
        assert!(text.contains("group") && text.contains("renderD128"), "{text}");
        probe.open = |_| Ok(Box::new(Recorded { driver: "i915", ..polaris() }));
        assert!(
            matches!(probe.read(Due::ALL, &mut reading), Err(ProbeError::Failed(text)) if text.contains("i915"))
        );
        probe.open = |_| Ok(Box::new(polaris()));
        probe.read(Due::ALL, &mut reading).unwrap();
        assert_eq!(reading.rows().len(), 1);
    }

    #[test]
    fn a_gpu_that_sleeps_is_not_even_opened() {
        let dir = tempfile::tempdir().unwrap();
        let power = dir.path().join("power");
        std::fs::create_dir(&power).unwrap();
        std::fs::write(power.join("control"), "auto\n").unwrap();
        std::fs::write(power.join("runtime_status"), "suspended\n").unwrap();
        let mut probe = probe(polaris(), dir.path());
        probe.device = None;
        probe.open = |_| panic!("opened");
        let mut reading = Reading::default();
        probe.read(Due::ALL, &mut reading).unwrap();
        assert_eq!(reading.rows()[0].is_down().unwrap().0, AbsenceReason::Suspended);
        std::fs::write(power.join("runtime_status"), "active\n").unwrap();
        probe.open = |_| Ok(Box::new(polaris()));
        reading.clear();
        probe.read(Due::ALL, &mut reading).unwrap();
        assert!(reading.rows()[0].is_down().is_none());
    }
}
