//! The calls into `libnvidia-ml.so`: the one place with foreign code. Every symbol is optional; one that the library
//! lacks answers like a call that the driver does not know. Numbers come back as the driver gives them.
#![expect(unsafe_code, reason = "foreign functions of NVML are called here and nowhere else")]

mod base;
mod gpm;

use std::ffi::{CStr, CString, c_char};
use std::path::Path;

use nvml_wrapper_sys::bindings as sys;

use super::code::{Answer, Code};

use base::call;

pub(crate) use base::{Gpu, Raw};
pub(crate) use gpm::{GpmRequest, GpmSample};

/// Longest text NVML gives (`NVML_DEVICE_UUID_V2_BUFFER_SIZE`, `NVML_DEVICE_NAME_V2_BUFFER_SIZE`).
const TEXT_LEN: usize = 96;
const TEXT_LEN_U32: u32 = 96;
/// Most entries of a list that NVML gives; longer ones are cut.
const LIST_LEN_MAX: u32 = 4096;

macro_rules! numbers {
    ($($name:ident = $function:ident($($argument:ident),*) -> $type:ty;)+) => {
        impl Raw {
            $(pub(crate) fn $name(&self, gpu: Gpu $(, $argument: u32)*) -> Answer<$type> {
                let mut value: $type = 0;
                call!(self, $function(gpu.0 $(, $argument)*, &raw mut value))?;
                Ok(value)
            })+
        }
    };
}

numbers! {
    architecture = nvmlDeviceGetArchitecture() -> u32;
    clock_mhz = nvmlDeviceGetClockInfo(clock) -> u32;
    clock_max_mhz = nvmlDeviceGetMaxClockInfo(clock) -> u32;
    clock_application_mhz = nvmlDeviceGetApplicationsClock(clock) -> u32;
    clock_reasons_new = nvmlDeviceGetCurrentClocksEventReasons() -> u64;
    clock_reasons_old = nvmlDeviceGetCurrentClocksThrottleReasons() -> u64;
    temperature_old_c = nvmlDeviceGetTemperature(sensor) -> u32;
    temperature_limit_c = nvmlDeviceGetTemperatureThreshold(threshold) -> u32;
    power_mw = nvmlDeviceGetPowerUsage() -> u32;
    power_limit_mw = nvmlDeviceGetPowerManagementLimit() -> u32;
    power_limit_enforced_mw = nvmlDeviceGetEnforcedPowerLimit() -> u32;
    power_limit_default_mw = nvmlDeviceGetPowerManagementDefaultLimit() -> u32;
    energy_mj = nvmlDeviceGetTotalEnergyConsumption() -> u64;
    performance_state = nvmlDeviceGetPerformanceState() -> u32;
    fan_pct_old = nvmlDeviceGetFanSpeed() -> u32;
    fan_pct_of = nvmlDeviceGetFanSpeed_v2(fan) -> u32;
    fans = nvmlDeviceGetNumFans() -> u32;
    pcie_gen = nvmlDeviceGetCurrPcieLinkGeneration() -> u32;
    pcie_width = nvmlDeviceGetCurrPcieLinkWidth() -> u32;
    pcie_gen_max = nvmlDeviceGetMaxPcieLinkGeneration() -> u32;
    pcie_width_max = nvmlDeviceGetMaxPcieLinkWidth() -> u32;
    pcie_speed_mbps = nvmlDeviceGetPcieSpeed() -> u32;
    pcie_replays = nvmlDeviceGetPcieReplayCounter() -> u32;
    ecc_errors = nvmlDeviceGetTotalEccErrors(kind, lifetime) -> u64;
    ecc_block_errors = nvmlDeviceGetMemoryErrorCounter(kind, lifetime, block) -> u64;
    link_state = nvmlDeviceGetNvLinkState(link) -> u32;
    persistence_mode = nvmlDeviceGetPersistenceMode() -> u32;
    compute_mode = nvmlDeviceGetComputeMode() -> u32;
    mig_devices_max = nvmlDeviceGetMaxMigDeviceCount() -> u32;
    gpu_instance = nvmlDeviceGetGpuInstanceId() -> u32;
    compute_instance = nvmlDeviceGetComputeInstanceId() -> u32;
    event_types = nvmlDeviceGetSupportedEventTypes() -> u64;
}

