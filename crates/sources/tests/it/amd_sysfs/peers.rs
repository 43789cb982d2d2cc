//! Other readers on the same trees: LACT's snapshots and the output of rocm-smi 5.2.3. Differences are listed
//! with the reason in `differences.rs`, and in docs/amd.md with the same words.

use std::fs;
use std::path::Path;

use gpuvitals_core::IdentityColumn;
use gpuvitals_sources::probe::Row;
use serde_json::Value;

use super::differences::DIFFERENCES;
use super::machines::{CAPTURED, first_reading, fixture, value};

/// A peer's value: its name there, our column, the peer's number in our unit, the allowed difference.
type PeerReading = (&'static str, &'static str, Option<f64>, f64);

const MIB: f64 = 1_048_576.0;
/// A reading of gpu_metrics has hundredths of a degree, one of hwmon whole degrees.
const DEGREE: f64 = 0.999;
const EDGE: &str = "Temperature (Sensor edge) (C)";
const JUNCTION: &str = "Temperature (Sensor junction) (C)";
const MEMORY: &str = "Temperature (Sensor memory) (C)";
const POWER: &str = "Average Graphics Package Power (W)";
const TOTAL: &str = "VRAM Total Memory (B)";
const USED: &str = "VRAM Total Used Memory (B)";

fn lact(json: &Value) -> Vec<PeerReading> {
    let stat = |path: &str| json.pointer(&format!("/stats/{path}")).and_then(Value::as_f64);
    let level = |of: &str| stat(&format!("active_power_states/{of}/Index"));
    let link = |path: &str| {
        let text = json.pointer(&format!("/link_info/{path}"))?.as_str()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    vec![
        ("temps/edge/current", "temperature_c", stat("temps/edge/current"), DEGREE),
        ("temps/1/current", "temperature_c", stat("temps/1/current"), DEGREE),
        ("temps/edge/crit", "temperature_slowdown_c", stat("temps/edge/crit"), 0.0),
        ("temps/junction/crit", "temperature_junction_slowdown_c", stat("temps/junction/crit"), 0.0),
        ("temps/junction/current", "temperature_junction_c", stat("temps/junction/current"), 0.0),
        ("temps/mem/current", "temperature_memory_c", stat("temps/mem/current"), 0.0),
        ("temps/mem/crit", "temperature_memory_slowdown_c", stat("temps/mem/crit"), 0.0),
        ("temps/vrgfx/current", "temperature_vr_gfx_c", stat("temps/vrgfx/current"), 0.0),
        ("temps/vrsoc/current", "temperature_vr_soc_c", stat("temps/vrsoc/current"), 0.0),
        ("temps/vrmem/current", "temperature_vr_mem_c", stat("temps/vrmem/current"), 0.0),
        ("temps/soc/current", "temperature_soc_c", stat("temps/soc/current"), DEGREE),
        ("power/average", "power_average_w", stat("power/average"), 1e-5),
        ("power/current", "power_w", stat("power/current"), 1e-5),
        ("power/cap_current", "power_limit_w", stat("power/cap_current"), 0.0),
        ("power/cap_default", "power_limit_default_w", stat("power/cap_default"), 0.0),
        ("power/cap_max", "power_limit_max_w", stat("power/cap_max"), 0.0),
        ("power/cap_min", "power_limit_min_w", stat("power/cap_min"), 0.0),
        ("power/sensors/apu", "apu_power_w", stat("power/sensors/apu"), 1e-5),
        ("power/sensors/cpu", "apu_cpu_power_w", stat("power/sensors/cpu"), 1e-5),
        ("power/sensors/core", "apu_cores_power_w", stat("power/sensors/core"), 1e-5),
        ("power/sensors/gfx", "apu_graphics_power_w", stat("power/sensors/gfx"), 1e-5),
        ("power/sensors/soc", "apu_soc_power_w", stat("power/sensors/soc"), 1e-5),
        ("active_power_states/core", "gpu_clock_level", level("core"), 0.0),
        ("active_power_states/memory", "mem_clock_level", level("memory"), 0.0),
        ("busy_percent", "utilization_pct", stat("busy_percent"), 0.0),
        ("clockspeed/gpu_clockspeed", "gpu_clock_mhz", stat("clockspeed/gpu_clockspeed"), 0.0),
        ("clockspeed/vram_clockspeed", "mem_clock_mhz", stat("clockspeed/vram_clockspeed"), 0.0),
        ("clockspeed/sensors/SOCCLK", "soc_clock_mhz", stat("clockspeed/sensors/SOCCLK"), 0.0),
        ("clockspeed/sensors/VCLK", "video_clock_mhz", stat("clockspeed/sensors/VCLK"), 0.0),
        ("clockspeed/sensors/DCLK", "video_decode_clock_mhz", stat("clockspeed/sensors/DCLK"), 0.0),
        ("clockspeed/sensors/VCLK1", "video1_clock_mhz", stat("clockspeed/sensors/VCLK1"), 0.0),
        ("clockspeed/sensors/DCLK1", "video1_decode_clock_mhz", stat("clockspeed/sensors/DCLK1"), 0.0),
        ("fan/speed_min", "fan_speed_min_rpm", stat("fan/speed_min"), 0.0),
        ("fan/speed_max", "fan_speed_max_rpm", stat("fan/speed_max"), 0.0),
        ("acoustic_target", "fan_target_rpm", stat("fan/pmfw_info/acoustic_target/current"), 0.0),
        ("target_temp", "temperature_fan_target_c", stat("fan/pmfw_info/target_temp/current"), 0.0),
        ("fan/speed_current", "fan_speed_rpm", stat("fan/speed_current"), 0.0),
        ("fan/pwm_current", "fan_speed_pct", stat("fan/pwm_current").map(|pwm| pwm / 2.55), 1e-4),
        ("voltage/gpu", "voltage_gfx_mv", stat("voltage/gpu"), 0.0),
        ("voltage/sensors/soc", "voltage_soc_mv", stat("voltage/sensors/soc"), 0.0),
        ("voltage/sensors/northbridge", "voltage_soc_mv", stat("voltage/sensors/northbridge"), 0.0),
        ("voltage/sensors/mem", "voltage_mem_mv", stat("voltage/sensors/mem"), 0.0),
        ("vram/total", "memory_total_mb", stat("vram/total").map(|bytes| bytes / MIB), 0.5),
        ("vram/used", "memory_used_mb", stat("vram/used").map(|bytes| bytes / MIB), 0.5),
        ("link_info/current_speed", "pcie_speed_gtps", link("current_speed"), 0.0),
        ("link_info/current_width", "pcie_width", link("current_width"), 0.0),
        ("link_info/max_width", "pcie_width_max", link("max_width"), 0.0),
        ("max_sclk", "gpu_clock_max_mhz", json["max_sclk"].as_f64(), 0.0),
    ]
}

fn rocm_smi(json: &Value) -> Vec<PeerReading> {
    let card = &json["card0"];
    let number = |key: &str| {
        let text = card[key].as_str()?;
        text.trim_matches(|c: char| !c.is_ascii_digit()).parse::<f64>().ok()
    };
    // `1 (16.0GT/s x8)`
    let link = card["pcie clock level"].as_str().and_then(|text| {
        let (speed, width) = text.split_once('(')?.1.split_once("GT/s x")?;
        Some((speed.parse::<f64>().ok()?, width.trim_end_matches(')').parse::<f64>().ok()?))
    });
    vec![
        (EDGE, "temperature_c", number(EDGE), DEGREE),
        (JUNCTION, "temperature_junction_c", number(JUNCTION), 0.0),
        (MEMORY, "temperature_memory_c", number(MEMORY), 0.0),
        (POWER, "power_average_w", number(POWER), 1e-5),
        ("sclk clock speed:", "gpu_clock_mhz", number("sclk clock speed:"), 0.0),
        ("mclk clock speed:", "mem_clock_mhz", number("mclk clock speed:"), 0.0),
        ("socclk clock speed:", "soc_clock_mhz", number("socclk clock speed:"), 0.0),
        ("fclk clock speed:", "fabric_clock_mhz", number("fclk clock speed:"), 0.0),
        ("sclk clock level:", "gpu_clock_level", number("sclk clock level:"), 0.0),
        ("mclk clock level:", "mem_clock_level", number("mclk clock level:"), 0.0),
        ("pcie clock level (speed)", "pcie_speed_gtps", link.map(|link| link.0), 0.0),
        ("pcie clock level (width)", "pcie_width", link.map(|link| link.1), 0.0),
        ("GPU use (%)", "utilization_pct", number("GPU use (%)"), 0.0),
        (TOTAL, "memory_total_mb", number(TOTAL).map(|bytes| bytes / MIB), 0.5),
        (USED, "memory_used_mb", number(USED).map(|bytes| bytes / MIB), 0.5),
    ]
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "absent".to_owned(), |value| (((value * 1000.0).round()) / 1000.0).to_string())
}

