//! Parsers of amdgpu's text files. Pure functions on text of unknown origin: none panics, none keeps
//! anything.

/// A whole number in decimal, as most files hold one. Blanks, line ends and NULs around it do not matter.
pub fn parse_number(text: &str) -> Option<i64> {
    text.trim_matches(|c: char| c.is_whitespace() || c == '\0').parse().ok()
}

/// A number in hexadecimal with `0x` before it, as PCI ids are spelt.
pub fn parse_hex(text: &str) -> Option<u32> {
    let digits = text.trim_matches(|c: char| c.is_whitespace() || c == '\0').strip_prefix("0x")?;
    u32::from_str_radix(digits, 16).ok()
}

/// The `uevent` of a PCI device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Uevent<'a> {
    /// Kernel driver it is bound to: `amdgpu`, `radeon`, `vfio-pci`.
    pub driver: Option<&'a str>,
    /// PCI vendor and device id.
    pub pci_id: Option<(u32, u32)>,
    /// PCI address, `0000:0c:00.0`.
    pub slot: Option<&'a str>,
}

/// `uevent` of a device: lines `KEY=value`; `PCI_ID=1002:744C`, `PCI_SLOT_NAME=0000:0c:00.0`.
pub fn parse_uevent(text: &str) -> Uevent<'_> {
    let mut uevent = Uevent::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        let value = value.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        match key.trim() {
            "DRIVER" if !value.is_empty() => uevent.driver = Some(value),
            "PCI_SLOT_NAME" if is_pci_address(value) => uevent.slot = Some(value),
            "PCI_ID" => {
                let ids = value.split_once(':').and_then(|(vendor, device)| {
                    Some((u32::from_str_radix(vendor, 16).ok()?, u32::from_str_radix(device, 16).ok()?))
                });
                uevent.pci_id = ids.or(uevent.pci_id);
            }
            _ => {}
        }
    }
    uevent
}

/// Whether a text is spelt as the kernel spells PCI addresses: `0000:0c:00.0`, with four or more digits of domain.
pub fn is_pci_address(text: &str) -> bool {
    let is_hex = |part: &str, lens: std::ops::RangeInclusive<usize>| {
        lens.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let mut parts = text.split([':', '.']);
    let [Some(domain), Some(bus), Some(device), Some(function), None] =
        [parts.next(), parts.next(), parts.next(), parts.next(), parts.next()]
    else {
        return false;
    };
    is_hex(domain, 4..=8) && is_hex(bus, 2..=2) && is_hex(device, 2..=2) && is_hex(function, 1..=1)
}

/// The number of a level in a `pp_dpm_*` table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DpmIndex {
    /// A level that can be asked for.
    Level(u32),
    /// `S`: deep sleep, below the lowest level.
    Sleep,
}

/// A line of a `pp_dpm_*` clock table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DpmLevel {
    /// Which level. From RDNA2 on a table may hold lowest, present and highest clock under 0, 1 and 2, in no order.
    pub index: DpmIndex,
    /// The level's clock in MHz.
    pub mhz: u32,
    /// Whether it has the star of the present level; several lines may have it, or none.
    pub is_current: bool,
}

/// `pp_dpm_sclk`, `pp_dpm_mclk` and similar, line by line: `1: 500Mhz *`, `S: 19Mhz *`. Other lines are left
/// out.
pub fn dpm_levels(text: &str) -> impl Iterator<Item = DpmLevel> {
    text.lines().filter_map(|line| {
        let (index, rest) = line.split_once(':')?;
        let index = match index.trim() {
            "S" | "s" => DpmIndex::Sleep,
            number => DpmIndex::Level(number.parse().ok()?),
        };
        let rest = rest.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        let is_current = rest.ends_with('*');
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, unit) = rest.split_at_checked(digits)?;
        let unit = unit.trim_end_matches('*').trim();
        let mhz = unit.eq_ignore_ascii_case("mhz").then(|| number.parse().ok()).flatten()?;
        Some(DpmLevel { index, mhz, is_current })
    })
}

/// `pp_dpm_sclk`, `pp_dpm_mclk` and their like: the whole table.
pub fn parse_pp_dpm(text: &str) -> Vec<DpmLevel> {
    dpm_levels(text).collect()
}