macro_rules! pairs {
    ($($name:ident = $function:ident;)+) => {
        impl Raw {
            $(pub(crate) fn $name(&self, gpu: Gpu) -> Answer<(u32, u32)> {
                let (mut first, mut second) = (0, 0);
                call!(self, $function(gpu.0, &raw mut first, &raw mut second))?;
                Ok((first, second))
            })+
        }
    };
}

pairs! {
    encoder_pct = nvmlDeviceGetEncoderUtilization; // and the sampling period in microseconds
    decoder_pct = nvmlDeviceGetDecoderUtilization;
    jpeg_pct = nvmlDeviceGetJpgUtilization;
    ofa_pct = nvmlDeviceGetOfaUtilization;
    ecc_modes = nvmlDeviceGetEccMode; // now and after the next reset
    mig_modes = nvmlDeviceGetMigMode;
    power_limits_mw = nvmlDeviceGetPowerManagementLimitConstraints; // least and most
}

/// Memory of a GPU or instance, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) used: u64,
    pub(crate) free: u64,
    /// None if the driver counts it as used.
    pub(crate) reserved: Option<u64>,
}

/// What an NVLink leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkEnd {
    /// A GPU, by its PCI address as NVML spells it.
    Gpu(String),
    Switch,
    /// A processor, or what the driver does not know.
    Other,
}

/// Words of a set of NUMA nodes: 1,024 nodes, as many as Linux has at most.
const NUMA_WORDS: usize = 16;
const NUMA_WORDS_U32: u32 = 16;

/// Which list of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contexts {
    Compute,
    Graphics,
    Mps,
}

/// Errors of the SRAM, by how they were found and where.
pub(crate) type SramErrors = sys::nvmlEccSramErrorStatus_t;

/// A field value's query and result.
pub(crate) type FieldValue = sys::nvmlFieldValue_t;

/// Number in a field value, by its type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
}

/// A request for a field.
pub(crate) fn field_value(id: u32, scope: u32) -> FieldValue {
    FieldValue {
        fieldId: id,
        scopeId: scope,
        timestamp: 0,
        latencyUsec: 0,
        valueType: 0,
        nvmlReturn: 0,
        value: sys::nvmlValue_t { ullVal: 0 },
    }
}

/// The result of a field.
pub(crate) fn field_answer(value: &FieldValue) -> Answer<Number> {
    Code::check(value.nvmlReturn)?;
    let bits = value.value;
    // SAFETY: every variant is plain bits of at most eight bytes, all of which were set to 0 before the call.
    let number = unsafe {
        match value.valueType {
            0 => return Ok(Number::Float(bits.dVal)),
            1 => i64::from(bits.uiVal),
            2 | 3 => i64::try_from(bits.ullVal).unwrap_or(-1),
            4 => bits.sllVal,
            5 => i64::from(bits.siVal),
            6 => i64::from(bits.usVal),
            _ => return Err(Code::NOT_SUPPORTED),
        }
    };
    Ok(Number::Int(number))
}

impl Raw {
    /// Loads and initialises a library.
    pub(crate) fn load(path: &Path) -> Result<Self, LoadError> {
        // SAFETY: NVML's initialisers have no demands; a wrong file is the administrator's choice, as every shared library is.
        let lib = unsafe { sys::NvmlLib::new(path) }.map_err(|error| LoadError::Open(error.to_string()))?;
        let raw = Self { lib };
        raw.init().map_err(LoadError::Init)?;
        Ok(raw)
    }

    /// Initialises the library (again).
    pub(crate) fn init(&self) -> Answer<()> {
        call!(self, nvmlInit_v2())
    }

    pub(crate) fn driver_version(&self) -> Answer<String> {
        text(|buffer| call!(self, nvmlSystemGetDriverVersion(buffer, TEXT_LEN_U32)))
    }

    pub(crate) fn nvml_version(&self) -> Answer<String> {
        text(|buffer| call!(self, nvmlSystemGetNVMLVersion(buffer, TEXT_LEN_U32)))
    }

    pub(crate) fn count(&self) -> Answer<u32> {
        let mut count = 0;
        call!(self, nvmlDeviceGetCount_v2(&raw mut count))?;
        Ok(count)
    }

    pub(crate) fn by_index(&self, index: u32) -> Answer<Gpu> {
        let mut handle = std::ptr::null_mut();
        call!(self, nvmlDeviceGetHandleByIndex_v2(index, &raw mut handle))?;
        Ok(Gpu(handle))
    }

