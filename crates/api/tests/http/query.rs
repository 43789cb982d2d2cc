//! Values by step.

use serde_json::{Value, json};

use crate::world::{NOW, World};

const RANGE: &str = "start=2026-11-20T15:59:40Z&end=2026-11-20T16:00:09Z&step=10s";
const START_MS: i64 = 1_795_190_380_000;

async fn series(world: &World, query: &str) -> Vec<Value> {
    let answer = world.ok(&format!("/api/v1/query?{RANGE}&{query}")).await;
    assert_eq!(answer["times"], json!([START_MS, START_MS + 10_000, START_MS + 20_000]), "{query}");
    assert_eq!(answer["step_ms"], 10_000);
    assert_eq!(answer.get("partial"), None);
    answer["series"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_series_has_everything_a_chart_needs() {
    let world = World::new().await;
    let found = series(&world, "metrics=utilization_pct&gpus=GPU-a").await;
    assert_eq!(
        found,
        [json!({
            "metric": "utilization_pct", "unit": "%", "aggregate": "mean", "group": "GPU-a", "gpu": "GPU-a",
            "hostname": "sim-node-01", "simulated": true, "values": [90.5, 97.0, null]
        })]
    );
}

#[tokio::test]
async fn aggregates_and_groups() {
    let world = World::new().await;
    let values = |series: &[Value]| series.iter().map(|series| series["values"].clone()).collect::<Vec<_>>();
    let check = async |query: &str, expected: &[Value]| {
        assert_eq!(values(&series(&world, query).await), expected, "{query}");
    };
    let power = json!([600.1, 612.4, 598.1]);
    for aggregate in ["mean", "min", "max", "p99", "last"] {
        check(&format!("metrics=power_w&gpus=GPU-a&aggregate={aggregate}"), std::slice::from_ref(&power))
            .await;
    }
    check("metrics=power_w&group_by=all&aggregate=min", &[json!([600.1, 70.0, 598.1])]).await;
    check("metrics=power_w&group_by=node&aggregate=max", &[json!([600.1, 612.4, 598.1])]).await;
    check("metrics=power_w&group_by=model&hosts=sim-node-01&aggregate=min", &[json!([600.1, 70.0, 598.1])])
        .await;
    check("metrics=power_w&hosts=sim-node-02", &[]).await;
    check("metrics=power_w&hosts=nowhere", &[]).await;
    check("metrics=power_w&hosts=sim-node-01&gpus=GPU-d", &[]).await;
    let counts = series(&world, "metrics=power_w&group_by=all&aggregate=count").await;
    assert_eq!(counts[0]["values"], json!([1.0, 3.0, 1.0]));
    assert_eq!(
        (&counts[0]["unit"], &counts[0]["group"], &counts[0]["gpu"]),
        (&json!(""), &json!("all"), &Value::Null)
    );
    let node = series(&world, "metrics=power_w&group_by=node").await;
    assert_eq!((&node[0]["group"], &node[0]["hostname"]), (&json!("sim-node-01"), &json!("sim-node-01")));
    let both = series(&world, "metrics=power_w,utilization_pct&gpus=GPU-a,GPU-b&aggregate=min,max").await;
    assert_eq!(both.len(), 8);
}

#[tokio::test]
async fn without_a_range_the_last_hour_in_some_hundred_steps() {
    let world = World::new().await;
    let answer = world.ok("/api/v1/query?metrics=power_w").await;
    let times = answer["times"].as_array().unwrap();
    assert_eq!(answer["step_ms"], 15_000);
    assert_eq!(times.len(), 241);
    assert_eq!(times[240], json!(gpuvitals_core::time::parse(NOW).unwrap() / 1_000_000));
}
