//! Clocks that are held down.

use super::threshold::{BRAKE_SHARE, HEAT_SHARE, HELD_CLOCK, UNEXPLAINED_SHARE};
use super::{Candidate, Evidence, Member, Survey};
use crate::robust::Spread;
use gpuvitals_core::integral::rounded;

impl Survey<'_> {
    pub(super) fn throttling(&self, found: &mut Vec<Candidate>) {
        for (model, places) in &self.models {
            let members: Vec<Member<'_>> = self.members(places).collect();
            let clocks = members.iter().filter_map(|member| member.window?.steady_clock());
            let median = Spread::of_group(clocks).filter(|_| model.is_some()).map(|spread| spread.median);
            for member in &members {
                found.extend(self.heat(member, median));
                found.extend(self.brake(member, median));
                found.extend(median.and_then(|median| self.held(member, median)));
            }
        }
    }

    fn heat(&self, member: &Member<'_>, median: Option<f64>) -> Option<Candidate> {
        let window = member.window?;
        let share = window.heat_share.filter(|share| *share >= HEAT_SHARE.1)?;
        let mut evidence =
            vec![Evidence::derived("share_of_time_held_down_by_heat", "ratio", rounded(share))];
        evidence.extend(
            window.temperature_max_c.map(|celsius| Evidence::derived("temperature_c", "°C", celsius)),
        );
        let cost = member.clock_beside(median, &mut evidence);
        let sentence =
            format!("heat held the clock down for {} of the last ten minutes{cost}", percent(share));
        let finding = self.about_gpu("thermal_throttling", member.gpu, sentence, evidence);
        Some(Candidate { opens: share >= HEAT_SHARE.0, began: None, finding })
    }

    fn brake(&self, member: &Member<'_>, median: Option<f64>) -> Option<Candidate> {
        let share = member.window?.brake_share.filter(|share| *share >= BRAKE_SHARE.1)?;
        let mut evidence =
            vec![Evidence::derived("share_of_time_under_power_brake", "ratio", rounded(share))];
        let cost = member.clock_beside(median, &mut evidence);
        let sentence = format!(
            "the chassis' power brake held the clock down for {} of the last ten minutes{cost}",
            percent(share)
        );
        let finding = self.about_gpu("power_brake", member.gpu, sentence, evidence);
        Some(Candidate { opens: share >= BRAKE_SHARE.0, began: None, finding })
    }

    /// A slow clock without a reason. Where the limits are not counted, nothing is known about reasons.
    fn held(&self, member: &Member<'_>, median: f64) -> Option<Candidate> {
        let window = member.window?;
        let clock = window.steady_clock()?;
        let is_free = |share: Option<f64>| share.is_some_and(|share| share < UNEXPLAINED_SHARE);
        if clock >= HELD_CLOCK.1 * median || !is_free(window.heat_share) || !is_free(window.power_share) {
            return None;
        }
        let mut evidence = Vec::new();
        member.clock_beside(Some(median), &mut evidence);
        let sentence = format!(
            "under load it runs at {clock:.0} MHz, the median of its model is {median:.0} MHz; neither power nor heat explains it"
        );
        let finding = self.about_gpu("clock_held", member.gpu, sentence, evidence);
        Some(Candidate { opens: clock < HELD_CLOCK.0 * median, began: None, finding })
    }
}

impl Member<'_> {
    /// What it costs in clock, in words; the figures become evidence.
    fn clock_beside(&self, median: Option<f64>, evidence: &mut Vec<Evidence>) -> String {
        let Some(clock) = self.window.and_then(|window| window.steady_clock()) else { return String::new() };
        let mean = Evidence::derived("gpu_clock_mhz", "MHz", clock.round_ties_even());
        let Some(median) = median.filter(|median| *median > 0.0) else {
            evidence.push(mean);
            return String::new();
        };
        evidence.push(mean.beside(median.round_ties_even(), "median of the model under load"));
        let lost = 1.0 - clock / median;
        if lost < 0.005 { String::new() } else { format!(", {} below the clock of its peers", percent(lost)) }
    }
}

/// A share as whole per cent, at least 1.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", (100.0 * share).max(1.0))
}