    pub(crate) fn by_uuid(&self, uuid: &str) -> Answer<Gpu> {
        let uuid = CString::new(uuid).map_err(|_| Code::INVALID_ARGUMENT)?;
        let mut handle = std::ptr::null_mut();
        call!(self, nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut handle))?;
        Ok(Gpu(handle))
    }

    /// The n-th MIG instance of a GPU; there may be holes.
    pub(crate) fn mig_device(&self, gpu: Gpu, index: u32) -> Answer<Gpu> {
        let mut handle = std::ptr::null_mut();
        call!(self, nvmlDeviceGetMigDeviceHandleByIndex(gpu.0, index, &raw mut handle))?;
        Ok(Gpu(handle))
    }

    pub(crate) fn uuid(&self, gpu: Gpu) -> Answer<String> {
        text(|buffer| call!(self, nvmlDeviceGetUUID(gpu.0, buffer, TEXT_LEN_U32)))
    }

    pub(crate) fn name(&self, gpu: Gpu) -> Answer<String> {
        text(|buffer| call!(self, nvmlDeviceGetName(gpu.0, buffer, TEXT_LEN_U32)))
    }

    /// Version of the board's firmware, `96.00.89.00.01`.
    pub(crate) fn vbios(&self, gpu: Gpu) -> Answer<String> {
        text(|buffer| call!(self, nvmlDeviceGetVbiosVersion(gpu.0, buffer, TEXT_LEN_U32)))
    }

    /// PCI address as NVML spells it (`00000000:0C:00.0`), and the PCI device id without the vendor.
    pub(crate) fn pci(&self, gpu: Gpu) -> Answer<(String, u32)> {
        // SAFETY: a plain C struct of integers and characters, for which all zeros is a value.
        let mut pci: sys::nvmlPciInfo_t = unsafe { std::mem::zeroed() };
        call!(self, nvmlDeviceGetPciInfo_v3(gpu.0, &raw mut pci))?;
        Ok((string(&pci.busId), pci.pciDeviceId >> 16))
    }

    /// What a link leads to; an answer without a type is of a driver that does not tell.
    pub(crate) fn link_end(&self, gpu: Gpu, link: u32) -> Answer<LinkEnd> {
        let mut kind = sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
        call!(self, nvmlDeviceGetNvLinkRemoteDeviceType(gpu.0, link, &raw mut kind))?;
        match kind {
            sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH => Ok(LinkEnd::Switch),
            sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU => {
                // SAFETY: a plain C struct of integers and characters, for which all zeros is a value.
                let mut pci: sys::nvmlPciInfo_t = unsafe { std::mem::zeroed() };
                call!(self, nvmlDeviceGetNvLinkRemotePciInfo_v2(gpu.0, link, &raw mut pci))?;
                Ok(LinkEnd::Gpu(string(&pci.busId)))
            }
            _ => Ok(LinkEnd::Other),
        }
    }

    /// NUMA node of the memory that is next to a GPU, if it is one.
    pub(crate) fn numa_node(&self, gpu: Gpu) -> Answer<u32> {
        let mut nodes = [0; NUMA_WORDS];
        call!(
            self,
            nvmlDeviceGetMemoryAffinity(
                gpu.0,
                NUMA_WORDS_U32,
                nodes.as_mut_ptr(),
                sys::NVML_AFFINITY_SCOPE_NODE
            )
        )?;
        let set = nodes.iter().map(|word| word.count_ones()).sum::<u32>();
        let first = (0..).zip(nodes).find(|(_, word)| *word != 0);
        match first {
            Some((at, word)) if set == 1 => Ok(at * std::ffi::c_ulong::BITS + word.trailing_zeros()),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }

    pub(crate) fn utilization_pct(&self, gpu: Gpu) -> Answer<(u32, u32)> {
        let mut value = sys::nvmlUtilization_t { gpu: 0, memory: 0 };
        call!(self, nvmlDeviceGetUtilizationRates(gpu.0, &raw mut value))?;
        Ok((value.gpu, value.memory))
    }

    pub(crate) fn memory(&self, gpu: Gpu) -> Answer<Memory> {
        let mut now = sys::nvmlMemory_v2_t {
            version: version::<sys::nvmlMemory_v2_t>(2),
            total: 0,
            reserved: 0,
            free: 0,
            used: 0,
        };
        match call!(self, nvmlDeviceGetMemoryInfo_v2(gpu.0, &raw mut now)) {
            Ok(()) => {
                Ok(Memory { total: now.total, used: now.used, free: now.free, reserved: Some(now.reserved) })
            }
            Err(code) if code.asks_for_older_call() => {
                let mut old = sys::nvmlMemory_t { total: 0, free: 0, used: 0 };
                call!(self, nvmlDeviceGetMemoryInfo(gpu.0, &raw mut old))?;
                Ok(Memory { total: old.total, used: old.used, free: old.free, reserved: None })
            }
            Err(code) => Err(code),
        }
    }

    /// Total, used and free bytes of the BAR1 window.
    pub(crate) fn bar1(&self, gpu: Gpu) -> Answer<[u64; 3]> {
        let mut bar1 = sys::nvmlBAR1Memory_t { bar1Total: 0, bar1Free: 0, bar1Used: 0 };
        call!(self, nvmlDeviceGetBAR1MemoryInfo(gpu.0, &raw mut bar1))?;
        Ok([bar1.bar1Total, bar1.bar1Used, bar1.bar1Free])
    }

    pub(crate) fn temperature_c(&self, gpu: Gpu) -> Answer<i64> {
        let mut value = sys::nvmlTemperature_t {
            version: version::<sys::nvmlTemperature_t>(1),
            sensorType: 0,
            temperature: 0,
        };
        match call!(self, nvmlDeviceGetTemperatureV(gpu.0, &raw mut value)) {
            Ok(()) => Ok(i64::from(value.temperature)),
            Err(code) if code.asks_for_older_call() => self.temperature_old_c(gpu, 0).map(i64::from),
            Err(code) => Err(code),
        }
    }

    /// Degrees left to the nearest slowdown limit.
    pub(crate) fn temperature_margin_c(&self, gpu: Gpu) -> Answer<i64> {
        let mut value = sys::nvmlMarginTemperature_t {
            version: version::<sys::nvmlMarginTemperature_t>(1),
            marginTemperature: 0,
        };
        call!(self, nvmlDeviceGetMarginTemperature(gpu.0, &raw mut value))?;
        Ok(i64::from(value.marginTemperature))
    }

    pub(crate) fn clock_reasons(&self, gpu: Gpu) -> Answer<u64> {
        match self.clock_reasons_new(gpu) {
            Err(code) if code.asks_for_older_call() => self.clock_reasons_old(gpu),
            answer => answer,
        }
    }

    pub(crate) fn fan_rpm(&self, gpu: Gpu) -> Answer<u32> {
        let mut value =
            sys::nvmlFanSpeedInfo_t { version: version::<sys::nvmlFanSpeedInfo_t>(1), fan: 0, speed: 0 };
        call!(self, nvmlDeviceGetFanSpeedRPM(gpu.0, &raw mut value))?;
        Ok(value.speed)
    }

    /// Banks by spare rows left: max, high, partial, low, none.
    pub(crate) fn remap_banks(&self, gpu: Gpu) -> Answer<[u32; 5]> {
        let mut banks =
            sys::nvmlRowRemapperHistogramValues_t { max: 0, high: 0, partial: 0, low: 0, none: 0 };
        call!(self, nvmlDeviceGetRowRemapperHistogram(gpu.0, &raw mut banks))?;
        Ok([banks.max, banks.high, banks.partial, banks.low, banks.none])
    }

    /// Errors of the SRAM.
    pub(crate) fn sram_errors(&self, gpu: Gpu) -> Answer<SramErrors> {
        // SAFETY: a plain C struct of integers.
        let mut status: SramErrors = unsafe { std::mem::zeroed() };
        status.version = version::<SramErrors>(1);
        call!(self, nvmlDeviceGetSramEccErrorStatus(gpu.0, &raw mut status))?;
        Ok(status)
    }

    /// Sessions of the encoders; frames per second and latency in microseconds, means over the sessions.
    pub(crate) fn encoder_sessions(&self, gpu: Gpu) -> Answer<[u32; 3]> {
        let (mut sessions, mut fps, mut latency_us) = (0, 0, 0);
        call!(self, nvmlDeviceGetEncoderStats(gpu.0, &raw mut sessions, &raw mut fps, &raw mut latency_us))?;
        Ok([sessions, fps, latency_us])
    }

    /// Whether the links to the CPU of the module are in use.
    pub(crate) fn c2c_mode(&self, gpu: Gpu) -> Answer<u32> {
        let mut mode = sys::nvmlC2cModeInfo_v1_t { isC2cEnabled: 0 };
        call!(self, nvmlDeviceGetC2cModeInfoV(gpu.0, &raw mut mode))?;
        Ok(mode.isC2cEnabled)
    }

    /// State and health of the NVLink fabric; older drivers report the state only.
    pub(crate) fn fabric(&self, gpu: Gpu) -> Answer<(u32, Option<u32>)> {
        // SAFETY: a plain C struct of integers; the version before is its beginning.
        let mut fabric: sys::nvmlGpuFabricInfo_v3_t = unsafe { std::mem::zeroed() };
        fabric.version = version::<sys::nvmlGpuFabricInfo_v3_t>(3);
        match call!(self, nvmlDeviceGetGpuFabricInfoV(gpu.0, &raw mut fabric)) {
            Ok(()) => Ok((fabric.state.into(), Some(fabric.healthSummary.into()))),
            Err(Code::ARGUMENT_VERSION_MISMATCH) => {
                fabric.version = version::<sys::nvmlGpuFabricInfo_v2_t>(2);
                call!(self, nvmlDeviceGetGpuFabricInfoV(gpu.0, &raw mut fabric))?;
                Ok((fabric.state.into(), None))
            }
            Err(code) => Err(code),
        }
    }

    /// State of confidential computing, of the whole machine.
    pub(crate) fn confidential_mode(&self) -> Answer<u32> {
        let mut state = sys::nvmlConfComputeSystemState_t { environment: 0, ccFeature: 0, devToolsMode: 0 };
        call!(self, nvmlSystemGetConfComputeState(&raw mut state))?;
        Ok(state.ccFeature)
    }

    /// Reads fields; each entry gets its own answer.
    pub(crate) fn field_values(&self, gpu: Gpu, values: &mut [FieldValue]) -> Answer<()> {
        for value in &mut *values {
            // An entry that the driver leaves untouched must not look like an answer.
            value.nvmlReturn = Code::NOT_SUPPORTED.0;
            value.value.ullVal = 0;
        }
        let count = i32::try_from(values.len()).unwrap_or(i32::MAX);
        call!(self, nvmlDeviceGetFieldValues(gpu.0, count, values.as_mut_ptr()))
    }
}