/// Differences from a peer, as rows of the table in docs/amd.md without their reason.
fn differing(name: &str, peer: &str, row: &Row, said: Vec<PeerReading>) -> (Vec<String>, usize) {
    let mut compared = 0;
    let mut rows = Vec::new();
    for (what, column, theirs, apart) in said {
        let Some(theirs) = theirs else { continue };
        compared += 1;
        let ours = value(row, column);
        if ours.is_none_or(|ours| (ours - theirs).abs() > apart) {
            rows.push(format!(
                "| {name} | {peer} | `{what}` | {} | `{column}` {} |",
                shown(Some(theirs)),
                shown(ours)
            ));
        }
    }
    (rows, compared)
}

#[test]
fn other_readers_agree_but_for_what_is_listed() {
    let mut found = Vec::new();
    let mut compared = 0;
    for name in CAPTURED {
        let reading = first_reading(name);
        let row = &reading.rows()[0];
        let mut compare = |peer, path: &Path, said: fn(&Value) -> Vec<PeerReading>| {
            let Ok(text) = fs::read_to_string(path) else { return };
            let (rows, number) = differing(name, peer, row, said(&serde_json::from_str(&text).unwrap()));
            found.extend(rows);
            compared += number;
        };
        compare("LACT", &fixture(name).join("expected.json"), lact);
        compare("rocm-smi", &fixture(name).join("rocm-smi-5.2.3.json"), rocm_smi);
    }
    let listed: Vec<&str> = DIFFERENCES.iter().map(|(row, _)| *row).collect();
    assert_eq!(found, listed, "differences found, and those listed");
    assert!(compared > 400, "{compared} values compared");
}

#[test]
fn the_vbios_is_what_lact_shows() {
    let mut compared = 0;
    for name in CAPTURED {
        let Ok(text) = fs::read_to_string(fixture(name).join("expected.json")) else { continue };
        let json: Value = serde_json::from_str(&text).unwrap();
        let reading = first_reading(name);
        assert_eq!(
            reading.rows()[0].identity().get(IdentityColumn::Vbios),
            json["vbios_version"].as_str(),
            "{name}"
        );
        compared += 1;
    }
    assert!(compared > 10, "{compared} compared");
}

#[test]
fn the_documentation_lists_the_same_differences() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/amd.md");
    let docs = fs::read_to_string(docs).unwrap();
    for (row, why) in DIFFERENCES {
        assert!(docs.contains(&format!("{row} {why} |")), "docs/amd.md lacks: {row} {why} |");
    }
}
