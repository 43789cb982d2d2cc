//! Clocks of NVIDIA GPUs by an imitation of the library: locking them and giving them back.

use gpuvitals_clocks::{
    ClockControl, ClockError, ClockStep, Held, Level, Lock, get_current_clocks, lock_gpu_clocks, nvidia,
    reset_gpu_clocks,
};
use gpuvitals_rig::library::Library;
use gpuvitals_sources::machine::Machine;

const UUID: &str = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50";

fn control(library: &Library) -> Box<dyn ClockControl> {
    let machine = Machine { sysfs: library.path().with_file_name("sys"), ..Machine::local("n1") };
    nvidia::find_by(&machine, &library.path()).controls.into_iter().next().unwrap()
}

/// The calls that set clocks since this was asked before, by name.
fn writes(library: &Library) -> Vec<String> {
    let calls = library.calls();
    let setters = ["gpu_clocks=", "memory_clocks=", "nvmlDeviceReset"];
    let is_write = |call: &String| setters.iter().any(|setter| call.starts_with(setter));
    calls.into_keys().filter(is_write).collect()
}

#[test]
fn the_state_is_what_the_driver_tells() {
    let library = Library::new();
    let state = get_current_clocks(control(&library).as_mut()).unwrap();
    assert_eq!((state.gpu_mhz, state.memory_mhz), (Some(1000), Some(1200)));
    assert_eq!(state.gpu_choices_mhz, [1980, 1965, 1200, 345]);
    assert_eq!(state.memory_choices_mhz, [2619, 1593]);
    assert_eq!(state.gpu_range_mhz, Some((345, 1980)));
    assert_eq!((state.is_locked, state.level), (None, None), "NVML does not tell");
}

#[test]
fn locks_are_planned_as_bounds_of_clocks_that_the_driver_lists() {
    let library = Library::new();
    let mut gpu = control(&library);
    let lock = Lock::default;
    let table = [
        (Lock { level: Some(Level::High), ..lock() }, vec!["SetGpu 1980,1980"], vec!["ResetGpu "]),
        (Lock { level: Some(Level::Low), ..lock() }, vec!["SetGpu 345,345"], vec!["ResetGpu "]),
        (Lock { level: Some(Level::Auto), ..lock() }, vec!["ResetGpu "], vec![]),
        (Lock { gpu_mhz: Some(1970), ..lock() }, vec!["SetGpu 1965,1965"], vec!["ResetGpu "]),
        (
            Lock { gpu_mhz: Some(1200), memory_mhz: Some(2619), ..lock() },
            vec!["SetGpu 1200,1200", "SetMemory 2619,2619"],
            vec!["ResetGpu ", "ResetMemory "],
        ),
    ];
    for (lock, forward, back) in table {
        let plan = gpu.plan(&lock).unwrap();
        let spelled = |steps: &[ClockStep]| -> Vec<String> {
            let short = |step: &ClockStep| {
                let call = step.target.strip_prefix("nvmlDevice").unwrap();
                let call = call.strip_suffix(&format!("LockedClocks({UUID})")).unwrap();
                format!("{call} {}", step.text)
            };
            steps.iter().map(short).collect()
        };
        assert_eq!(
            (spelled(&plan.forward), spelled(&plan.back)),
            (forward.into_iter().map(str::to_owned).collect(), back.into_iter().map(str::to_owned).collect(),),
            "{lock:?}"
        );
    }
    for wrong in [
        lock(),
        Lock { level: Some(Level::Manual), ..lock() },
        Lock { gpu_mhz: Some(9999), ..lock() },
        Lock { level: Some(Level::High), gpu_mhz: Some(1200), ..lock() },
    ] {
        assert!(matches!(gpu.plan(&wrong), Err(ClockError::Wrong(_))), "{wrong:?}");
    }
    let profile = Lock { level: Some(Level::ProfilePeak), ..lock() };
    assert!(matches!(gpu.plan(&profile), Err(ClockError::NotSupported { .. })));
    assert!(writes(&library).is_empty(), "a plan changes nothing");
}

#[test]
fn a_lock_that_is_held_is_given_back() {
    let library = Library::new();
    library.says(&["clock.0 1980"]);
    let mut gpu = control(&library);
    let plan = gpu.plan(&Lock { level: Some(Level::High), ..Lock::default() }).unwrap();
    let held = Held::take(gpu.as_mut(), plan).unwrap();
    assert_eq!(writes(&library), ["gpu_clocks=1980..1980 0"]);
    drop(held);
    assert_eq!(writes(&library), ["nvmlDeviceResetGpuLockedClocks 0"]);
    reset_gpu_clocks(gpu.as_mut()).unwrap();
    assert_eq!(writes(&library), ["nvmlDeviceResetGpuLockedClocks 0", "nvmlDeviceResetMemoryLockedClocks 0"]);
}

#[test]
fn a_part_without_locked_memory_clocks_is_reset_all_the_same() {
    let library = Library::new();
    for code in [3, 13] {
        library.says(&[&format!("ret.nvmlDeviceResetMemoryLockedClocks {code}")]);
        writes(&library);
        reset_gpu_clocks(control(&library).as_mut()).unwrap();
        assert!(writes(&library).contains(&"nvmlDeviceResetGpuLockedClocks 0".to_owned()), "{code}");
    }
    library.says(&["ret.nvmlDeviceResetMemoryLockedClocks 4"]);
    let denied = reset_gpu_clocks(control(&library).as_mut());
    assert!(matches!(denied, Err(ClockError::Denied { .. })), "{denied:?}");
    library.says(&["ret.nvmlDeviceResetGpuLockedClocks 3"]);
    let old = reset_gpu_clocks(control(&library).as_mut());
    assert!(matches!(old, Err(ClockError::NotSupported { .. })), "{old:?}");
}

#[test]
fn a_lock_without_the_right_says_which_right_is_missing() {
    let library = Library::new();
    library.says(&[
        "ret.nvmlDeviceSetGpuLockedClocks 4",
        "ret.nvmlDeviceSetMemoryLockedClocks 3",
        "clock.0 1200",
    ]);
    let mut gpu = control(&library);
    let by_root = lock_gpu_clocks(gpu.as_mut(), &Lock { gpu_mhz: Some(1200), ..Lock::default() });
    assert!(
        matches!(&by_root, Err(ClockError::Denied { target, .. }) if target.contains(UUID)),
        "{by_root:?}"
    );
    let by_part = lock_gpu_clocks(gpu.as_mut(), &Lock { memory_mhz: Some(2619), ..Lock::default() });
    assert!(matches!(by_part, Err(ClockError::NotSupported { .. })), "{by_part:?}");
}

#[test]
fn a_lock_without_effect_is_taken_back() {
    let library = Library::new();
    let lock = Lock { gpu_mhz: Some(1200), ..Lock::default() };
    let check = |state: &[&str], has_effect: bool| {
        library.says(state);
        let locked = lock_gpu_clocks(control(&library).as_mut(), &lock);
        assert_eq!(!matches!(&locked, Err(ClockError::NoEffect { .. })), has_effect, "{state:?}: {locked:?}");
        assert_eq!(writes(&library).contains(&"nvmlDeviceResetGpuLockedClocks 0".to_owned()), !has_effect);
    };
    check(&["clock.0 1200"], true);
    check(&["clock.0 1980"], false);
    check(&["clock.0 345"], false);
    check(&["clock.0 345", "reasons 1"], true); // idle
    check(&["clock.0 900", "reasons 4"], true); // power cap
}