/// Processes, of a GPU or an instance.
impl Raw {
    /// Fills `list` with the processes that have a context of this kind; keeps its memory.
    pub(crate) fn contexts(&self, gpu: Gpu, kind: Contexts, list: &mut Vec<ContextEntry>) -> Answer<()> {
        const EMPTY: ContextEntry =
            ContextEntry { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
        filled(list, EMPTY, |count, into| match kind {
            Contexts::Compute => call!(self, nvmlDeviceGetComputeRunningProcesses_v3(gpu.0, count, into)),
            Contexts::Graphics => call!(self, nvmlDeviceGetGraphicsRunningProcesses_v3(gpu.0, count, into)),
            Contexts::Mps => call!(self, nvmlDeviceGetMPSComputeRunningProcesses_v3(gpu.0, count, into)),
        })
    }

    /// Fills `list` with the use of processes since a time of the driver's clock (microseconds); empty if
    /// none used it.
    pub(crate) fn process_utilization(
        &self,
        gpu: Gpu,
        since_us: u64,
        list: &mut Vec<ProcessShare>,
    ) -> Answer<()> {
        const EMPTY: ProcessShare =
            ProcessShare { pid: 0, timeStamp: 0, smUtil: 0, memUtil: 0, encUtil: 0, decUtil: 0 };
        let answer = filled(list, EMPTY, |count, into| {
            call!(self, nvmlDeviceGetProcessUtilization(gpu.0, into, count, since_us))
        });
        match answer {
            Err(Code::NOT_FOUND) => {
                list.clear();
                Ok(())
            }
            answer => answer,
        }
    }
}

/// Clocks that can be held, and holding them.
impl Raw {
    /// Memory clocks, MHz, highest first.
    pub(crate) fn memory_clocks_mhz(&self, gpu: Gpu) -> Answer<Vec<u32>> {
        let mut list = Vec::new();
        filled(&mut list, 0, |count, into| {
            call!(self, nvmlDeviceGetSupportedMemoryClocks(gpu.0, count, into))
        })?;
        Ok(list)
    }

