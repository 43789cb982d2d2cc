//! GPUs that several have at once, and those that nobody gave out.

use super::*;

/// The process of kim; that of a pod has the pod's number.
const KIM: u32 = 100;

/// The pods that share the GPU, and whose processes are whose.
#[derive(Debug)]
struct Working(Pods);

impl Sharing for Working {
    fn sharers(&self, identity: &Arc<Identity>) -> Vec<Arc<Identity>> {
        self.0.sharers(identity)
    }

    fn owner_of(&self, pid: u32) -> Option<ProcessOwner> {
        match u8::try_from(pid) {
            Ok(_) if pid == KIM => Some(ProcessOwner::User("kim".to_owned())),
            Ok(pod) => Some(ProcessOwner::Holder(Arc::new(gpu(Some(pod))))),
            Err(_) => None,
        }
    }
}

/// A listing: number and share of each process.
fn listing(uuid: &str, at_s: i64, processes: &[(u32, f64)]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuProcesses);
    let identity = builder.intern(&Identity::default().with(IdentityColumn::Uuid, uuid).unwrap());
    for (pid, percent) in processes {
        let row = builder.row(BASE_NS + at_s * SECOND_NS, identity);
        builder.set_extra(row, "pid", Value::Int((*pid).into())).unwrap();
        builder.set_extra_text(row, "process_type", "compute").unwrap();
        builder.set_extra(row, "sm_utilization", Value::Float(*percent)).unwrap();
    }
    builder.finish(Origin::default(), 1).unwrap()
}

/// Samples a second apart from the first second on, with listings behind the seconds that they name.
fn told_with(
    seconds: usize,
    pod: Option<u8>,
    sharing: &dyn Sharing,
    listings: &[(usize, Batch)],
) -> Vec<Batch> {
    let sample = || Sample { apart_s: 1, pod, watts: Some(100.0), percent: 50.0 };
    let samples: Vec<Sample> = (0..seconds).map(|_| sample()).collect();
    let mut ledger = Ledger::default();
    let mut told = Vec::new();
    for (at, batch) in batches(&samples, 1).iter().enumerate() {
        ledger.add(batch, sharing);
        for (_, listing) in listings.iter().filter(|(second, _)| *second == at + 1) {
            ledger.add(listing, sharing);
        }
        told.extend(ledger.due());
    }
    told.extend(ledger.finish());
    told
}

/// Seconds held and busy, and joules, of a holder's share.
fn sums_of(told: &[Batch], holder: &str, share: &str) -> [f64; 3] {
    let kept = kept(told);
    let rows = kept.iter().filter(|((of, how, _), _)| of == holder && how == share);
    rows.fold([0.0; 3], |all, (_, [held_ns, busy_ns, _, used_mj])| {
        [all[0] + held_ns / 1e9, all[1] + busy_ns / 1e9, all[2] + used_mj / 1e3]
    })
}

fn assert_near(found: [f64; 3], wanted: [f64; 3]) {
    let is_near = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-3);
    assert!(is_near, "{found:?} is not {wanted:?}");
}

#[test]
fn work_that_listings_tell_divides_what_was_busy_and_the_rest_is_divided_by_time() {
    let sharing = Working(Pods(&[0, 1]));
    let listings = [
        (20, listing("GPU-1", 20, &[(0, 30.0), (1, 10.0)])),
        // Of the 40 seconds before it.
        (60, listing("GPU-1", 60, &[(0, 10.0), (1, 30.0)])),
        (100, listing("GPU-1", 100, &[(0, 20.0), (1, 20.0)])),
    ];
    let told = told_with(100, Some(0), &sharing, &listings);
    // Nothing was known in the first 20 seconds: of all that followed, half of the time was busy.
    for pod in ["pod:team/pod-0/", "pod:team/pod-1/"] {
        assert_near(sums_of(&told, pod, EQUAL), [10.0, 5.0, 1_000.0]);
    }
    assert_near(sums_of(&told, "pod:team/pod-0/", "process_time"), [34.5, 14.75, 2_950.0]);
    assert_near(sums_of(&told, "pod:team/pod-1/", "process_time"), [44.5, 24.75, 4_950.0]);
}

