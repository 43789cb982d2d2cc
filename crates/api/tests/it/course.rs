//! Where metrics go, and what is unusual. All values are made up.

use gpuvitals_core::Identity;
use serde_json::{Value, json};

use crate::analysis::{H100, a_job_with_a_straggler, judging};
use crate::world::{Row, World, gpu, rows};

/// Ten days of five GPUs, a row an hour: GPU-4 gets warmer by half a degree a day, GPU-3 is hot in the last hour.
async fn ten_days(world: &World) {
    let warm = |n: usize, hour: i32| match n {
        4 => 70.0 + f64::from(hour) / 48.0,
        3 if hour == 0 => 95.0,
        _ => 70.0 + f64::from(hour.rem_euclid(3)) / 10.0,
    };
    let reading = |warm| [("temperature_c", warm), ("temperature_slowdown_c", 87.0)];
    let gpus: Vec<Identity> = (0..5).map(|n| gpu(&format!("GPU-{n}"), "n1", n, H100)).collect();
    let hours: Vec<_> =
        (-240..=0).map(|hour| (hour, [0, 1, 2, 3, 4].map(|n| reading(warm(n, hour))))).collect();
    let all: Vec<Row<'_>> = hours
        .iter()
        .flat_map(|(hour, of_gpus)| {
            let seconds_ago = 60 - 3_600 * i64::from(*hour);
            gpus.iter().zip(of_gpus).map(move |(gpu, values)| (gpu.clone(), seconds_ago, values.as_slice()))
        })
        .collect();
    world.append(rows(&all)).await;
}

#[tokio::test]
async fn what_creeps_has_a_trend_and_a_day_at_its_limit() {
    let world = judging().await;
    ten_days(&world).await;
    let list = world.ok("/api/v1/analysis/trends").await;
    let trend = &list["trends"][0];
    assert_eq!((&list["total"], &trend["unit"]), (&json!(1), &json!("°C")), "{list}");
    for (query, total) in
        [("metrics=memory_used_mb", 0), ("metrics=temperature_c,power_w", 1), ("gpus=GPU-3", 0)]
    {
        assert_eq!(world.ok(&format!("/api/v1/analysis/trends?{query}")).await["total"], total, "{query}");
    }
    assert_eq!(world.ok("/api/v1/analysis/trends?gpus=GPU-4").await["trends"], list["trends"]);
    assert_eq!(world.get("/api/v1/analysis/trends?gpus=nobody").await.status, 404);
    let close = |name: &str, to: f64| (trend[name].as_f64().unwrap() - to).abs() < 0.1;
    assert!(close("per_day", 0.5) && close("level", 70.0) && close("steadiness", 1.0), "{trend}");
    // 17 degrees at half a degree a day.
    let day = trend["reaches_limit_at"].as_str().unwrap();
    assert!(trend["gpu"] == "GPU-4" && trend["limit"] == 87.0 && day.starts_with("2026-12-24"), "{trend}");
    // A limit that is asked for counts instead of the GPU's own.
    let asked = world.ok("/api/v1/analysis/trends?metrics=temperature_c&limit_at=72").await;
    let trend = &asked["trends"][0];
    assert!(trend["limit"] == 72.0 && trend["reaches_limit_at"].as_str().unwrap().starts_with("2026-11-24"));
    let own = world.ok("/api/v1/analysis/trends?metrics=gpu_clock_mhz&limit_at=7").await;
    assert_eq!(own["total"], 0);
}

