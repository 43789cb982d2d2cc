//! Clocks of AMD GPUs on captured trees: writes, refusals, restores.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use gpuvitals_clocks::{
    ClockControl, ClockError, ClockStep, Held, Level, Lock, Plan, get_current_clocks, lock_gpu_clocks,
    reset_gpu_clocks, restore_clocks,
};
use gpuvitals_rig::tree;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::Driver;

const LEVEL: &str = "power_dpm_force_performance_level";

/// A copy of a captured tree that a test may write to.
struct Tree {
    dir: tempfile::TempDir,
    device: PathBuf,
}

impl Tree {
    fn of(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/clocks").join(name);
        tree::copy(&fixture, dir.path());
        let card = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap();
        Self { device: card.path().join("device"), dir }
    }

    fn control(&self) -> Box<dyn ClockControl> {
        let machine = Machine { sysfs: self.dir.path().to_owned(), ..Machine::local("n1") };
        let mut found = gpuvitals_clocks::find(&machine, &[Driver::AmdSysfs]);
        assert_eq!(found.controls.len(), 1, "{found:?}");
        found.controls.remove(0)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.device.join(file), text).unwrap();
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.device.join(file)).unwrap()
    }

    fn plan(&self, lock: &Lock) -> Result<Plan, ClockError> {
        self.control().plan(lock)
    }
}

/// Steps as pairs.
fn short(steps: &[ClockStep]) -> Vec<(String, String)> {
    steps.iter().map(|step| (step.target.clone(), step.text.clone())).collect()
}

fn level(level: Level) -> Lock {
    Lock { level: Some(level), ..Lock::default() }
}

fn gpu_mhz(mhz: u32) -> Lock {
    Lock { gpu_mhz: Some(mhz), ..Lock::default() }
}

/// Expected steps: `file text`.
fn steps(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    lines.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect()
}

const SCLK: &str = "pp_dpm_sclk";
const MCLK: &str = "pp_dpm_mclk";
const OD: &str = "pp_od_clk_voltage";

#[test]
fn the_writes_are_those_of_rocm_smi() {
    let check = |tree: &str, lock: Lock, forward: &[(&str, &str)], back: &[(&str, &str)]| {
        let at = Tree::of(tree);
        let plan = at.plan(&lock).unwrap();
        assert_eq!(short(&plan.forward), steps(forward), "{tree} {lock:?}");
        assert_eq!(short(&plan.back), steps(back), "{tree} {lock:?}, back");
    };
    let auto = (LEVEL, "auto");
    let manual = (LEVEL, "manual");
    for one in Level::ALL {
        check("vega56", level(one), &[(LEVEL, one.as_str())], &[auto]);
    }
    // --setmclk 1
    let lock = Lock { memory_mhz: Some(500), ..Lock::default() };
    check("vega56", lock, &[manual, (MCLK, "1 ")], &[auto]);
    check("vega56", Lock { level: Some(Level::Manual), ..lock }, &[manual, (MCLK, "1 ")], &[auto]);
    // The nearest of a fixed list.
    check("vega56", gpu_mhz(1250), &[manual, (SCLK, "3 ")], &[auto]);
    let both = Lock { memory_mhz: Some(900), ..gpu_mhz(1590) };
    check("vega56", both, &[manual, (SCLK, "7 "), (MCLK, "3 ")], &[auto]);
    // --setsrange 1500 1500
    let forward = [manual, (OD, "s 0 1500\n"), (OD, "s 1 1500\n"), (OD, "c")];
    let back = [manual, (OD, "s 0 500\n"), (OD, "s 1 2499\n"), (OD, "c"), auto];
    check("rx6900xt", gpu_mhz(1500), &forward, &back);
    // --setperfdeterminism 1500
    let forward = [(LEVEL, "perf_determinism"), (OD, "s 1 1500\n"), (OD, "c")];
    check("mi300x", gpu_mhz(1500), &forward, &[auto]);
    let lock = Lock { level: Some(Level::PerfDeterminism), ..gpu_mhz(1500) };
    check("mi300x", lock, &forward, &[auto]);
    // Without bounds only the ends of the list can be held; the captured card was in `manual`.
    check("rx7600s", gpu_mhz(1840), &[manual, (SCLK, "2 ")], &[manual, (SCLK, "0 1 2 ")]);
}

