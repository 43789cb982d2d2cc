//! Sums of rows, against sums of the same rows in another way.

use std::sync::Arc;

use super::*;
use crate::batch::Value;
use crate::time::{DAY_NS, HOUR_NS};
use crate::usage::{JobText, JobTexts, NOBODY, UNOBSERVED};
use crate::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table};

/// An hour that begins a day.
const BEGIN_NS: i64 = 20_000 * DAY_NS;

/// A row: its GPU, its hour, its holder, the share of the hour that it held.
type Held<'a> = (u8, i64, &'a str, f64);

#[expect(clippy::cast_possible_truncation, reason = "parts of an hour")]
fn batch(rows: &[Held<'_>]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuUsage);
    for (gpu, hour, holder, held) in rows {
        let mut identity = Identity::default();
        for (column, text) in [
            (IdentityColumn::Uuid, format!("GPU-{gpu}")),
            (IdentityColumn::Node, format!("node-{}", gpu / 2)),
            (IdentityColumn::Model, format!("model {}", gpu % 2)),
            (IdentityColumn::Job, holder.strip_prefix("job:").unwrap_or_default().to_owned()),
        ] {
            identity.set(column, &text).unwrap();
        }
        let identity = builder.intern(&identity);
        let row = builder.row(BEGIN_NS + hour * HOUR_NS, identity);
        for (column, text) in [("holder", *holder), ("share", "exclusive")] {
            builder.set_extra_text(row, column, text).unwrap();
        }
        let held_ns = (held * 3_600e9) as i64;
        for (column, number) in [
            ("run", 1),
            ("as_of_ns", BEGIN_NS + (hour + 1) * HOUR_NS),
            ("held_ns", held_ns),
            ("known_ns", held_ns),
            ("busy_ns", held_ns / 2),
            ("used_mj", 1_000 * i64::from(*gpu)),
        ] {
            builder.set_extra(row, column, Value::Int(number)).unwrap();
        }
    }
    builder.finish(Origin::default(), 1).unwrap()
}

/// Two days of four GPUs in three parts: `job:1` moves from one part to the next, and nobody has the last GPU for half of the time.
fn parts() -> [Batch; 3] {
    let all: Vec<Held<'_>> = (0..48)
        .flat_map(|hour| {
            let job = if hour < 20 { "job:1" } else { "job:2" };
            let last = if hour % 2 == 0 { NOBODY } else { "job:3" };
            let lost = [(3, hour, UNOBSERVED, 0.25)].into_iter().filter(move |_| hour == 30);
            let pod = (2, hour, "pod:team/train/main", 0.5);
            [(0, hour, job, 1.0), (1, hour, job, 1.0), pod, (3, hour, last, 0.75)].into_iter().chain(lost)
        })
        .collect();
    let (first, rest) = all.split_at(70);
    let (second, third) = rest.split_at(50);
    [first, second, third].map(batch)
}

fn query(by: HoldingGroup) -> HoldingsQuery {
    let (start_ns, end_ns) = (BEGIN_NS, BEGIN_NS + 2 * DAY_NS);
    HoldingsQuery { gpus: Vec::new(), start_ns, end_ns, by, holder: None }
}

/// One user for two jobs of the three.
fn users() -> Arc<JobTexts> {
    let mut builder = BatchBuilder::new(Table::Jobs);
    for (id, user) in [("1", "kim"), ("2", "kim"), ("3", "lee")] {
        let host = builder.intern(&Identity::default().with(IdentityColumn::Node, "node-0").unwrap());
        let row = builder.row(BEGIN_NS, host);
        for (column, text) in [("job_id", id), ("step", "whole"), ("told_by", "prolog"), ("job_user", user)] {
            builder.set_extra_text(row, column, text).unwrap();
        }
        builder.set_extra(row, "as_of_ns", Value::Int(BEGIN_NS)).unwrap();
    }
    let mut users = JobTexts::of(JobText::User);
    users.add(&builder.finish(Origin::default(), 1).unwrap());
    Arc::new(users)
}

/// What one sum of all parts says, and what a sum of each part put together says.
fn both(by: HoldingGroup, told: Option<&Arc<JobTexts>>) -> [HoldingsAnswer; 2] {
    let query = query(by);
    let mut one = Holdings::of(&query, told);
    let mut many = Holdings::of(&query, told);
    for part in parts().iter().rev() {
        one.add(part);
        let mut of_part = Holdings::of(&query, told);
        of_part.add(part);
        many.and(of_part);
    }
    [one.finish(), many.finish()]
}

#[test]
fn sums_of_parts_are_the_sums_of_all_whatever_is_put_together() {
    let columns = [IdentityColumn::Node, IdentityColumn::Job, IdentityColumn::Model];
    let columns = columns.map(HoldingGroup::Identity).into_iter();
    for by in columns.chain([HoldingGroup::Holder, HoldingGroup::Gpu, HoldingGroup::Day]) {
        let [one, many] = both(by, None);
        assert_eq!(one, many, "{by:?}");
        let held_s: f64 = one.groups.iter().map(|group| group.sums.held_s).sum();
        // Two GPUs for 48 hours, half of one, and three quarters of one every other hour.
        assert!((held_s / 3_600.0 - (96.0 + 24.0 + 18.0)).abs() < 1e-6, "{by:?}: {held_s}");
        assert!((one.nobody.held_s / 3_600.0 - 18.0).abs() < 1e-6, "{by:?}");
        assert!((one.unobserved.held_s / 3_600.0 - 0.25).abs() < 1e-6, "{by:?}");
    }
}

#[test]
fn what_is_told_of_jobs_puts_their_holders_together() {
    let users = users();
    let [one, many] = both(HoldingGroup::Holder, Some(&users));
    assert_eq!(one, many);
    let told = |one: &Holding| (one.group.as_deref().map(str::to_owned), one.holder.clone(), one.gpus.len());
    let found: Vec<_> = one.groups.iter().map(told).collect();
    assert_eq!(
        found,
        [
            // Of two jobs, so of no one holder.
            (Some("kim".to_owned()), None, 2),
            (None, Some(Arc::from("pod:team/train/main")), 1),
            (Some("lee".to_owned()), Some(Arc::from("job:3")), 1),
        ]
    );
    let [kim, pod, lee] = one.groups.as_slice() else { panic!("{:?}", one.groups) };
    assert!((kim.sums.held_s / 3_600.0 - 96.0).abs() < 1e-6);
    assert_eq!(kim.nodes.iter().map(AsRef::as_ref).collect::<Vec<_>>(), ["node-0"]);
    assert_eq!((kim.names[3].as_deref(), lee.names[3].as_deref()), (None, Some("3")), "the job of all");
    assert!(kim.is_last && pod.is_last && lee.is_last, "the last hour is theirs");
}