#[tokio::test]
async fn what_is_unusual_beside_itself_and_its_peers_is_an_anomaly() {
    let world = judging().await;
    ten_days(&world).await;
    let list = world.ok("/api/v1/analysis/anomalies").await;
    assert_eq!(list["total"], 1, "{list}");
    assert_eq!(world.ok("/api/v1/analysis/anomalies?gpus=GPU-3").await["anomalies"], list["anomalies"]);
    assert_eq!(world.ok("/api/v1/analysis/anomalies?gpus=GPU-4").await["total"], 0);
    let one = &list["anomalies"][0];
    assert_eq!((&one["gpu"], &one["value"]), (&json!("GPU-3"), &json!(95.0)));
    assert_eq!((&one["own"]["count"], &one["peers"]["count"]), (&json!(7), &json!(4)));
    assert!(one["score"].as_f64().unwrap() > 8.0, "{one}");
    let sentence = one["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("temperature_c is 95 °C: 25 °C above its own 70 °C in this hour of 7 days"),
        "{sentence}"
    );
    assert!(sentence.contains("the 70 °C under like load, the median of 4 other GPUs"), "{sentence}");
    assert_eq!((&list["note"], &list["too_young"]), (&Value::Null, &json!(0)));
    let before = world.ok("/api/v1/analysis/anomalies?metrics=temperature_c&end=2026-11-20T14:00:00Z").await;
    assert_eq!(before["total"], 0, "{before}");
    for query in ["metrics=cpu_pct", "days=2", "score=-1"] {
        let answer = world.get(&format!("/api/v1/analysis/anomalies?{query}")).await;
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("bad_parameter")), "{query}");
    }
}

/// Twelve busy and twelve idle GPUs, a row each ten minutes for so many days; values by number, minutes ago and day.
async fn a_fleet_of_two_loads(world: &World, days: i64, temperature: fn(i32, i64) -> f64) {
    let mut all = Vec::new();
    for n in 0..24 {
        let gpu = gpu(&format!("GPU-{n:02}"), &format!("n{}", n / 8), n % 8, H100);
        for minute in (5..days * 1_440 + 60).step_by(10) {
            let warm = temperature(n, minute) + f64::from(n % 5);
            let (busy, watts) = if n < 12 { (95.0, 600.0 + f64::from(n % 5)) } else { (0.0, 70.0) };
            all.push((
                gpu.clone(),
                60 * minute,
                [("temperature_c", warm), ("utilization_pct", busy), ("power_w", watts)],
            ));
        }
    }
    let all: Vec<Row<'_>> =
        all.iter().map(|(gpu, ago, values)| (gpu.clone(), *ago, values.as_slice())).collect();
    world.append(rows(&all)).await;
}

#[tokio::test]
async fn a_gpu_far_above_its_own_days_comes_first_though_its_value_is_common_in_the_fleet() {
    // An idle GPU gets as warm as the busy ones: among its model that is nothing special.
    let warm = |n: i32, minute: i64| match n {
        0..12 => 65.0,
        17 if minute < 60 => 65.0,
        _ => 35.0,
    };
    let world = judging().await;
    a_fleet_of_two_loads(&world, 3, warm).await;
    let list = world.ok("/api/v1/analysis/anomalies").await;
    assert_eq!((&list["total"], &list["anomalies"][0]["gpu"]), (&json!(1), &json!("GPU-17")), "{list}");
    let sentence = list["anomalies"][0]["sentence"].as_str().unwrap();
    assert!(sentence.contains("30 °C above its own 37 °C in this hour of 3 days"), "{sentence}");
    assert!(sentence.contains("under like load, the median of 11 other GPUs"), "{sentence}");
}

#[tokio::test]
async fn a_young_history_says_so_instead_of_listing_jobs() {
    let world = judging().await;
    a_job_with_a_straggler(&world).await;
    let list = world.ok("/api/v1/analysis/anomalies?score=0").await;
    assert_eq!((&list["anomalies"], &list["too_young"]), (&json!([]), &json!(8)));
    assert_eq!(
        list["note"],
        "the history is too young: its first row is of 2026-11-20T15:45:30Z, and an hour is needed"
    );
    // Beside old GPUs a new one that is asked about says so, too.
    let old = crate::world::gpu("GPU-old", "n9", 0, crate::analysis::H100);
    world.append(crate::world::rows(&[(old, 7_200, &[("temperature_c", 40.0)])])).await;
    let whole = world.ok("/api/v1/analysis/anomalies?score=0").await;
    assert_eq!((&whole["note"], &whole["too_young"]), (&json!(null), &json!(8)));
    let of_old = world.ok("/api/v1/analysis/anomalies?score=0&gpus=GPU-old").await;
    assert_eq!((&of_old["note"], &of_old["too_young"]), (&json!(null), &json!(0)));
    let of_new = world.ok("/api/v1/analysis/anomalies?score=0&gpus=GPU-0").await;
    assert_eq!((&of_new["note"], &of_new["too_young"]), (&list["note"], &json!(1)));
}