#[test]
fn what_was_there_before_is_brought_back_whatever_it_was() {
    let back = |tree: &str, before: &str, lock: &Lock| {
        let at = Tree::of(tree);
        at.write(LEVEL, before);
        short(&at.plan(lock).unwrap().back)
    };
    assert_eq!(back("mi300x", "profile_peak\n", &gpu_mhz(900)), steps(&[(LEVEL, "profile_peak")]));
    assert_eq!(
        back("mi300x", "perf_determinism\n", &gpu_mhz(900)),
        steps(&[(LEVEL, "perf_determinism"), (OD, "s 1 2100\n"), (OD, "c")])
    );
    assert_eq!(
        back("mi300x", "manual\n", &gpu_mhz(900)),
        steps(&[(LEVEL, "manual"), (OD, "s 0 500\n"), (OD, "s 1 2100\n"), (OD, "c")])
    );
    assert_eq!(
        back("rx6900xt", "manual\n", &gpu_mhz(1500)),
        steps(&[(LEVEL, "manual"), (OD, "s 0 500\n"), (OD, "s 1 2499\n"), (OD, "c")])
    );
    assert_eq!(
        back("vega56", "manual\n", &gpu_mhz(1590)),
        steps(&[(LEVEL, "manual"), (SCLK, "0 1 2 3 4 5 6 7 ")])
    );
    assert_eq!(back("vega56", "low\n", &level(Level::High)), steps(&[(LEVEL, "low")]));
    assert_eq!(back("vega56", "a word of tomorrow\n", &level(Level::High)), steps(&[(LEVEL, "auto")]));
}

#[test]
fn locks_are_made_held_and_given_back() {
    let at = Tree::of("vega56");
    let mut device = at.control();
    let plan = device.plan(&gpu_mhz(1269)).unwrap();
    assert_eq!(at.read(LEVEL), "auto\n", "a plan changes nothing");
    let held = Held::take(device.as_mut(), plan.clone()).unwrap();
    assert_eq!((at.read(LEVEL).as_str(), at.read(SCLK).as_str()), ("manual", "3 "));
    held.give_back().unwrap();
    assert_eq!(at.read(LEVEL), "auto");

    drop(Held::take(at.control().as_mut(), plan.clone()).unwrap());
    assert_eq!(at.read(LEVEL), "auto", "dropped is given back");

    let mut control = at.control();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _held = Held::take(control.as_mut(), plan).unwrap();
        panic!("of the holder");
    }));
    assert!(panicked.is_err());
    assert_eq!(at.read(LEVEL), "auto", "given back when its holder panics");
}

#[test]
fn the_three_calls_of_the_library() {
    let at = Tree::of("rx6900xt");
    let mut device = at.control();
    let back = lock_gpu_clocks(device.as_mut(), &level(Level::High)).unwrap();
    let state = get_current_clocks(device.as_mut()).unwrap();
    assert_eq!((state.level.as_deref(), state.is_locked), (Some("high"), Some(true)));
    restore_clocks(device.as_mut(), &back).unwrap();
    assert_eq!(get_current_clocks(device.as_mut()).unwrap().is_locked, Some(false));

    at.write("pp_sclk_od", "5");
    at.write(LEVEL, "profile_peak");
    reset_gpu_clocks(device.as_mut()).unwrap();
    assert_eq!((at.read(LEVEL).as_str(), at.read("pp_sclk_od").as_str()), ("auto", "0"), "as --resetclocks");
}

#[test]
fn the_state_says_what_the_files_say() {
    let vega = Tree::of("vega56").control().state().unwrap();
    assert_eq!((vega.gpu_mhz, vega.memory_mhz), (Some(26), Some(167)), "hwmon before the starred level");
    assert_eq!(vega.gpu_choices_mhz, [852, 991, 1138, 1269, 1312, 1474, 1538, 1590]);
    assert_eq!((vega.gpu_range_mhz, vega.is_locked), (Some((852, 1590)), Some(false)));

    let rx6900 = Tree::of("rx6900xt").control().state().unwrap();
    assert_eq!(rx6900.gpu_range_mhz, Some((500, 3000)), "as its overdrive table allows");

    let rx7600 = Tree::of("rx7600s").control().state().unwrap();
    assert_eq!((rx7600.level.as_deref(), rx7600.is_locked), (Some("manual"), None), "it cannot be told");

    let asleep = Tree::of("vega56");
    fs::create_dir(asleep.device.join("power")).unwrap();
    asleep.write("power/runtime_status", "suspended\n");
    let state = asleep.control().state().unwrap();
    assert!(state.is_asleep && state.gpu_mhz.is_none() && state.level.is_none());
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    let check = |tree: &str, lock: Lock, text: &str| {
        let error = Tree::of(tree).plan(&lock).unwrap_err().to_string();
        assert!(error.contains(text), "{tree} {lock:?}: {error}");
    };
    check("vega56", Lock::default(), "nothing to lock");
    check("vega56", gpu_mhz(3000), "out of range: 852 to 1590 MHz");
    check("rx6900xt", gpu_mhz(4000), "out of range: 500 to 3000 MHz");
    check("rx7600s", gpu_mhz(1000), "lists 255 MHz and 1841 MHz");
    check("rx7600s", Lock { level: Some(Level::PerfDeterminism), ..gpu_mhz(1841) }, "no bounds to set");
    check("vega56", Lock { level: Some(Level::High), ..gpu_mhz(991) }, "with level high the driver chooses");
    check(
        "mi300x",
        Lock { memory_mhz: Some(1100), ..gpu_mhz(1500) },
        "leaves the memory clock to the driver",
    );

    let guest = Tree::of("mi300x");
    fs::remove_file(guest.device.join(LEVEL)).unwrap();
    let error = guest.plan(&level(Level::High)).unwrap_err();
    assert!(matches!(&error, ClockError::NotSupported { why, .. } if why.contains("SR-IOV")), "{error}");
    assert!(guest.control().plan_reset().is_err());
}

