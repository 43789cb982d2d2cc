//! The driver's lists of clocks, and its overdrive table.

use gpuvitals_sources::dialect::amd_sysfs::{DpmIndex, dpm_levels};

/// `pp_dpm_sclk`, `pp_dpm_mclk`: clocks by number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ClockList {
    /// Number and clock (MHz) of each entry that can be asked for; the deep sleep entry `S` cannot.
    pub(super) entries: Vec<(u32, u32)>,
    /// Clock of the last entry with a star, MHz.
    pub(super) current_mhz: Option<u32>,
}

impl ClockList {
    pub(super) fn parse(text: &str) -> Self {
        let mut list = Self::default();
        for level in dpm_levels(text) {
            if let DpmIndex::Level(index) = level.index {
                list.entries.push((index, level.mhz));
            }
            if level.is_current {
                list.current_mhz = Some(level.mhz);
            }
        }
        list
    }

    /// Whether the entries are fixed clocks. Up to three are lowest, present and highest clock.
    pub(super) fn is_fixed(&self) -> bool {
        self.entries.len() > 3
    }

    /// First and last entry.
    pub(super) fn ends(&self) -> Vec<(u32, u32)> {
        let mut ends: Vec<_> = self.entries.first().into_iter().chain(self.entries.last()).copied().collect();
        ends.dedup();
        ends
    }

    /// Lowest and highest clock, MHz.
    pub(super) fn range_mhz(&self) -> Option<(u32, u32)> {
        let clocks = || self.ends().into_iter().map(|(_, mhz)| mhz);
        Some((clocks().min()?, clocks().max().filter(|mhz| *mhz > 0)?))
    }

    pub(super) fn clocks_mhz(&self) -> Vec<u32> {
        self.entries.iter().map(|(_, mhz)| *mhz).collect()
    }

    pub(super) fn indices(&self) -> Vec<u32> {
        self.entries.iter().map(|(index, _)| *index).collect()
    }
}

/// `pp_od_clk_voltage`, as far as it bounds the GPU clock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Overdrive {
    /// Lower and upper bound in force, MHz. None where the table has a curve of clocks and voltages (Vega10 and before),
    /// or an offset (RDNA4).
    pub(super) gpu_bounds_mhz: Option<(u32, u32)>,
    /// Within which they can be set.
    pub(super) gpu_range_mhz: Option<(u32, u32)>,
}

impl Overdrive {
    /// Sections `OD_SCLK:` (`GFXCLK:` on early drivers of MI200) with lines `0: 500Mhz`, and `OD_RANGE:` with
    /// `SCLK: 500Mhz 3000Mhz`. There may be NULs between sections.
    pub(super) fn parse(text: &str) -> Self {
        let (mut low, mut high, mut is_curve, mut range) = (None, None, false, None);
        let mut section = "";
        for line in text.split(['\n', '\0']).map(str::trim) {
            let Some((key, rest)) = line.split_once(':') else { continue };
            let words: Vec<&str> = rest.split_whitespace().collect();
            match (section, key, words.as_slice()) {
                (_, _, []) => section = key,
                ("OD_SCLK" | "GFXCLK", "0", [clock]) => low = parse_mhz(clock),
                ("OD_SCLK" | "GFXCLK", "1", [clock]) => high = parse_mhz(clock),
                ("OD_SCLK" | "GFXCLK", _, _) => is_curve = true,
                ("OD_RANGE", "SCLK", [from, to]) => range = parse_mhz(from).zip(parse_mhz(to)),
                _ => {}
            }
        }
        let gpu_bounds_mhz = low.zip(high).filter(|_| !is_curve);
        Self { gpu_bounds_mhz, gpu_range_mhz: range.filter(|_| gpu_bounds_mhz.is_some()) }
    }
}

/// `500Mhz`, in any case.
fn parse_mhz(word: &str) -> Option<u32> {
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (number, unit) = word.split_at_checked(digits)?;
    unit.eq_ignore_ascii_case("mhz").then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_told_from_curves_and_offsets() {
        let check = |text: &str, bounds, range| {
            let expected = Overdrive { gpu_bounds_mhz: bounds, gpu_range_mhz: range };
            assert_eq!(Overdrive::parse(text), expected, "{text:?}");
        };
        check(
            "OD_SCLK:\n0: 500Mhz\n1: 2660Mhz\nOD_MCLK:\n0: 97Mhz\n1: 1300MHz\n\0\0\0OD_RANGE:\nSCLK:     500Mhz       5000Mhz\n",
            Some((500, 2660)),
            Some((500, 5000)),
        );
        check("GFXCLK:\n0: 500Mhz\n1: 1700Mhz\n", Some((500, 1700)), None);
        check("OD_SCLK:\n0: 852Mhz 800mV\n1: 991Mhz 900mV\nOD_RANGE:\nSCLK: 852MHz 2400MHz\n", None, None);
        check("OD_SCLK_OFFSET:\n0Mhz\nOD_RANGE:\nSCLK_OFFSET: -500Mhz 1000Mhz\n", None, None);
        check("c", None, None);
        check("", None, None);
    }

    #[test]
    fn lists_of_three_have_only_ends() {
        let list = ClockList::parse("S: 19Mhz *\n0: 500Mhz\n1: 142Mhz *\n2: 2100Mhz\n");
        assert!(!list.is_fixed());
        assert_eq!(list.ends(), [(0, 500), (2, 2100)]);
        assert_eq!((list.range_mhz(), list.current_mhz), (Some((500, 2100)), Some(142)));
        assert_eq!(ClockList::parse("3 4 ").range_mhz(), None);
    }
}
