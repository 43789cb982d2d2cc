//! The behaviour of a made-up MI300X over time, and its binary table.

const LOAD_PERIOD_MS: u64 = 20_000;
const LOAD_BUSY_MS: u64 = 14_000;
/// Power limit of the package, W.
pub(crate) const POWER_CAP_W: u64 = 750;
const POWER_IDLE_W: u64 = 140;

/// Offsets of the fields that differ between the two versions; the rest follows from these.
#[derive(Debug)]
pub(crate) struct MetricsTable {
    content: u8,
    size: u16,
    energy: usize,
    links: usize,
    pcie: usize,
    firmware: usize,
}

impl MetricsTable {
    pub(crate) const V1_5: Self =
        Self { content: 5, size: 360, energy: 88, links: 112, pcie: 128, firmware: 304 };
    pub(crate) const V1_7: Self =
        Self { content: 7, size: 2208, energy: 24, links: 68, pcie: 88, firmware: 288 };
}

/// One GPU: a load that varies, and its consequences.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) gpu: u16,
    started_ns: u64,
    now_ns: u64,
    /// Shader engines and memory controller, percent.
    pub(crate) gfx_percent: u64,
    pub(crate) memory_percent: u64,
    /// Now, W.
    pub(crate) power_w: u64,
    /// Shader and memory clock, MHz.
    pub(crate) gfxclk_mhz: u64,
    pub(crate) uclk_mhz: u64,
    /// Junction and HBM, thousandths of a degree Celsius.
    pub(crate) junction_mc: u64,
    pub(crate) memory_mc: u64,
    /// Energy in W·ns.
    energy_wns: u128,
    gfx_acc: u64,
    memory_acc: u64,
    ppt_ms: u64,
    xgmi_kb: u64,
}

impl Package {
    /// A GPU that has been up for a while.
    pub(crate) fn new(gpu: u16, now_ns: u64) -> Self {
        let mut package = Self {
            gpu,
            started_ns: now_ns,
            now_ns,
            gfx_percent: 0,
            memory_percent: 0,
            power_w: POWER_IDLE_W,
            gfxclk_mhz: 132,
            uclk_mhz: 900,
            junction_mc: 52_000 + 700 * u64::from(gpu % 8),
            memory_mc: 46_000 + 500 * u64::from(gpu % 8),
            energy_wns: u128::from(gpu + 1) * 3_600_000_000_000_000,
            gfx_acc: 0,
            memory_acc: 0,
            ppt_ms: 0,
            xgmi_kb: 0,
        };
        package.advance(now_ns);
        package
    }

    /// Lets time pass until `now_ns` of the monotonic clock.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.now_ns);
        let up_ms = now_ns.saturating_sub(self.started_ns) / 1_000_000;
        let passed_ms = up_ms - self.now_ns.saturating_sub(self.started_ns) / 1_000_000;
        self.now_ns = now_ns;

        let ripple = ripple(self.gpu, now_ns / 1_000_000);
        let busy = (up_ms + 1_700 * u64::from(self.gpu)) % LOAD_PERIOD_MS < LOAD_BUSY_MS;
        self.gfx_percent = if busy { 90 + ripple % 10 } else { ripple % 3 };
        self.memory_percent = if busy { 35 + ripple % 20 } else { 0 };
        self.power_w = if busy { (600 + ripple % 170).min(POWER_CAP_W) } else { POWER_IDLE_W + ripple % 9 };
        self.gfxclk_mhz = if busy { 2_100 - ripple % 240 } else { 132 + ripple % 4 };
        self.uclk_mhz = if busy { 1_300 } else { 900 };
        let settle = |now: u64, target: u64, seconds: u64| {
            let step = now.abs_diff(target) * passed_ns.min(1_000_000_000) / (seconds * 1_000_000_000);
            if now < target { now + step } else { now - step }
        };
        self.junction_mc = settle(self.junction_mc, 30_000 + 65 * self.power_w, 4);
        self.memory_mc = settle(self.memory_mc, 30_000 + 45 * self.power_w, 9);