#[test]
fn a_driver_that_takes_a_write_without_effect_is_found_out() {
    let at = Tree::of("vega56");
    fs::remove_file(at.device.join(LEVEL)).unwrap();
    symlink("/dev/null", at.device.join(LEVEL)).unwrap();
    let error = lock_gpu_clocks(at.control().as_mut(), &level(Level::High)).unwrap_err();
    // The way back has none either.
    let ClockError::HalfMade { failed, .. } = &error else { panic!("{error}") };
    assert!(
        matches!(&**failed, ClockError::NoEffect { asked, seen, .. } if asked == "high" && seen.is_empty()),
        "{error}"
    );

    let at = Tree::of("rx6900xt");
    at.write(LEVEL, "manual\n");
    let plan = at.plan(&gpu_mhz(1500)).unwrap();
    let error = at.control().verify(&plan.forward).unwrap_err();
    assert!(
        matches!(&error, ClockError::NoEffect { asked, seen, .. } if asked == "s 0 1500" && seen == "s 0 500"),
        "{error}"
    );
    at.write(OD, "OD_SCLK:\n0: 1500Mhz\n1: 1500Mhz\nOD_RANGE:\nSCLK: 500Mhz 3000Mhz\n");
    at.control().verify(&plan.forward).unwrap();
}

#[test]
fn a_lock_that_fails_half_way_is_taken_back() {
    let at = Tree::of("vega56");
    let mut device = at.control();
    let plan = device.plan(&Lock { memory_mhz: Some(500), ..gpu_mhz(1269) }).unwrap();
    fs::remove_file(at.device.join(MCLK)).unwrap();
    fs::create_dir(at.device.join(MCLK)).unwrap();
    let error = Held::take(device.as_mut(), plan).unwrap_err();
    assert!(matches!(error, ClockError::Refused { .. }), "{error}");
    assert_eq!(at.read(LEVEL), "auto");
}

#[test]
fn a_lock_that_can_neither_be_made_nor_taken_back_says_both() {
    let at = Tree::of("vega56");
    let mut device = at.control();
    let mut plan = device.plan(&Lock { memory_mhz: Some(500), ..gpu_mhz(1269) }).unwrap();
    fs::remove_file(at.device.join(MCLK)).unwrap();
    fs::create_dir(at.device.join(MCLK)).unwrap();
    plan.back[0].target = "vendor".to_owned();
    let error = Held::take(device.as_mut(), plan).unwrap_err();
    let ClockError::HalfMade { failed, back } = &error else { panic!("{error}") };
    assert!(matches!(**failed, ClockError::Refused { .. }), "{failed}");
    assert!(matches!(**back, ClockError::Wrong(_)), "{back}");
    assert!(error.to_string().contains("vendor holds no clocks"), "{error}");
}

#[test]
fn only_files_of_its_own_clocks_are_written() {
    let at = Tree::of("vega56");
    let elsewhere = at.dir.path().join("passwd");
    fs::write(&elsewhere, "kept").unwrap();
    let whole = at.device.join(LEVEL);
    for target in [elsewhere.as_path(), &whole, Path::new("../../passwd"), Path::new("vendor")] {
        let step = ClockStep { target: target.display().to_string(), text: "high".to_owned() };
        let error = at.control().apply(&step).unwrap_err();
        assert!(matches!(error, ClockError::Wrong(_)), "{error}");
    }
    assert_eq!(fs::read_to_string(elsewhere).unwrap(), "kept");
}

#[test]
fn steps_reach_their_gpu_under_whatever_number_its_card_has() {
    let at = Tree::of("vega56");
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/clocks/mi300x/card1");
    let card = at.device.parent().unwrap();
    let mut device = at.control();
    let plan = device.plan(&level(Level::High)).unwrap();
    let held = Held::take(device.as_mut(), plan).unwrap();
    // The driver was reloaded, and gave the numbers in another order.
    let renumbered = at.dir.path().join("card5");
    fs::rename(card, &renumbered).unwrap();
    tree::copy(&other, card);
    fs::write(card.join("device").join(LEVEL), "low").unwrap();
    held.give_back().unwrap();
    let level_of = |card: &Path| fs::read_to_string(card.join("device").join(LEVEL)).unwrap();
    assert_eq!((level_of(&renumbered), level_of(card)), ("auto".to_owned(), "low".to_owned()));
    // The GPU is gone, and another one has its number.
    let plan = device.plan(&level(Level::High)).unwrap();
    let held = Held::take(device.as_mut(), plan).unwrap();
    fs::remove_dir_all(&renumbered).unwrap();
    tree::copy(&other, &renumbered);
    fs::write(renumbered.join("device").join(LEVEL), "low").unwrap();
    let error = held.give_back().unwrap_err();
    assert!(
        matches!(error, ClockError::Gone(_)) && error.to_string().contains("nothing was written"),
        "{error}"
    );
    assert_eq!(level_of(&renumbered), "low");
}
