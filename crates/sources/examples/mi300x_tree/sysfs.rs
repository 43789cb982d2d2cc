//! The files and links of the tree.

use std::error::Error;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::package::{MetricsTable, POWER_CAP_W, Package};

/// Buses of the eight GPUs of a usual board.
const BUSES: [u8; 8] = [0x05, 0x26, 0x46, 0x65, 0x85, 0xa6, 0xc6, 0xe5];
const VRAM_LEN: u64 = 206_141_652_992;
const VRAM_USED: u64 = 154_618_822_656;

/// Files of the device that say the same on every GPU.
const DEVICE: &[(&str, &str)] = &[
    ("vendor", "0x1002"),
    ("device", "0x74a1"),
    ("class", "0x120000"),
    ("subsystem_vendor", "0x1002"),
    ("subsystem_device", "0x74a1"),
    ("revision", "0x00"),
    ("product_name", "AMD Instinct MI300X OAM"),
    ("product_number", "made-up"),
    ("vbios_version", "113-MI3SRIOV-001"),
    ("numa_node", "0"),
    ("power_dpm_state", "performance"),
    ("power_dpm_force_performance_level", "auto"),
    ("pp_dpm_mclk", "0: 900Mhz\n1: 1100Mhz\n2: 1300Mhz *"),
    ("pp_dpm_fclk", "0: 1300Mhz\n1: 1550Mhz\n2: 1800Mhz *"),
    ("pp_dpm_socclk", "0: 889Mhz\n1: 1000Mhz\n2: 1143Mhz *"),
    ("current_link_speed", "32.0 GT/s PCIe"),
    ("current_link_width", "16"),
    ("max_link_speed", "32.0 GT/s PCIe"),
    ("max_link_width", "16"),
    ("pcie_replay_count", "0"),
    ("mem_info_vram_vendor", "samsung"),
    ("mem_info_gtt_total", "541165879296"),
    ("mem_info_gtt_used", "25165824"),
    ("mem_info_preempt_used", "0"),
    ("current_compute_partition", "SPX"),
    ("available_compute_partition", "SPX, DPX, QPX, CPX"),
    ("current_memory_partition", "NPS1"),
    ("power/runtime_status", "active"),
    ("power/control", "on"),
    ("power_state", "D0"),
    ("ras/features", "feature mask: 0x1ffff"),
    ("ras/umc_err_count", "ue: 0\nce: 2"),
    ("ras/gfx_err_count", "ue: 0\nce: 0"),
    ("ras/sdma_err_count", "ue: 0\nce: 0"),
    ("ras/mmhub_err_count", "ue: 0\nce: 0"),
    ("ras/xgmi_wafl_err_count", "ue: 0\nce: 0"),
    ("ras/gpu_vram_bad_pages", ""),
    ("fw_version/smc_fw_version", "0x00555b00"),
    ("fw_version/vcn_fw_version", "0x0611300c"),
];

/// Files of the sensors that say the same on every GPU.
const HWMON: &[(&str, &str)] = &[
    ("name", "amdgpu"),
    ("temp2_label", "junction"),
    ("temp2_crit", "100000"),
    ("temp2_crit_hyst", "-273150"),
    ("temp2_emergency", "105000"),
    ("temp3_label", "mem"),
    ("temp3_crit", "105000"),
    ("temp3_crit_hyst", "-273150"),
    ("temp3_emergency", "110000"),
    ("power1_label", "PPT"),
    ("power1_cap_min", "0"),
    ("freq1_label", "sclk"),
    ("freq2_label", "mclk"),
    // Not of an MI300X; rocm-smi 5.2.3 does not start without.
    ("in0_label", "vddgfx"),
    ("in0_input", "800"),
];

/// Address of a GPU.
pub(crate) fn pci_address(gpu: u16) -> String {
    let bus = BUSES.iter().cycle().nth(gpu.into()).copied().unwrap_or_default();
    format!("{:04x}:{bus:02x}:00.0", gpu / 8)
}

