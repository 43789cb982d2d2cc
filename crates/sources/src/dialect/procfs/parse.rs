//! Parsers of the files. Unknown keys are skipped, missing keys stay missing; an invalid number counts as
//! missing.

/// CPU time of all CPUs together, or of one, since boot, in ticks of 10 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    /// In programs, niced ones and virtual CPUs of guests included.
    pub user: u64,
    /// In the kernel, interrupts included.
    pub system: u64,
    /// Doing nothing, with no I/O in progress.
    pub idle: u64,
    /// Doing nothing while I/O was in progress; kernels before 2.5.41 do not report it.
    pub iowait: Option<u64>,
    /// Taken by the hypervisor for others.
    pub steal: u64,
}

impl CpuTimes {
    /// All of it.
    pub fn total(&self) -> u64 {
        [self.system, self.idle, self.iowait.unwrap_or(0), self.steal]
            .into_iter()
            .fold(self.user, u64::saturating_add)
    }

    /// The time since an earlier reading; a decrease counts as none.
    pub fn since(&self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            iowait: self.iowait.map(|now| now.saturating_sub(earlier.iowait.unwrap_or(now))),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }
}

/// Counts of `/proc/stat`, since the host booted or of now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// Line `cpu`: the time of all CPUs together.
    pub times: Option<CpuTimes>,
    /// Number of lines `cpuN`: the CPUs that are online.
    pub cpus: u64,
    /// Line `ctxt`, since the host booted.
    pub context_switches: Option<u64>,
    /// First number of line `intr`.
    pub interrupts: Option<u64>,
    /// First number of line `softirq`.
    pub soft_interrupts: Option<u64>,
    /// Line `processes`: forks since the host booted.
    pub forks: Option<u64>,
    /// Line `procs_running`: tasks that run or could run now.
    pub running: Option<u64>,
    /// Line `procs_blocked`: tasks that wait for I/O now.
    pub blocked: Option<u64>,
}

/// Memory of the host by `/proc/meminfo`, KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostMemory {
    /// `MemTotal`: what the kernel can use.
    pub total_kib: Option<u64>,
    /// `MemAvailable`, from Linux 3.14 on.
    pub available_kib: Option<u64>,
    /// `SwapTotal`: the size of all swap.
    pub swap_total_kib: Option<u64>,
    /// `SwapFree`: what of it is unused.
    pub swap_free_kib: Option<u64>,
}

/// Page faults by `/proc/vmstat`, since the host booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageFaults {
    /// `pgfault`: minor and major ones.
    pub all: Option<u64>,
    /// `pgmajfault`: those that had to read a disk.
    pub major: Option<u64>,
}

/// Parses `/proc/stat`; a line that is missing or malformed is none.
pub fn parse_stat(text: &[u8]) -> Stat {
    let mut stat = Stat::default();
    for (key, rest) in lines(text) {
        let slot = match key {
            b"cpu" => {
                stat.times = times(rest);
                continue;
            }
            b"ctxt" => &mut stat.context_switches,
            b"intr" => &mut stat.interrupts,
            b"softirq" => &mut stat.soft_interrupts,
            b"processes" => &mut stat.forks,
            b"procs_running" => &mut stat.running,
            b"procs_blocked" => &mut stat.blocked,
            _ => {
                stat.cpus += u64::from(is_cpu(key));
                continue;
            }
        };
        *slot = numbers(rest).next().flatten();
    }
    stat
}

/// Parses the lines `cpuN` at the beginning of `/proc/stat`: number and times of each CPU that is online.
pub fn parse_cores(text: &[u8]) -> impl Iterator<Item = (u64, CpuTimes)> {
    let of_cpus = lines(text).take_while(|(key, _)| key.starts_with(b"cpu"));
    of_cpus.filter_map(|(key, rest)| Some((number(key.strip_prefix(b"cpu")?)?, times(rest)?)))
}

/// Parses `/proc/meminfo`; a line that is missing or malformed is none.
pub fn parse_memory(text: &[u8]) -> HostMemory {
    let mut memory = HostMemory::default();
    for (key, rest) in lines(text) {
        let slot = match key {
            b"MemTotal:" => &mut memory.total_kib,
            b"MemAvailable:" => &mut memory.available_kib,
            b"SwapTotal:" => &mut memory.swap_total_kib,
            b"SwapFree:" => &mut memory.swap_free_kib,
            _ => continue,
        };
        *slot = numbers(rest).next().flatten();
    }
    memory
}

/// Parses `/proc/vmstat`; a line that is missing or malformed is none.
pub fn parse_vmstat(text: &[u8]) -> PageFaults {
    let mut faults = PageFaults::default();
    for (key, rest) in lines(text) {
        let slot = match key {
            b"pgfault" => &mut faults.all,
            b"pgmajfault" => &mut faults.major,
            _ => continue,
        };
        *slot = numbers(rest).next().flatten();
    }
    faults
}

/// Parses `/proc/loadavg`: the means over 1, 5 and 15 minutes.
pub fn parse_load(text: &[u8]) -> [Option<f32>; 3] {
    let mut loads = [None; 3];
    for (slot, word) in loads.iter_mut().zip(words(text)) {
        let load: Option<f32> = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
        *slot = load.filter(|load| load.is_finite() && *load >= 0.0);
    }
    loads
}

/// Parses `/proc/uptime`: seconds with hundredths, to nanoseconds.
pub fn parse_uptime_ns(text: &[u8]) -> Option<u64> {
    let word = words(text).next()?;
    let mut parts = word.splitn(2, |&b| b == b'.');
    let seconds = number(parts.next()?)?;
    let mut fraction_ns = 0;
    let mut digit_ns = 100_000_000;
    for digit in parts.next().unwrap_or_default() {
        fraction_ns += u64::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?) * digit_ns;
        digit_ns /= 10;
    }
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

/// The fields of a CPU: user, nice, system, idle, and on newer kernels iowait, irq, softirq, steal. The guests' times that
/// follow are in user and nice already.
fn times(rest: &[u8]) -> Option<CpuTimes> {
    let mut fields = numbers(rest);
    let mut required = || fields.next().flatten();
    let (user, nice, system, idle) = (required()?, required()?, required()?, required()?);
    let iowait = fields.next().flatten();
    let mut optional = || fields.next().flatten().unwrap_or(0);
    let (irq, soft_irq, steal) = (optional(), optional(), optional());
    Some(CpuTimes {
        user: user.saturating_add(nice),
        system: system.saturating_add(irq).saturating_add(soft_irq),
        idle,
        iowait,
        steal,
    })
}

fn is_cpu(key: &[u8]) -> bool {
    key.strip_prefix(b"cpu").is_some_and(|n| !n.is_empty() && n.iter().all(u8::is_ascii_digit))
}

/// First word and rest of each line.
fn lines(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|&b| b == b'\n').map(|line| {
        let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        line.split_at(end)
    })
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn numbers(text: &[u8]) -> impl Iterator<Item = Option<u64>> {
    words(text).map(number)
}

fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value.checked_mul(10)?.checked_add(digit.into())
    })
}