    /// Graphics clocks beside a memory clock, MHz, highest first.
    pub(crate) fn graphics_clocks_mhz(&self, gpu: Gpu, memory: u32) -> Answer<Vec<u32>> {
        let mut list = Vec::new();
        let ask = |count, into| call!(self, nvmlDeviceGetSupportedGraphicsClocks(gpu.0, memory, count, into));
        filled(&mut list, 0, ask)?;
        Ok(list)
    }

    pub(crate) fn lock_gpu_clocks(&self, gpu: Gpu, min: u32, max: u32) -> Answer<()> {
        call!(self, nvmlDeviceSetGpuLockedClocks(gpu.0, min, max))
    }

    pub(crate) fn reset_gpu_clocks(&self, gpu: Gpu) -> Answer<()> {
        call!(self, nvmlDeviceResetGpuLockedClocks(gpu.0))
    }

    pub(crate) fn lock_memory_clocks(&self, gpu: Gpu, min: u32, max: u32) -> Answer<()> {
        call!(self, nvmlDeviceSetMemoryLockedClocks(gpu.0, min, max))
    }

    pub(crate) fn reset_memory_clocks(&self, gpu: Gpu) -> Answer<()> {
        call!(self, nvmlDeviceResetMemoryLockedClocks(gpu.0))
    }
}

/// An entry of a list of processes.
pub(crate) type ContextEntry = sys::nvmlProcessInfo_t;
/// The use of one process, %.
pub(crate) type ProcessShare = sys::nvmlProcessUtilizationSample_t;

/// Device memory of a process, bytes; all ones mean that the driver does not say.
pub(crate) fn context_memory(entry: &ContextEntry) -> Option<u64> {
    (entry.usedGpuMemory != u64::MAX).then_some(entry.usedGpuMemory)
}

/// Requests a list with enough room: NVML reports the size, and it may grow meanwhile.
fn filled<T: Copy>(
    list: &mut Vec<T>,
    empty: T,
    mut ask: impl FnMut(*mut u32, *mut T) -> Answer<()>,
) -> Answer<()> {
    let mut room = u32::try_from(list.capacity()).unwrap_or(0).clamp(16, LIST_LEN_MAX);
    for _ in 0..4 {
        list.clear();
        list.resize(room as usize, empty);
        let mut count = room;
        match ask(&raw mut count, list.as_mut_ptr()) {
            Ok(()) => {
                list.truncate(count as usize);
                return Ok(());
            }
            Err(Code::INSUFFICIENT_SIZE) if room < LIST_LEN_MAX => {
                room = count.saturating_add(8).max(room * 2).min(LIST_LEN_MAX);
            }
            Err(code) => {
                list.clear();
                return Err(code);
            }
        }
    }
    list.clear();
    Err(Code::INSUFFICIENT_SIZE)
}

/// A set of GPUs whose events are waited for.
pub(crate) struct EventSet {
    set: sys::nvmlEventSet_t,
    raw: &'static Raw,
}

// SAFETY: NVML is thread-safe; registering while another thread waits on the set is allowed.
unsafe impl Send for EventSet {}
// SAFETY: as above.
unsafe impl Sync for EventSet {}

impl EventSet {
    pub(crate) fn new(raw: &'static Raw) -> Answer<Self> {
        let mut set = std::ptr::null_mut();
        call!(raw, nvmlEventSetCreate(&raw mut set))?;
        Ok(Self { set, raw })
    }