/// Present clock of a `pp_dpm_*` table, MHz: the last line with a star; none if no line has one.
pub fn parse_pp_dpm_current(text: &str) -> Option<u32> {
    dpm_levels(text).filter(|level| level.is_current).last().map(|level| level.mhz)
}

/// Present level of a `pp_dpm_*` table: that of the line with the star; none if no line or more than one has it.
pub fn parse_pp_dpm_level(text: &str) -> Option<DpmIndex> {
    let mut starred = dpm_levels(text).filter(|level| level.is_current);
    let level = starred.next()?;
    starred.next().is_none().then_some(level.index)
}

/// Highest clock of a `pp_dpm_*` table, MHz; none if the table is empty or has only zeros.
pub fn parse_pp_dpm_max(text: &str) -> Option<u32> {
    dpm_levels(text).map(|level| level.mhz).max().filter(|&mhz| mhz > 0)
}

/// A PCIe link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PcieLink {
    /// Gigatransfers per second on a lane.
    pub gtps: f32,
    /// Number of lanes.
    pub width: u8,
}

/// Present link of `pp_dpm_pcie`, lines as `1: 16.0GT/s, x16 619Mhz *`: of several stars the last.
pub fn parse_pp_dpm_pcie(text: &str) -> Option<PcieLink> {
    let starred = text.lines().filter(|line| line.trim_end_matches(['\0', ' ', '\t']).ends_with('*'));
    starred.filter_map(pcie_level).next_back()
}

fn pcie_level(line: &str) -> Option<PcieLink> {
    let (_, level) = line.split_once(':')?;
    let (speed, rest) = level.split_once(',')?;
    let lanes = rest.trim().strip_prefix('x')?;
    let digits = lanes.find(|c: char| !c.is_ascii_digit()).unwrap_or(lanes.len());
    Some(PcieLink { gtps: parse_link_speed(speed)?, width: lanes.get(..digits)?.parse().ok()? })
}

/// `current_link_speed`, `max_link_speed`: `16.0 GT/s PCIe`; none for `Unknown`.
pub fn parse_link_speed(text: &str) -> Option<f32> {
    let (number, _) = text.split_once("GT/s")?;
    let gtps: f32 = number.trim().parse().ok()?;
    (gtps.is_finite() && gtps > 0.0).then_some(gtps)
}

/// Generation of PCIe with this many gigatransfers per second.
pub fn pcie_generation(gtps: f32) -> Option<u8> {
    let speeds = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0];
    let at = speeds.iter().position(|speed| (speed - gtps).abs() < 0.05)?;
    u8::try_from(at + 1).ok()
}

/// Errors of one RAS block since the driver was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrCount {
    /// `ue`: beyond correction.
    pub uncorrected: Option<u64>,
    /// `ce`: corrected by the hardware.
    pub corrected: Option<u64>,
    /// `de`: deferred; newer drivers only.
    pub deferred: Option<u64>,
}

/// `ras/<block>_err_count`: lines `ue: 0`, `ce: 0`, on newer drivers `de: 0`.
pub fn parse_err_count(text: &str) -> ErrCount {
    let mut count = ErrCount::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim_matches(|c: char| c.is_whitespace() || c == '\0').parse().ok();
        match key.trim() {
            "ue" => count.uncorrected = value,
            "ce" => count.corrected = value,
            "de" => count.deferred = value,
            _ => {}
        }
    }
    count
}

/// Bad memory pages by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BadPages {
    /// `R`: out of use.
    pub retired: u32,
    /// `P`: out of use at the next chance.
    pub pending: u32,
    /// `F`: could not be taken out of use.
    pub unreservable: u32,
}

/// `ras/gpu_vram_bad_pages`: lines `0x00000001 : 0x00001000 : R`.
pub fn parse_bad_pages(text: &str) -> BadPages {
    let mut pages = BadPages::default();
    for line in text.lines() {
        let Some((_, state)) = line.rsplit_once(':') else { continue };
        match state.trim_matches(|c: char| c.is_whitespace() || c == '\0') {
            "R" => pages.retired += 1,
            "P" => pages.pending += 1,
            "F" => pages.unreservable += 1,
            _ => {}
        }
    }
    pages
}

