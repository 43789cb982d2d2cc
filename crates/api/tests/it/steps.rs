//! Steps of a batch job: where and when each ran, and what the job used of its GPUs meanwhile.

use gpuvitals_core::batch::Value as Number;
use gpuvitals_core::time::{HOUR_NS, MINUTE_NS};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table};
use serde_json::{Value, json};

use crate::analysis::H100;
use crate::jobs::near;
use crate::world::{World, gpu, now_ns, rows};

/// A row about a step: name, host, GPUs, and minutes before now at which it began and ended.
type Told<'a> = (&'a str, &'a str, &'a str, i64, Option<i64>);

fn told(all: &[Told<'_>]) -> Batch {
    let mut builder = BatchBuilder::new(Table::Jobs);
    for (step, host, gpus, began, ended) in all {
        let mut identity = Identity::default();
        for (column, text) in [(IdentityColumn::Node, *host), (IdentityColumn::Job, "7")] {
            identity.set(column, text).unwrap();
        }
        let identity = builder.intern(&identity);
        let row = builder.row(now_ns() - HOUR_NS, identity);
        for (column, text) in [("job_id", "7"), ("step", *step), ("told_by", "cgroup"), ("gpus", *gpus)] {
            builder.set_extra_text(row, column, text).unwrap();
        }
        let ended = ended.map(|ended| ("end_ns", now_ns() - ended * MINUTE_NS));
        let began = ("start_ns", now_ns() - began * MINUTE_NS);
        for (column, ns) in [("as_of_ns", now_ns()), began].into_iter().chain(ended) {
            builder.set_extra(row, column, Number::Int(ns)).unwrap();
        }
    }
    builder.finish(Origin::default(), 1).unwrap()
}

/// The hour before now, in which the job had these GPUs and each used an energy of so many kJ.
fn used(all: &[(Identity, i64)]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuUsage);
    for (card, kilojoules) in all {
        let identity = builder.intern(&card.clone().with(IdentityColumn::Job, "7").unwrap());
        let row = builder.row(now_ns() - HOUR_NS, identity);
        for (column, text) in [("holder", "job:7"), ("share", "exclusive"), ("energy_source", "counter")] {
            builder.set_extra_text(row, column, text).unwrap();
        }
        for (column, number) in [
            ("run", 1),
            ("as_of_ns", now_ns()),
            ("held_ns", HOUR_NS),
            ("known_ns", HOUR_NS),
            ("busy_ns", HOUR_NS),
            ("idle_ns", 0),
            ("used_mj", kilojoules * 1_000_000),
        ] {
            builder.set_extra(row, column, Number::Int(number)).unwrap();
        }
    }
    builder.finish(Origin::default(), 1).unwrap()
}

#[tokio::test]
async fn a_step_has_its_gpus_and_what_the_job_used_of_them_while_it_ran() {
    let world = World::empty(|_, _| {}).await;
    let cards = [("GPU-0", "n1", 0), ("GPU-1", "n1", 1), ("GPU-2", "n2", 0)];
    let cards = cards.map(|(key, host, number)| gpu(key, host, number, H100));
    let watts: &[(&str, f64)] = &[("power_w", 100.0)];
    world.append(rows(&cards.clone().map(|card| (card, 1, watts)))).await;
    let [first, second, third] = cards;
    world.append(used(&[(first, 3_600), (second, 7_200), (third, 3_600)])).await;
    let path = "/api/v1/jobs/7?start=2026-11-20T15:00:00Z&end=2026-11-20T16:00:00Z";
    assert_eq!(world.ok(path).await["steps"], Value::Null, "none is known");
    world
        .append(told(&[
            ("batch", "n1", "0,1", 60, None),
            ("0", "n1", "1", 60, Some(0)),
            ("0", "n2", "0", 59, Some(0)),
            ("1", "n1", "GPU-0", 30, Some(15)),
            ("2", "n1", "9", 10, None),
        ]))
        .await;
    let detail = world.ok(path).await;
    let steps = detail["steps"].as_array().unwrap();
    assert_eq!(detail["steps_total"], 4);
    let of = |name: &str| steps.iter().find(|step| step["step"] == name).unwrap();
    let batch = of("batch");
    assert_eq!(
        (&batch["gpus"], &batch["state"], &batch["end"]),
        (&json!(2), &json!("running"), &Value::Null)
    );
    near(&batch["used"]["energy_kwh"], 3.0);
    let zero = of("0");
    assert_eq!(
        (&zero["gpus"], &zero["state"], &zero["hosts"]),
        (&json!(2), &json!("ended"), &json!(["n1", "n2"]))
    );
    assert_eq!((&zero["start"], &zero["interpolated"]), (&json!("2026-11-20T15:00:00Z"), &json!(false)));
    near(&zero["used"]["held_gpu_hours"], 2.0);
    near(&zero["used"]["energy_kwh"], 3.0);
    let one = of("1");
    assert_eq!((&one["end"], &one["interpolated"]), (&json!("2026-11-20T15:45:00Z"), &json!(true)));
    near(&one["used"]["energy_kwh"], 0.25);
    assert_eq!((&of("2")["gpus"], &of("2")["used"]), (&json!(1), &Value::Null), "no GPU has this number");
    assert_eq!(steps.last().unwrap()["step"], "2", "in the order in which they began");
    let before = "/api/v1/jobs/7?start=2026-11-20T15:00:00Z&end=2026-11-20T15:20:00Z";
    assert_eq!(world.ok(before).await["steps_total"], 2, "1 and 2 began later");
}