        self.energy_wns += u128::from(self.power_w) * u128::from(passed_ns);
        self.gfx_acc += self.gfx_percent * passed_ms;
        self.memory_acc += self.memory_percent * passed_ms;
        self.ppt_ms += if self.power_w == POWER_CAP_W { passed_ms } else { 0 };
        self.xgmi_kb += if busy { 40_000 * passed_ms } else { 0 };
    }

    /// The table, as the kernel would give it.
    pub(crate) fn encode(&self, table: &MetricsTable, blob: &mut Vec<u8>) {
        blob.clear();
        blob.resize(usize::from(table.size), 0xff);
        let mut put = Writer { blob };
        put.u16(0, table.size.into());
        put.u8(2, 1);
        put.u8(3, table.content);
        put.u16(4, self.junction_mc / 1000);
        put.u16(6, self.memory_mc / 1000);
        put.u16(8, self.junction_mc / 1000 - 4);
        put.u16(10, self.power_w);
        put.u16(12, self.gfx_percent);
        put.u16(14, self.memory_percent);
        let energy_steps = self.energy_wns * 65_536 / 1_000_000_000;
        put.u64(table.energy, u64::try_from(energy_steps).unwrap_or(u64::MAX));
        put.u64(table.energy + 8, self.now_ns);

        put.u16(table.links, 16);
        put.u16(table.links + 2, 320);
        put.u16(table.links + 4, 16);
        put.u16(table.links + 6, 32);
        put.u32(table.links + 8, self.gfx_acc);
        put.u32(table.links + 12, self.memory_acc);
        for (count, value) in [self.xgmi_kb / 64, 12, 3, 0, 0].into_iter().enumerate() {
            put.u64(table.pcie + 8 * count, value);
        }
        let naks = table.pcie + 40;
        put.u32(naks, 0);
        put.u32(naks + 4, 0);
        // Seven neighbours; the eighth place stays unfilled.
        for link in 0..7 {
            put.u64(naks + 8 + 8 * link, self.xgmi_kb);
            put.u64(naks + 72 + 8 * link, self.xgmi_kb / 2);
        }
        put.u64(table.firmware, self.now_ns / 10);
        put.each_u16(table.firmware + 8, [self.gfxclk_mhz; 8]);
        put.each_u16(table.firmware + 24, [1_143; 4]);
        put.each_u16(table.firmware + 32, [29; 4]);
        put.each_u16(table.firmware + 40, [22; 4]);
        put.u16(table.firmware + 48, self.uclk_mhz);
        if table.content == 5 { self.encode_v1_5(&mut put) } else { self.encode_v1_7(&mut put) }
    }

    /// Fields of v1.5 only: busy engines and a status of throttling.
    fn encode_v1_5(&self, put: &mut Writer<'_>) {
        put.each_u16(16, [0; 4]);
        put.each_u16(24, [0; 32]);
        put.u32(104, u64::from(self.power_w == POWER_CAP_W));
        put.u32(108, 0);
    }

    /// Fields of v1.7 only: shares of throttling, state of links, the one partition.
    fn encode_v1_7(&self, put: &mut Writer<'_>) {
        put.u64(16, 5_300);
        let steps = self.now_ns.saturating_sub(self.started_ns) / 1_000_000;
        for (counter, value) in [steps, 0, self.ppt_ms, 0, 0, 0].into_iter().enumerate() {
            put.u32(40 + 4 * counter, value);
        }
        put.u32(64, 0);
        put.each_u16(264, [1; 7]);
        put.u16(338, 1);
        for xcd in 0..8 {
            put.u32(344 + 4 * xcd, self.gfx_percent);
            put.u64(344 + 104 + 8 * xcd, self.gfx_acc);
            put.u64(344 + 168 + 8 * xcd, steps / 50);
        }
        put.each_u16(344 + 32, [0; 32]);
        put.each_u16(344 + 96, [0; 4]);
        put.u32(2200, 0);
    }
}

/// Little-endian numbers at offsets. A 32-bit counter wraps, as the driver's does.
struct Writer<'a> {
    blob: &'a mut [u8],
}

impl Writer<'_> {
    fn bytes<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) {
        if let Some(place) = self.blob.get_mut(offset..offset + N) {
            place.copy_from_slice(&bytes);
        }
    }

    fn u8(&mut self, offset: usize, value: u8) {
        self.bytes(offset, [value]);
    }

    fn u16(&mut self, offset: usize, value: u64) {
        self.bytes(offset, u16::try_from(value).unwrap_or(u16::MAX).to_le_bytes());
    }

    fn each_u16<const N: usize>(&mut self, offset: usize, values: [u64; N]) {
        for (element, value) in values.into_iter().enumerate() {
            self.u16(offset + 2 * element, value);
        }
    }

    fn u32(&mut self, offset: usize, value: u64) {
        let [a, b, c, d, ..] = value.to_le_bytes();
        self.bytes(offset, [a, b, c, d]);
    }

    fn u64(&mut self, offset: usize, value: u64) {
        self.bytes(offset, value.to_le_bytes());
    }
}

/// Some number that differs between GPUs and from millisecond to millisecond.
fn ripple(gpu: u16, at_ms: u64) -> u64 {
    let mixed = (at_ms ^ u64::from(gpu) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40
}
