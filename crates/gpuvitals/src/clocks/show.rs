//! The clocks of GPUs, for people and as JSON.

use std::io::{self, Write};

use gpuvitals_clocks::{ClockControl, ClockState, get_current_clocks, is_held};
use gpuvitals_core::IdentityColumn;
use gpuvitals_sources::machine::Machine;
use serde_json::{Value, json};

use super::say::{failure, name, tell};
use crate::failure::Failure;
use crate::terminal::PrintForm;

/// Clocks of a list that are printed one by one; NVIDIA has a hundred.
const CHOICES_SHOWN_MAX: usize = 16;

/// Prints a line for each GPU. One that cannot be read prints its error; the command fails only if none can
/// be read. Where the driver does not tell whether the clocks are held, our own journal does if they are.
///
/// # Errors
/// If no GPU can be read, or standard output fails.
pub(super) fn show(
    controls: &mut [Box<dyn ClockControl>],
    form: PrintForm,
    machine: &Machine,
) -> Result<u8, Failure> {
    let mut states = Vec::new();
    let mut first = None;
    for control in controls {
        let identity = control.identity().clone();
        match get_current_clocks(control.as_mut()) {
            Ok(mut state) => {
                let is_ours = || identity.key().is_some_and(|key| is_held(&key, machine));
                if state.is_locked.is_none() && is_ours() {
                    state.is_locked = Some(true);
                }
                states.push((identity, Ok(state)));
            }
            Err(error) => {
                let failure = failure(&identity, error);
                let text = failure.to_string();
                if form == PrintForm::Text {
                    tell(&text);
                }
                states.push((identity, Err(text)));
                first.get_or_insert(failure);
            }
        }
    }
    if let Some(failure) = first.filter(|_| states.iter().all(|(_, state)| state.is_err())) {
        return Err(failure);
    }
    let text = if form == PrintForm::Json {
        let rows: Vec<Value> = states
            .iter()
            .map(|(identity, state)| {
                let mut row = json!({
                    "gpu": identity.key(),
                    "index": identity.index,
                    "vendor": identity.get(IdentityColumn::Vendor),
                    "model": identity.get(IdentityColumn::Model),
                    "pci": identity.get(IdentityColumn::Pci),
                });
                let told = match state {
                    Ok(state) => serde_json::to_value(state).unwrap_or_default(),
                    Err(text) => json!({ "error": text }),
                };
                if let (Some(row), Value::Object(told)) = (row.as_object_mut(), told) {
                    row.extend(told);
                }
                row
            })
            .collect();
        format!("{:#}\n", Value::Array(rows))
    } else {
        let line =
            |(identity, state): &(std::sync::Arc<gpuvitals_core::Identity>, Result<ClockState, String>)| {
                let state = state.as_ref().ok()?;
                let model = identity.get(IdentityColumn::Model).unwrap_or_default();
                Some(format!("{} {model}\n{}", name(identity), described(state)))
            };
        states.iter().filter_map(line).collect()
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("cannot write to standard output", error))
        }
        _ => Ok(0),
    }
}

fn described(state: &ClockState) -> String {
    if state.is_asleep {
        return "  asleep, and left so\n".to_owned();
    }
    let mhz = |clock: Option<u32>| clock.map_or("unknown".to_owned(), |mhz| format!("{mhz} MHz"));
    let list = |choices: &[u32]| {
        let numbered = choices.iter().enumerate().map(|(at, mhz)| format!("{at}: {mhz}"));
        let mut entries: Vec<String> = numbered.collect();
        if entries.len() > CHOICES_SHOWN_MAX {
            entries.splice(2..entries.len() - 1, ["…".to_owned()]);
        }
        if entries.is_empty() { String::new() } else { format!("   [{}]", entries.join(", ")) }
    };
    let lock = match state.is_locked {
        Some(true) => "held",
        Some(false) => "not held",
        None => "the driver does not tell whether they are held",
    };
    let range =
        state.gpu_range_mhz.map_or(String::new(), |(low, high)| format!(", {low} to {high} MHz possible"));
    format!(
        "  GPU clock     {}{}\n  memory clock  {}{}\n  clocks        {lock}{}{range}\n",
        mhz(state.gpu_mhz),
        list(&state.gpu_choices_mhz),
        mhz(state.memory_mhz),
        list(&state.memory_choices_mhz),
        state.level.as_ref().map_or(String::new(), |level| format!(" (level {level})")),
    )
}
