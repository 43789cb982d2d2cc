//! What a large fleet must not make large. All values are made up.

use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Identity, IdentityColumn};

use crate::analysis::{H100, judging};
use crate::world::{Row, gpu, now_ns, rows};

/// Stragglers, and jobs whose only GPU does nothing: a few more of each than are named.
const MANY: usize = 510;

/// A GPU of a job.
fn held(name: &str, number: usize, job: &str) -> Identity {
    let index = i32::try_from(number % 8).unwrap();
    let gpu = gpu(&format!("{name}-{number}"), &format!("{name}-{}", number / 8), index, H100);
    gpu.with(IdentityColumn::Namespace, "research").unwrap().with(IdentityColumn::Job, job).unwrap()
}

#[tokio::test]
async fn figures_name_no_more_than_500_gpus_and_count_all_findings() {
    let working = |clock| [("utilization_pct", 99.0), ("gpu_clock_mhz", clock), ("power_w", 650.0)];
    let (fast, slow, idle) = (working(1980.0), working(1530.0), [("utilization_pct", 0.0)]);
    // The median of the job is that of the fast ones.
    let members: Vec<Identity> = (0..3 * MANY).map(|number| held("w", number, "train")).collect();
    let parked: Vec<Identity> =
        (0..MANY).map(|number| held("p", number, &format!("parked-{number}"))).collect();
    let mut all: Vec<Row<'_>> = Vec::new();
    for minute in -3..45 {
        if minute < 15 {
            let values = |number| if number < MANY { &slow[..] } else { &fast[..] };
            all.extend(members.iter().enumerate().map(|(n, gpu)| (gpu.clone(), 60 * minute, values(n))));
        }
        all.extend(parked.iter().map(|gpu| (gpu.clone(), 60 * minute, &idle[..])));
    }
    let world = judging().await;
    world.append(rows(&all)).await;
    world.ok("/api/v1/analysis/findings").await;
    world.set_time(now_ns() + 150 * SECOND_NS);
    world.ok("/api/v1/analysis/findings").await;
    let metrics = world.get("/metrics").await.text().to_owned();
    for (name, kind, severity) in [
        ("gpuvitals_straggler_clock_ratio", "straggler", "warning"),
        ("gpuvitals_idle_held_seconds", "idle_held", "notice"),
    ] {
        let count = format!("gpuvitals_findings{{kind=\"{kind}\",severity=\"{severity}\"}} {MANY}\n");
        assert!(metrics.contains(&count), "{count}: {metrics}");
        let named = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count();
        assert_eq!(named, 500, "{name}");
        let help = metrics.lines().find(|line| line.starts_with(&format!("# HELP {name} "))).unwrap();
        assert!(help.contains("500"), "who reads it knows that there may be more: {help}");
    }
}