    pub(crate) fn register(&self, gpu: Gpu, types: u64) -> Answer<()> {
        call!(self.raw, nvmlDeviceRegisterEvents(gpu.0, types, self.set))
    }

    /// The next event: its GPU, type and data. [`Code::TIMEOUT`] if none came in time.
    pub(crate) fn wait(&self, timeout_ms: u32) -> Answer<(Gpu, u64, u64)> {
        let mut event = sys::nvmlEventData_t {
            device: std::ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0,
        };
        call!(self.raw, nvmlEventSetWait_v2(self.set, &raw mut event, timeout_ms))?;
        Ok((Gpu(event.device), event.eventType, event.eventData))
    }
}

impl Drop for EventSet {
    fn drop(&mut self) {
        let _freed = call!(self.raw, nvmlEventSetFree(self.set));
    }
}

/// Why a library could not be had.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The file is missing or not such a library; the loader's message.
    Open(String),
    /// It does not start.
    Init(Code),
    /// Another thread is at it.
    Starting,
}

/// NVML's version of a struct: its size, and above that a number.
fn version<T>(number: u32) -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(0) | number << 24
}

fn text(fill: impl FnOnce(*mut c_char) -> Answer<()>) -> Answer<String> {
    let mut buffer = [0 as c_char; TEXT_LEN];
    fill(buffer.as_mut_ptr())?;
    Ok(string(&buffer))
}

/// The text up to the first NUL; bytes that are no UTF-8 are replaced.
fn string(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|c| c.to_ne_bytes()[0]).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}
