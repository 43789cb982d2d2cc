//! Values of other readers that differ on the captured machines, and why we do not follow.

/// A row of the table in docs/amd.md: machine, tool, its name and value, our value; and the reason.
pub(crate) const DIFFERENCES: &[(&str, &str)] = &[
    (
        "| rx5500xt | LACT | `temps/mem/current` | 0 | `temperature_memory_c` absent |",
        "0 is what the driver prints for a sensor the board does not have",
    ),
    (
        "| rx5500xt | LACT | `link_info/current_speed` | 16 | `pcie_speed_gtps` 8 |",
        "`current_link_*` is the port of the chip behind the card's own switch; `pp_dpm_pcie` is the link to the slot",
    ),
    (
        "| rx5500xt | LACT | `link_info/current_width` | 16 | `pcie_width` 8 |",
        "`current_link_*` is the port of the chip behind the card's own switch; `pp_dpm_pcie` is the link to the slot",
    ),
    (
        "| rx5500xt | rocm-smi | `Temperature (Sensor memory) (C)` | 0 | `temperature_memory_c` absent |",
        "0 is what the driver prints for a sensor the board does not have",
    ),
    (
        "| rx5500xt | rocm-smi | `sclk clock speed:` | 0 | `gpu_clock_mhz` 31 |",
        "the starred level of `pp_dpm_sclk` says 0; the clock itself is `freq1_input`",
    ),
    (
        "| rx580 | rocm-smi | `sclk clock speed:` | 900 | `gpu_clock_mhz` 798 |",
        "rocm-smi prints the level; the clock itself is `freq1_input`",
    ),
    (
        "| rx6600xt | LACT | `link_info/current_speed` | 16 | `pcie_speed_gtps` 8 |",
        "`current_link_*` is the port of the chip behind the card's own switch; `pp_dpm_pcie` is the link to the slot",
    ),
    (
        "| rx6600xt | LACT | `link_info/current_width` | 16 | `pcie_width` 8 |",
        "`current_link_*` is the port of the chip behind the card's own switch; `pp_dpm_pcie` is the link to the slot",
    ),
    (
        "| rx6600xt | rocm-smi | `sclk clock level:` | 0 | `gpu_clock_level` absent |",
        "two lines of `pp_dpm_sclk` have the star; which level is in force is not known",
    ),
    (
        "| rx6900xt | LACT | `max_sclk` | 2499 | `gpu_clock_max_mhz` 2660 |",
        "LACT shows what overdrive is set to; ours is the highest level of `pp_dpm_sclk`",
    ),
    (
        "| rx7600s | LACT | `clockspeed/sensors/VCLK1` | 25 | `video1_clock_mhz` absent |",
        "LACT shows the clock of the first engine (`current_vclk0`) under this name",
    ),
    (
        "| rx7800xt | LACT | `busy_percent` | 2 | `utilization_pct` 24 |",
        "two readings at different moments: `gpu_metrics` comes first here, because it is one snapshot",
    ),
    (
        "| rx7800xt | LACT | `max_sclk` | 2660 | `gpu_clock_max_mhz` 2254 |",
        "LACT shows what overdrive is set to; ours is the highest level of `pp_dpm_sclk`",
    ),
    (
        "| rx7800xt | rocm-smi | `sclk clock speed:` | 77 | `gpu_clock_mhz` 2011 |",
        "the starred level of `pp_dpm_sclk` is wrong; `gpu_metrics` and `freq1_input` agree on 2011",
    ),
    (
        "| rx7800xt | rocm-smi | `GPU use (%)` | 2 | `utilization_pct` 24 |",
        "two readings at different moments: `gpu_metrics` comes first here, because it is one snapshot",
    ),
    (
        "| rx7900xtx | LACT | `max_sclk` | 2735 | `gpu_clock_max_mhz` 2219 |",
        "LACT shows what overdrive is set to; ours is the highest level of `pp_dpm_sclk`",
    ),
    (
        "| rx9070xt | LACT | `link_info/current_speed` | 32 | `pcie_speed_gtps` 16 |",
        "`current_link_*` is the port of the chip behind the card's own switch; `pp_dpm_pcie` is the link to the slot",
    ),
    (
        "| strixpoint | LACT | `voltage/gpu` | 0 | `voltage_gfx_mv` absent |",
        "0 mV while the clock runs is no voltage",
    ),
    (
        "| strixpoint | LACT | `voltage/sensors/northbridge` | 0 | `voltage_soc_mv` absent |",
        "0 mV while the clock runs is no voltage",
    ),
    (
        "| vangogh | rocm-smi | `mclk clock level:` | 2 | `mem_clock_level` absent |",
        "two lines of `pp_dpm_mclk` have the star; which level is in force is not known",
    ),
    (
        "| vega56 | rocm-smi | `sclk clock speed:` | 852 | `gpu_clock_mhz` 26 |",
        "rocm-smi prints the level; the clock itself is `freq1_input` (deep sleep)",
    ),
];