/// The directory used as `/sys`.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// A new, empty one.
    pub(crate) fn new(root: &Path) -> Result<Self, Box<dyn Error>> {
        std::fs::create_dir(root).map_err(|error| format!("{}: {error}", root.display()))?;
        Ok(Self { root: root.to_owned() })
    }

    /// The binary table of a GPU.
    pub(crate) fn gpu_metrics(&self, gpu: u16) -> PathBuf {
        self.root.join(device(gpu)).join("gpu_metrics")
    }

    /// The parts that exist once: the driver and the processor.
    pub(crate) fn machine(&self) -> Result<(), Box<dyn Error>> {
        self.text("module/amdgpu/initstate", "live")?;
        self.text("module/amdgpu/version", "6.10.5")?;
        self.text("class/drm/version", "drm 1.1.0 20060810")?;
        for empty in ["class/hwmon", "class/kfd/kfd/proc", "bus/event_source/devices", "kernel/debug/dri"] {
            std::fs::create_dir_all(self.root.join(empty))?;
        }
        self.node(0, "cpu_cores_count 96\nsimd_count 0\nvendor_id 0\ndevice_id 0\nlocation_id 0", "", 0)
    }

    /// One GPU with its links and its node.
    pub(crate) fn gpu(&self, package: &Package, table: Option<&MetricsTable>) -> Result<(), Box<dyn Error>> {
        let gpu = package.gpu;
        let (slot, device) = (pci_address(gpu), device(gpu));
        for (name, text) in DEVICE {
            self.text(&format!("{device}/{name}"), text)?;
        }
        self.identity(gpu, &slot, &device)?;
        self.readings(package, &device)?;
        if let Some(table) = table {
            let mut blob = Vec::new();
            package.encode(table, &mut blob);
            std::fs::write(self.gpu_metrics(gpu), blob)?;
        }
        self.hwmon(package, &slot, &device)?;
        for name in [format!("card{gpu}"), format!("renderD{}", 128 + gpu)] {
            self.link(&format!("{device}/drm/{name}/device"), &format!("../../../{slot}"))?;
            self.link(&format!("class/drm/{name}"), &format!("../../{device}/drm/{name}"))?;
        }
        std::fs::create_dir_all(self.root.join(format!("kernel/debug/dri/{gpu}")))?;
        self.link(&format!("{device}/driver"), "../../../bus/pci/drivers/amdgpu")?;
        self.link(&format!("bus/pci/drivers/amdgpu/{slot}"), &format!("../../../../{device}"))?;
        self.link(&format!("bus/pci/devices/{slot}"), &format!("../../../{device}"))?;
        self.kfd_node(gpu)
    }

    fn identity(&self, gpu: u16, slot: &str, device: &str) -> Result<(), Box<dyn Error>> {
        self.text(&format!("{device}/unique_id"), &format!("{:016x}", unique_id(gpu)))?;
        self.text(&format!("{device}/serial_number"), &format!("6923470{gpu:05}"))?;
        self.text(
            &format!("{device}/uevent"),
            &format!(
                "DRIVER=amdgpu\nPCI_CLASS=120000\nPCI_ID=1002:74A1\nPCI_SUBSYS_ID=1002:74A1\nPCI_SLOT_NAME={slot}\n\
                 MODALIAS=pci:v00001002d000074A1sv00001002sd000074A1bc12sc00i00"
            ),
        )
    }

    fn readings(&self, package: &Package, device: &str) -> Result<(), Box<dyn Error>> {
        let sclk = format!("0: 500Mhz\n1: {}Mhz *\n2: 2100Mhz", package.gfxclk_mhz);
        for (name, text) in [
            ("gpu_busy_percent", package.gfx_percent.to_string()),
            ("mem_busy_percent", package.memory_percent.to_string()),
            ("pp_dpm_sclk", sclk),
            ("mem_info_vram_total", VRAM_LEN.to_string()),
            ("mem_info_vram_used", VRAM_USED.to_string()),
            ("mem_info_vis_vram_total", VRAM_LEN.to_string()),
            ("mem_info_vis_vram_used", VRAM_USED.to_string()),
            (
                "thermal_throttling_logging",
                format!(
                    "{}: thermal throttling logging enabled, with interval 60 seconds",
                    pci_address(package.gpu)
                ),
            ),
        ] {
            self.text(&format!("{device}/{name}"), &text)?;
        }
        Ok(())
    }

    fn hwmon(&self, package: &Package, slot: &str, device: &str) -> Result<(), Box<dyn Error>> {
        let name = format!("hwmon{}", package.gpu);
        let folder = format!("{device}/hwmon/{name}");
        for (name, text) in HWMON {
            self.text(&format!("{folder}/{name}"), text)?;
        }
        let cap_uw = POWER_CAP_W * 1_000_000;
        for (name, value) in [
            ("temp2_input", package.junction_mc),
            ("temp3_input", package.memory_mc),
            ("power1_input", package.power_w * 1_000_000),
            ("power1_cap", cap_uw),
            ("power1_cap_max", cap_uw),
            ("power1_cap_default", cap_uw),
            ("freq1_input", package.gfxclk_mhz * 1_000_000),
            ("freq2_input", package.uclk_mhz * 1_000_000),
        ] {
            self.text(&format!("{folder}/{name}"), &value.to_string())?;
        }
        self.link(&format!("{folder}/device"), &format!("../../../{slot}"))?;
        self.link(&format!("class/hwmon/{name}"), &format!("../../{folder}"))
    }

    fn kfd_node(&self, gpu: u16) -> Result<(), Box<dyn Error>> {
        let bus = BUSES.iter().cycle().nth(gpu.into()).copied().unwrap_or_default();
        let properties = format!(
            "cpu_cores_count 0\nsimd_count 1216\nsimd_per_cu 4\nsimd_arrays_per_engine 1\ncu_per_simd_array 10\n\
             array_count 32\nnum_xcc 8\ngfx_target_version 90402\nvendor_id 4098\ndevice_id 29857\nlocation_id {}\n\
             domain {}\ndrm_render_minor {}\nhive_id 15188982192727901047\nunique_id {}\n\
             max_engine_clk_fcompute 2100\nlocal_mem_size 0\nfw_version 177",
            u32::from(bus) << 8,
            gpu / 8,
            128 + gpu,
            unique_id(gpu),
        );
        let node = gpu + 1;
        self.node(node, &properties, "ip discovery", 41_000 + u32::from(gpu))?;
        self.text(
            &format!("class/kfd/kfd/topology/nodes/{node}/mem_banks/0/properties"),
            &format!("heap_type 1\nsize_in_bytes {VRAM_LEN}\nflags 0\nwidth 8192\nmem_clk_max 1300"),
        )
    }

    fn node(&self, node: u16, properties: &str, name: &str, gpu_id: u32) -> Result<(), Box<dyn Error>> {
        let folder = format!("class/kfd/kfd/topology/nodes/{node}");
        let shape = "mem_banks_count 1\ncaches_count 0\nio_links_count 1\nmax_slots_scratch_cu 32\nwave_front_size 64";
        self.text(&format!("{folder}/properties"), &format!("{properties}\n{shape}"))?;
        self.text(&format!("{folder}/name"), name)?;
        self.text(&format!("{folder}/gpu_id"), &gpu_id.to_string())?;
        self.text(
            &format!("{folder}/io_links/0/properties"),
            &format!(
                "type 2\nversion_major 0\nversion_minor 0\nnode_from {node}\nnode_to {}\nweight 20\nmin_latency 0\n\
                 max_latency 0\nmin_bandwidth 0\nmax_bandwidth 64000\nrecommended_transfer_size 0\nflags 1",
                u16::from(node == 0)
            ),
        )
    }

    fn text(&self, path: &str, text: &str) -> Result<(), Box<dyn Error>> {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
        let end = if text.is_empty() { "" } else { "\n" };
        std::fs::write(&path, format!("{text}{end}"))
            .map_err(|error| format!("{}: {error}", path.display()).into())
    }

    fn link(&self, path: &str, target: &str) -> Result<(), Box<dyn Error>> {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
        symlink(target, &path).map_err(|error| format!("{}: {error}", path.display()).into())
    }
}

/// The folder of a GPU's PCI function.
fn device(gpu: u16) -> String {
    let address = pci_address(gpu);
    let domain = address.split(':').next().unwrap_or_default();
    format!("devices/pci{domain}:00/{address}")
}

fn unique_id(gpu: u16) -> u64 {
    0x8d14_57e2_c20f_5900 + u64::from(gpu)
}