#[test]
fn work_of_processes_that_nobody_knows_or_of_others_than_the_holders_divides_nothing() {
    let sharing = Working(Pods(&[0, 1]));
    // Nobody knows that process; the pod of the other one does not have the GPU.
    for pid in [4_000, 2] {
        let listings = [(10, listing("GPU-1", 10, &[(0, 30.0), (pid, 30.0)]))];
        let told = told_with(50, Some(0), &sharing, &listings);
        for pod in ["pod:team/pod-0/", "pod:team/pod-1/"] {
            assert_near(sums_of(&told, pod, EQUAL), [24.5, 12.25, 2_450.0]);
            assert_near(sums_of(&told, pod, "process_time"), [0.0; 3]);
        }
    }
}

/// Pods that share the GPU, and the part of it that each was given; none: that is not known.
#[derive(Debug)]
struct Granting(&'static [(u8, Option<f64>)]);

impl Sharing for Granting {
    fn sharers(&self, _: &Arc<Identity>) -> Vec<Arc<Identity>> {
        let several = self.0.iter().filter(|_| self.0.len() > 1);
        several.map(|(pod, _)| Arc::new(gpu(Some(*pod)))).collect()
    }

    fn granted(&self, identity: &Identity) -> Option<f64> {
        let is_it = |pod: u8| identity.get(IdentityColumn::Pod) == Some(format!("pod-{pod}").as_str());
        self.0.iter().find(|(pod, _)| is_it(*pod))?.1
    }

    fn owner_of(&self, pid: u32) -> Option<ProcessOwner> {
        Some(ProcessOwner::Holder(Arc::new(gpu(u8::try_from(pid).ok()))))
    }
}

#[test]
fn what_was_given_of_a_gpu_divides_it_and_the_rest_is_nobodys() {
    let told = |granted: &'static [(u8, Option<f64>)]| told_with(101, Some(0), &Granting(granted), &[]);
    let [first, second] = ["pod:team/pod-0/", "pod:team/pod-1/"];
    let both = told(&[(0, Some(0.3)), (1, Some(0.2))]);
    assert_near(sums_of(&both, first, "granted"), [30.0, 15.0, 3_000.0]);
    assert_near(sums_of(&both, second, "granted"), [20.0, 10.0, 2_000.0]);
    assert_near(sums_of(&both, NOBODY, "granted"), [50.0, 25.0, 5_000.0]);
    let alone = told(&[(0, Some(0.25))]);
    assert_near(sums_of(&alone, first, "granted"), [25.0, 12.5, 2_500.0]);
    assert_near(sums_of(&alone, NOBODY, "granted"), [75.0, 37.5, 7_500.0]);
    let too_much = told(&[(0, Some(0.8)), (1, Some(0.8))]);
    assert_near(sums_of(&too_much, first, "granted"), [50.0, 25.0, 5_000.0]);
    assert_near(sums_of(&too_much, NOBODY, "granted"), [0.0; 3]);
    let of_one = told(&[(0, Some(0.3)), (1, None)]);
    assert_near(sums_of(&of_one, first, EQUAL), [50.0, 25.0, 5_000.0]);
    assert_near(sums_of(&of_one, first, "granted"), [0.0; 3]);
}

#[test]
fn work_that_listings_tell_counts_before_what_was_given() {
    let sharing = Granting(&[(0, Some(0.3)), (1, Some(0.2))]);
    let listings = [(1, listing("GPU-1", 1, &[(0, 30.0), (1, 10.0)]))];
    let told = told_with(40, Some(0), &sharing, &listings);
    let of = |holder: &str| sums_of(&told, holder, "process_time");
    let [first, second] = ["pod:team/pod-0/", "pod:team/pod-1/"].map(of);
    assert!((first[1] / second[1] - 3.0).abs() < 0.01, "{first:?} {second:?}");
    let nobody = of(NOBODY);
    assert!(nobody[0] > 0.0 && nobody[1].abs() < 1e-3, "nobody works: {nobody:?}");
}

/// A listing of ROCm processes on an AMD GPU: number and compute units of each; none: the kernel does not say it.
fn computing(at_s: i64, processes: &[(u32, Option<i64>)]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuProcesses);
    let gpu = Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap();
    let identity = builder.intern(&gpu.with(IdentityColumn::Vendor, "amd").unwrap());
    for (pid, units) in processes {
        let row = builder.row(BASE_NS + at_s * SECOND_NS, identity);
        builder.set_extra(row, "pid", Value::Int((*pid).into())).unwrap();
        builder.set_extra_text(row, "process_type", "compute").unwrap();
        if let Some(units) = units {
            builder.set_extra(row, "compute_units", Value::Int(*units)).unwrap();
        }
    }
    builder.finish(Origin::default(), 1).unwrap()
}

