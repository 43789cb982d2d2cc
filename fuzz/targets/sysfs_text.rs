//! Any text as each of the text files of amdgpu.
#![no_main]

use gpuvitals_sources::dialect::amd_sysfs as sysfs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let levels = sysfs::parse_pp_dpm(text);
    assert!(levels.len() <= text.lines().count());
    if let Some(mhz) = sysfs::parse_pp_dpm_current(text) {
        assert!(levels.iter().any(|level| level.is_current && level.mhz == mhz));
    }
    if let Some(mhz) = sysfs::parse_pp_dpm_max(text) {
        assert!(levels.iter().all(|level| level.mhz <= mhz));
    }
    if let Some(link) = sysfs::parse_pp_dpm_pcie(text) {
        assert!(link.gtps > 0.0 && link.gtps.is_finite());
    }
    if let Some(generation) = sysfs::parse_link_speed(text).and_then(sysfs::pcie_generation) {
        assert!((1..=7).contains(&generation));
    }
    let uevent = sysfs::parse_uevent(text);
    assert!(uevent.slot.is_none_or(sysfs::is_pci_address));
    assert!(uevent.driver.is_none_or(|driver| !driver.is_empty()));
    let pages = sysfs::parse_bad_pages(text);
    let lines = text.lines().count();
    assert!([pages.retired, pages.pending, pages.unreservable].iter().sum::<u32>() as usize <= lines);
    sysfs::parse_err_count(text);
    sysfs::parse_number(text);
    sysfs::parse_hex(text);
    sysfs::parse_performance_level(text);
    sysfs::parse_marketing_name(text, 0x74a1, 0);
    assert!(sysfs::properties(text).count() <= lines);
});