/// `power_dpm_force_performance_level` as the code of the catalogue's `performance_level`.
pub fn parse_performance_level(text: &str) -> Option<u8> {
    let level = match text.trim_matches(|c: char| c.is_whitespace() || c == '\0') {
        "auto" => 0,
        "low" => 1,
        "high" => 2,
        "manual" => 3,
        "profile_standard" => 4,
        "profile_min_sclk" => 5,
        "profile_min_mclk" => 6,
        "profile_peak" => 7,
        "perf_determinism" => 8,
        _ => return None,
    };
    Some(level)
}

/// Present value of a setting in `gpu_od/`: the line between `OD_ACOUSTIC_TARGET:` and `OD_RANGE:`.
pub fn parse_overdrive(text: &str) -> Option<i64> {
    let mut lines = text.lines().map(str::trim);
    lines.next().filter(|title| title.ends_with(':') && *title != "OD_RANGE:")?;
    parse_number(lines.next()?)
}

/// A line `key value` of a KFD `properties` file.
pub fn properties(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let (key, value) = line.trim().split_once(' ')?;
        Some((key, value.trim().parse().ok()?))
    })
}

/// Marketing name of a device and revision in libdrm's `amdgpu.ids`: lines `73BF,<tab>C0,<tab>AMD Radeon RX 6900 XT`.
pub fn parse_marketing_name(ids: &str, device: u32, revision: u32) -> Option<&str> {
    ids.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut cells = line.splitn(3, ',').map(str::trim);
        let [Some(a), Some(b), Some(name)] = [cells.next(), cells.next(), cells.next()] else { return None };
        let is_it = u32::from_str_radix(a, 16) == Ok(device) && u32::from_str_radix(b, 16) == Ok(revision);
        (is_it && !name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn clock_tables_of_every_generation_are_understood() {
        let check = |text: &str, levels: usize, current: Option<u32>, max: Option<u32>| {
            assert_eq!(parse_pp_dpm(text).len(), levels, "{text:?}");
            assert_eq!(parse_pp_dpm_current(text), current, "{text:?}");
            assert_eq!(parse_pp_dpm_max(text), max, "{text:?}");
        };
        check("0: 300Mhz \n1: 600Mhz \n2: 900Mhz *\n3: 1145Mhz \n", 4, Some(900), Some(1145));
        // RX 9070 XT: deep sleep; no blank before the line end.
        check("S: 19Mhz *\n0: 615Mhz\n1: 800Mhz\n", 3, Some(19), Some(800));
        // MI300X: lowest, present, highest.
        check("0: 500Mhz\n1: 142Mhz *\n2: 2100Mhz\n", 3, Some(142), Some(2100));
        // RX 6600 XT: two stars, no clock.
        check("0: 0Mhz *\n1: 0Mhz *\n", 2, Some(0), None);
        // Strix Point: no star.
        check("0: 400Mhz \n1: 800Mhz \n", 2, None, Some(800));
        check("\n", 0, None, None);
        check("0: 500MHz *\0\0\0", 1, Some(500), Some(500));
        check("no table at all: 5\n: Mhz *\n-1: 5Mhz *\n0: 99999999999Mhz *", 0, None, None);
        assert_eq!(parse_pp_dpm("S: 19Mhz *")[0].index, DpmIndex::Sleep);
    }

    #[test]
    fn the_one_star_is_the_level_in_force() {
        for (text, level) in [
            ("0: 300Mhz \n1: 600Mhz *\n", Some(DpmIndex::Level(1))),
            ("S: 19Mhz *\n0: 615Mhz\n", Some(DpmIndex::Sleep)),
            // Van Gogh.
            ("2: 687Mhz *\n3: 687Mhz *\n", None),
            ("0: 400Mhz \n", None),
        ] {
            assert_eq!(parse_pp_dpm_level(text), level, "{text:?}");
        }
    }

    #[test]
    fn a_setting_of_overdrive_is_the_line_below_its_title() {
        let text = "OD_ACOUSTIC_TARGET:\n1200\nOD_RANGE:\nACOUSTIC_TARGET: 500 3300\n";
        assert_eq!(parse_overdrive(text), Some(1200));
        for text in
            ["", "\n", "1200\n", "OD_RANGE:\nACOUSTIC_TARGET: 500 3300\n", "FAN_TARGET_TEMPERATURE:\n"]
        {
            assert_eq!(parse_overdrive(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_last_star_is_the_pcie_link() {
        let link = |gtps, width| Some(PcieLink { gtps, width });
        assert_eq!(parse_pp_dpm_pcie("0: 2.5GT/s, x1 81Mhz \n1: 16.0GT/s, x8 306Mhz *\n"), link(16.0, 8));
        assert_eq!(parse_pp_dpm_pcie("0: 8.0GT/s, x16 *\n1: 8.0GT/s, x4 *\n"), link(8.0, 4));
        assert_eq!(parse_pp_dpm_pcie("0: 8.0GT/s, x16 \n"), None);
        assert_eq!(parse_pp_dpm_pcie(""), None);
        assert_eq!(parse_link_speed("2.5 GT/s PCIe").and_then(pcie_generation), Some(1));
        assert_eq!(parse_link_speed("32.0 GT/s PCIe").and_then(pcie_generation), Some(5));
        assert_eq!(parse_link_speed("Unknown"), None);
        assert_eq!(parse_link_speed("NaN GT/s"), None);
        assert_eq!(pcie_generation(7.0), None);
    }

    #[test]
    fn a_device_is_known_by_its_uevent() {
        let text = "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:744C\nPCI_SLOT_NAME=0000:0c:00.0\n";
        let uevent = parse_uevent(text);
        assert_eq!(uevent.driver, Some("amdgpu"));
        assert_eq!(uevent.pci_id, Some((0x1002, 0x744c)));
        assert_eq!(uevent.slot, Some("0000:0c:00.0"));
        assert_eq!(parse_uevent("DRIVER=\nPCI_ID=x:y\nPCI_SLOT_NAME=../../etc\n=\n"), Uevent::default());
    }

    #[test]
    fn errors_and_bad_pages_are_counted() {
        let both = parse_err_count("ue: 3\nce: 17\n");
        assert_eq!((both.uncorrected, both.corrected, both.deferred), (Some(3), Some(17), None));
        assert_eq!(parse_err_count("ue: 0\nce: 0\nde: 5").deferred, Some(5));
        assert_eq!(parse_err_count("ue: -1\nhello"), ErrCount::default());
        let text =
            "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P\n0x3 : 0x1000 : F\n0x4 : 0x1000 : R\n";
        assert_eq!(parse_bad_pages(text), BadPages { retired: 2, pending: 1, unreservable: 1 });
    }

    #[test]
    fn a_name_is_found_by_device_and_revision() {
        let ids = "# comment\n1.0.0\n73BF,\tC0,\tAMD Radeon RX 6900 XT\n73BF,\tC1,\tAMD Radeon RX 6800 XT\n";
        assert_eq!(parse_marketing_name(ids, 0x73bf, 0xc1), Some("AMD Radeon RX 6800 XT"));
        assert_eq!(parse_marketing_name(ids, 0x73bf, 0xc2), None);
    }

    proptest! {
        #[test]
        fn a_printed_clock_table_is_read_back(
            mhz in prop::collection::vec(0_u32..10_000, 1..12),
            star in 0_usize..12,
            sleeps in any::<bool>(),
            blank in any::<bool>(),
        ) {
            let mut text = String::new();
            for (at, mhz) in mhz.iter().enumerate() {
                let index = if sleeps && at == 0 { "S".to_owned() } else { at.to_string() };
                let star = if at == star { " *" } else if blank { " " } else { "" };
                writeln!(text, "{index}: {mhz}Mhz{star}").unwrap();
            }
            let levels = parse_pp_dpm(&text);
            prop_assert_eq!(levels.iter().map(|level| level.mhz).collect::<Vec<_>>(), mhz.clone());
            prop_assert_eq!(parse_pp_dpm_current(&text), mhz.get(star).copied());
            prop_assert_eq!(levels[0].index == DpmIndex::Sleep, sleeps);
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC*|[0-9a-fxSGTMhz:.,*/ \\n\\x00=-]*") {
            let _ = parse_pp_dpm(&text);
            let _ = parse_pp_dpm_current(&text);
            let _ = parse_pp_dpm_level(&text);
            let _ = parse_overdrive(&text);
            let _ = parse_pp_dpm_pcie(&text);
            let _ = parse_uevent(&text);
            let _ = parse_err_count(&text);
            let _ = parse_bad_pages(&text);
            let _ = parse_link_speed(&text).and_then(pcie_generation);
            let _ = parse_number(&text);
            let _ = parse_hex(&text);
            let _ = parse_performance_level(&text);
            let _ = parse_marketing_name(&text, 1, 2);
            let _ = properties(&text).count();
        }
    }
}