#[test]
fn compute_units_divide_work_whose_time_no_engine_tells_if_they_are_known_of_all() {
    let sharing = Working(Pods(&[0, 1]));
    let told = |other| {
        let listing = |at_s| computing(at_s, &[(0, Some(30)), (1, other)]);
        told_with(100, Some(0), &sharing, &[(20, listing(20)), (60, listing(60))])
    };
    let (all, one) = (told(Some(10)), told(None));
    let [first, second] = ["pod:team/pod-0/", "pod:team/pod-1/"].map(|pod| sums_of(&all, pod, "occupancy"));
    // Of the busy half of the time three quarters, of the rest the half.
    assert!((first[1] / second[1] - 3.0).abs() < 0.01, "{first:?} {second:?}");
    assert!((first[0] + second[0] - 79.0).abs() < 1e-3, "{first:?} {second:?}");
    assert_near(sums_of(&all, "pod:team/pod-0/", "process_time"), [0.0; 3]);
    assert_near(sums_of(&one, "pod:team/pod-0/", "occupancy"), [0.0; 3]);
    assert_near(sums_of(&one, "pod:team/pod-0/", EQUAL), [49.5, 24.75, 4_950.0]);
}

#[test]
fn a_gpu_that_nobody_gave_out_is_held_by_the_user_who_computes_as_long_as_listings_say_so() {
    let sharing = Working(Pods(&[]));
    let listings = [(10, listing("GPU-1", 10, &[(KIM, 50.0)])), (40, listing("GPU-2", 40, &[(KIM, 50.0)]))];
    let told = told_with(60, None, &sharing, &listings);
    assert_near(sums_of(&told, "user:kim", EXCLUSIVE), [30.0, 15.0, 3_000.0]);
    assert_near(sums_of(&told, NOBODY, EXCLUSIVE), [29.0, 14.5, 2_900.0]);
    // A pod that has the GPU has it, whoever computes.
    let told = told_with(60, Some(0), &sharing, &listings);
    assert_near(sums_of(&told, "pod:team/pod-0/", EXCLUSIVE), [59.0, 29.5, 5_900.0]);
}

#[test]
fn a_user_whose_processes_have_ended_holds_the_gpu_for_no_longer_than_half_a_listing_more() {
    let sharing = Working(Pods(&[]));
    let kim = |at_s| listing("GPU-1", at_s, &[(KIM, 50.0)]);
    // No listing says that there is no process on any GPU.
    let told = told_with(120, None, &sharing, &[(10, kim(10))]);
    assert_near(sums_of(&told, "user:kim", EXCLUSIVE), [45.0, 22.5, 4_500.0]);
    assert_near(sums_of(&told, NOBODY, EXCLUSIVE), [74.0, 37.0, 7_400.0]);
    let told = told_with(200, None, &sharing, &[(10, kim(10)), (50, kim(50))]);
    assert_near(sums_of(&told, "user:kim", EXCLUSIVE), [100.0, 50.0, 10_000.0]);
}

