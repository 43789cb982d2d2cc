//! Counters of what jobs use, from rows of `gpu_usage` as an agent makes them.

use gpuvitals_core::batch::Value;
use gpuvitals_core::figures::{Family, Format};
use gpuvitals_core::time::{HOUR_NS, SECOND_NS};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table};
use gpuvitals_exposition::JobMeters;

const HOUR: i64 = 500_000 * HOUR_NS;

/// A row: GPU, holder, seconds held and busy, and joules; none: not known.
type Used<'a> = (&'a str, &'a str, i64, Option<i64>, Option<i64>);

/// Rows of an hour as of so many seconds after its begin.
fn used(hour_ns: i64, as_of_s: i64, rows: &[Used<'_>]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuUsage);
    for (gpu, holder, held_s, busy_s, joules) in rows {
        let mut identity = Identity::default().with(IdentityColumn::Uuid, gpu).unwrap();
        if let Some(job) = holder.strip_prefix("job:") {
            identity.set(IdentityColumn::Job, job).unwrap();
        }
        let identity = builder.intern(&identity);
        let row = builder.row(hour_ns, identity);
        for (column, text) in [("holder", *holder), ("share", "exclusive")] {
            builder.set_extra_text(row, column, text).unwrap();
        }
        let numbers = [
            ("run", Some(1)),
            ("as_of_ns", Some(hour_ns + as_of_s * SECOND_NS)),
            ("held_ns", Some(held_s * SECOND_NS)),
            ("known_ns", busy_s.map(|_| held_s * SECOND_NS)),
            ("busy_ns", busy_s.map(|busy_s| busy_s * SECOND_NS)),
            ("used_mj", joules.map(|joules| joules * 1_000)),
        ];
        for (column, number) in numbers {
            if let Some(number) = number {
                builder.set_extra(row, column, Value::Int(number)).unwrap();
            }
        }
    }
    builder.finish(Origin::default(), 1).unwrap()
}

/// The samples as text.
fn lines(meters: &JobMeters) -> Vec<String> {
    let mut text = Vec::new();
    for family in meters.families() {
        family.write(Format::Prometheus, &mut text);
    }
    let text = String::from_utf8(text).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn what_a_job_used_is_counted_once_however_often_its_rows_come() {
    let mut meters = JobMeters::default();
    assert!(meters.families().is_empty(), "nobody has used anything");
    let begin: &[Used<'_>] =
        &[("GPU-0", "job:7", 10, Some(4), Some(500)), ("GPU-2", "nobody", 10, Some(0), None)];
    meters.take(&used(HOUR, 10, begin));
    meters.take(&used(HOUR, 10, begin));
    meters.take(&used(HOUR, 20, &[("GPU-0", "job:7", 20, Some(14), Some(900))]));
    // Another GPU, and the next hour.
    meters.take(&used(HOUR, 20, &[("GPU-1", "job:7", 5, Some(0), Some(100))]));
    meters.take(&used(HOUR + HOUR_NS, 30, &[("GPU-0", "job:7", 30, Some(30), Some(2_000))]));
    assert_eq!(
        lines(&meters),
        [
            "gpu_job_held_seconds_total{holder=\"job:7\",job=\"7\"} 55",
            "gpu_job_busy_seconds_total{holder=\"job:7\",job=\"7\"} 44",
            "gpu_job_wasted_seconds_total{holder=\"job:7\",job=\"7\"} 11",
            "gpu_job_energy_joules_total{holder=\"job:7\",job=\"7\"} 3000",
        ]
    );
}

#[test]
fn sums_that_fall_and_rise_again_are_counted_once() {
    let mut meters = JobMeters::default();
    for (as_of_s, held_s, busy_s, joules) in [
        (20, 20, Some(14), Some(900)),
        (21, 15, Some(14), None),
        (22, 22, Some(10), Some(800)),
        (23, 23, Some(15), Some(950)),
    ] {
        meters.take(&used(HOUR, as_of_s, &[("GPU-0", "user:kim", held_s, busy_s, joules)]));
    }
    let lines = lines(&meters);
    for line in [
        "gpu_job_held_seconds_total{holder=\"user:kim\"} 23",
        "gpu_job_busy_seconds_total{holder=\"user:kim\"} 15",
        "gpu_job_energy_joules_total{holder=\"user:kim\"} 950",
    ] {
        assert!(lines.iter().any(|one| one == line), "{line}: {lines:?}");
    }
}

#[test]
fn what_is_not_known_has_no_series() {
    let mut meters = JobMeters::default();
    meters.take(&used(HOUR, 10, &[("GPU-0", "user:kim", 10, None, None)]));
    assert_eq!(lines(&meters), ["gpu_job_held_seconds_total{holder=\"user:kim\"} 10"]);
}

/// The sum of the samples of a family, how many these are, and that of `other`.
fn held(meters: &JobMeters) -> (f64, usize, Option<f64>) {
    let is_it = |family: &Family| family.name == "gpu_job_held_seconds_total";
    let family = meters.families().into_iter().find(is_it).unwrap();
    let mut text = Vec::new();
    family.write(Format::Prometheus, &mut text);
    let text = String::from_utf8(text).unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let values: Vec<(bool, f64)> = samples
        .map(|line| (line.contains("\"other\""), line.rsplit(' ').next().unwrap().parse().unwrap()))
        .collect();
    let other = values.iter().find(|(is_other, _)| *is_other).map(|(_, value)| *value);
    (values.iter().map(|(_, value)| value).sum(), values.len(), other)
}

#[test]
fn a_metric_has_500_series_at_most_and_none_of_them_falls() {
    let mut meters = JobMeters::default();
    let names: Vec<String> = (0..600).map(|job| format!("job:{job:03}")).collect();
    let of = |some: &[String], held_s: i64| -> Vec<(String, i64)> {
        some.iter().map(|name| (name.clone(), held_s)).collect()
    };
    let mut take = |hour_ns: i64, as_of_s: i64, jobs: &[(String, i64)]| {
        let rows: Vec<Used<'_>> =
            jobs.iter().map(|(name, held_s)| (name.as_str(), name.as_str(), *held_s, None, None)).collect();
        meters.take(&used(hour_ns, as_of_s, &rows));
        held(&meters)
    };
    assert_eq!(take(HOUR, 10, &of(&names, 10)), (6_000.0, 500, Some(1_010.0)));
    // The first half ends. When it is forgotten its series are, and what had no place counts in `other` until then.
    assert_eq!(take(HOUR + HOUR_NS, 10, &of(&names[300..], 10)), (9_000.0, 500, Some(2_020.0)));
    let (_, series, other) = take(HOUR + 2 * HOUR_NS, 20, &of(&names[300..], 10));
    assert_eq!((series, other), (200, Some(3_030.0)));
    let (_, series, other) = take(HOUR + 3 * HOUR_NS, 10, &of(&names[300..], 10));
    assert_eq!((series, other), (301, Some(3_030.0)), "the last ones have a place now");
}