/// A GPU that MIG can divide.
fn card() -> Identity {
    gpu(None).with(IdentityColumn::Model, "NVIDIA H100").unwrap()
}

fn instance(number: &str, profile: &str) -> Identity {
    let card = card().with(IdentityColumn::Partition, number).unwrap();
    card.with(IdentityColumn::Model, &format!("NVIDIA H100 MIG {profile}")).unwrap()
}

/// What a ledger tells of a minute of rows, each with a value: those of every second.
fn told_of_rows(of_second: impl Fn(i64) -> Vec<(Identity, &'static str, f64)>) -> Vec<String> {
    let mut ledger = Ledger::default();
    let mut told = Vec::new();
    for second in 0..60 {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for (identity, column, value) in of_second(second) {
            let identity = builder.intern(&identity);
            let row = builder.row(BASE_NS + second * SECOND_NS, identity);
            builder.set(row, MetricId::of(column), Value::Float(value)).unwrap();
        }
        ledger.add(&builder.finish(Origin::default(), 1).unwrap(), &ALONE);
        told.extend(ledger.due());
    }
    told.extend(ledger.finish());
    let merged = merged(&told);
    let mut rows: Vec<String> = (0..merged.rows())
        .map(|row| {
            let of = |name| number(&merged, name, row);
            let (seconds, joules) = (of("held_ns").unwrap() / 1e9, of("used_mj").unwrap_or(0.0) / 1e3);
            let key = merged.identity(row).key().unwrap();
            let (holder, share) = (text(&merged, "holder", row), text(&merged, "share", row));
            let memory = of("memory_max_mb").unwrap_or(0.0);
            format!("{key} {holder} {share} {seconds:.3} s {joules:.0} J {memory} MiB")
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn a_card_is_divided_by_the_slices_of_its_instances() {
    let held = instance("1", "3g.40gb").with(IdentityColumn::Pod, "a").unwrap();
    let free = instance("2", "1g.10gb");
    let rows = told_of_rows(|_| {
        vec![
            (card(), "power_w", 700.0),
            (held.clone(), "memory_used_mb", 1_000.0),
            (free.clone(), "memory_used_mb", 1.0),
        ]
    });
    // The instances are known from the second row of the card on; three slices belong to none.
    let wanted = [
        "GPU-1 nobody exclusive 1.000 s 700 J 0 MiB",
        "GPU-1 nobody instance 24.857 s 17400 J 0 MiB",
        "GPU-1:1 pod:/a/ instance 24.857 s 17400 J 1000 MiB",
        "GPU-1:2 nobody instance 8.286 s 5800 J 1 MiB",
    ];
    assert_eq!(rows, wanted);
}

#[test]
fn an_instance_whose_card_comes_later_is_a_part_of_it_from_then_on() {
    let held = instance("1", "7g.80gb").with(IdentityColumn::Pod, "a").unwrap();
    let rows = told_of_rows(|second| {
        let card = (second >= 10).then(|| (card(), "power_w", 700.0));
        let instance = (held.clone(), "memory_used_mb", 1_000.0);
        card.into_iter().chain([instance]).collect()
    });
    // By itself from its row of second 0 to that of second 9; the card begins with second 10.
    let wanted = [
        "GPU-1 nobody exclusive 1.000 s 700 J 0 MiB",
        "GPU-1:1 pod:/a/ exclusive 9.000 s 0 J 1000 MiB",
        "GPU-1:1 pod:/a/ instance 48.000 s 33600 J 1000 MiB",
    ];
    assert_eq!(rows, wanted);
}
