//! Values by step.

use serde_json::{Value, json};

use crate::client::request;
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
            "name": "sim-node-01 / GPU 0", "hostname": "sim-node-01", "labels": {"gpu": "GPU-a"}, "simulated": true,
            "values": [90.5, 97.0, null]
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
    check("metrics=power_w&hosts=sim-node-01&gpus=GPU-d", &[]).await;
    let counts = series(&world, "metrics=power_w&group_by=all&aggregate=count").await;
    assert_eq!(counts[0]["values"], json!([1.0, 3.0, 1.0]));
    assert_eq!(
        (&counts[0]["unit"], &counts[0]["group"], &counts[0]["gpu"]),
        (&json!(""), &json!("all"), &Value::Null)
    );
    let node = series(&world, "metrics=power_w&group_by=node").await;
    assert_eq!((&node[0]["group"], &node[0]["hostname"]), (&json!("sim-node-01"), &json!("sim-node-01")));
    assert_eq!(node[0].get("name"), None, "it is of no GPU");
    let both = series(&world, "metrics=power_w,utilization_pct&gpus=GPU-a,GPU-b&aggregate=min,max").await;
    assert_eq!(both.len(), 8);
}

/// Groups of the series, in order.
fn groups(series: &[Value]) -> Vec<&str> {
    series.iter().map(|series| series["group"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn rows_are_selected_by_their_identity() {
    let world = World::new().await;
    for (tests, expected) in [
        ("pod=train-7", &["GPU-a"][..]),
        ("pod=", &["GPU-b", "GPU-c"]),
        ("pod!=,other", &["GPU-a"]),
        ("vendor=nvidia;pod!=train-7", &["GPU-b", "GPU-c"]),
        ("uuid=~GPU-[ab]; node=sim-node-01,sim-node-02 ;", &["GPU-a", "GPU-b"]),
        ("uuid!~.*[ab]", &["GPU-c"]),
        ("cluster=nowhere", &[]),
    ] {
        let found = series(&world, &format!("metrics=power_w&where={}", escaped(tests))).await;
        assert_eq!(groups(&found), expected, "{tests}");
    }
}

/// As browsers write it.
fn escaped(text: &str) -> String {
    text.replace(' ', "%20").replace('[', "%5B").replace(']', "%5D")
}

#[tokio::test]
async fn series_of_several_columns_and_the_best_of_them() {
    let world = World::new().await;
    let found = series(&world, "metrics=power_w&group_by=namespace,node,pod&aggregate=max").await;
    let labels: Vec<&Value> = found.iter().map(|series| &series["labels"]).collect();
    assert_eq!(
        labels,
        [
            &json!({"namespace": null, "node": "sim-node-01", "pod": null}),
            &json!({"namespace": "research", "node": "sim-node-01", "pod": "train-7"}),
        ]
    );
    assert_eq!(groups(&found), [", sim-node-01, ", "research, sim-node-01, train-7"]);
    assert_eq!((&found[1]["hostname"], &found[1]["simulated"]), (&json!("sim-node-01"), &json!(true)));
    // Means of GPU-a, b and c: 603.5, 70 and 300.
    for (best, expected) in [
        ("top=2", &["GPU-a", "GPU-c"][..]),
        ("bottom=2", &["GPU-b", "GPU-c"]),
        ("top=9", &["GPU-a", "GPU-c", "GPU-b"]),
    ] {
        assert_eq!(groups(&series(&world, &format!("metrics=power_w&{best}")).await), expected, "{best}");
    }
    let two = series(&world, "metrics=power_w&aggregate=min,max&top=1").await;
    let found: Vec<(&Value, &Value)> = two.iter().map(|one| (&one["aggregate"], &one["group"])).collect();
    assert_eq!(found, [(&json!("min"), &json!("GPU-a")), (&json!("max"), &json!("GPU-a"))]);
}

#[tokio::test]
async fn a_table_has_no_digits_that_nobody_has_read() {
    let world = World::new().await;
    for aggregate in ["mean", "max", "p99", "last"] {
        let path = format!("/api/v1/query?{RANGE}&metrics=power_w&gpus=GPU-a&aggregate={aggregate}");
        let csv = request(world.address, "GET", &path, "accept: text/csv\r\n").await;
        let values: Vec<&str> =
            csv.text().lines().skip(1).filter_map(|line| line.rsplit(',').next()).collect();
        assert_eq!(values, ["600.1", "612.4", "598.1"], "{aggregate}");
    }
}

#[tokio::test]
async fn counters_are_asked_for_by_their_growth() {
    let world = World::new().await;
    let gpu = crate::world::gpu("GPU-e", "sim-node-03", 0, "AMD Instinct MI300X");
    let energy = [(20, 100.0), (15, 160.0), (10, 250.0), (5, 30.0), (0, 50.0)];
    for (seconds_ago, millijoules) in energy {
        let row: crate::world::Row<'_> = (gpu.clone(), seconds_ago, &[("energy_mj", millijoules)]);
        world.append(crate::world::rows(&[row])).await;
    }
    // From 100 to 160; to 250, and after the counter began anew to 30; to 50.
    for (aggregate, unit, expected) in [
        ("increase", "mJ", json!([60.0, 120.0, 20.0])),
        ("rate", "W", json!([0.012, 0.012, 0.004])),
        ("delta", "mJ", json!([60.0, -130.0, 20.0])),
        ("p50", "mJ", json!([100.0, 30.0, 50.0])),
    ] {
        let found = series(&world, &format!("metrics=energy_mj&aggregate={aggregate}")).await;
        assert_eq!((&found[0]["unit"], &found[0]["values"]), (&json!(unit), &expected), "{aggregate}");
        let path = format!("/api/v1/query?{RANGE}&metrics=energy_mj&aggregate={aggregate}");
        let csv = request(world.address, "GET", &path, "accept: text/csv\r\n").await;
        let last = csv.text().lines().nth(1).unwrap().rsplit(',').next().unwrap().parse::<f64>().unwrap();
        assert_eq!(json!(last), expected[0], "{aggregate}: {}", csv.text());
    }
}

#[tokio::test]
async fn the_rate_of_a_counter_that_is_read_rarely_is_that_of_the_time_between() {
    let world = World::new().await;
    let gpu = crate::world::gpu("GPU-e", "sim-node-03", 0, "AMD Instinct MI300X");
    // 100 W, read every 30 s but for a gap.
    for seconds_ago in [600, 570, 540, 90, 60, 30, 0] {
        let joules = f64::from(600 - seconds_ago) * 100.0;
        let row: crate::world::Row<'_> =
            (gpu.clone(), i64::from(seconds_ago), &[("energy_mj", 1_000.0 * joules)]);
        world.append(crate::world::rows(&[row])).await;
    }
    for step in ["", "&step=10s", "&step=30s", "&step=1m", "&step=5m"] {
        let path = format!("/api/v1/query?metrics=energy_mj&aggregate=rate,increase{step}");
        let answer = world.ok(&path).await;
        let found = answer["series"].as_array().unwrap();
        let values: Vec<Option<f64>> = serde_json::from_value(found[0]["values"].clone()).unwrap();
        let there: Vec<f64> = values.iter().copied().flatten().collect();
        assert!(
            !there.is_empty() && there.iter().all(|watts| (watts - 100.0).abs() < 1e-9),
            "{step}: {there:?}"
        );
        let grown: Vec<Option<f64>> = serde_json::from_value(found[1]["values"].clone()).unwrap();
        assert!((grown.iter().flatten().sum::<f64>() - 60_000_000.0).abs() < 1e-3, "{step}: {grown:?}");
    }
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

#[tokio::test]
async fn tables_come_as_csv_or_arrow_and_pages_name_the_next() {
    let world = World::new().await;
    let csv = async |path: &str| request(world.address, "GET", path, "accept: text/csv\r\n").await;
    let rows = csv("/api/v1/gpus/GPU-a/telemetry?limit=2&metrics=power_w,utilization_pct").await;
    assert_eq!((rows.status, rows.header("content-type")), (200, Some("text/csv")));
    let lines: Vec<&str> = rows.text().lines().collect();
    let next = rows.header("x-next").unwrap();
    assert_eq!(
        lines[3..],
        [format!("# 1 row is left out: after={next} asks for the next.")],
        "{}",
        rows.text()
    );
    let head: Vec<&str> = lines[0].split(',').collect();
    let column = |line: &str, name: &str| {
        let at = head.iter().position(|column| *column == name).unwrap();
        line.split(',').nth(at).unwrap().to_owned()
    };
    assert_eq!(
        (column(lines[1], "timestamp"), column(lines[1], "power_w")),
        ("2026-11-20T16:00:00Z".into(), "598.1".into())
    );
    assert_eq!(
        (column(lines[1], "utilization_pct"), column(lines[2], "utilization_pct")),
        (String::new(), "97".into())
    );
    let last = csv(&format!("/api/v1/gpus/GPU-a/telemetry?limit=2&after={next}")).await;
    assert_eq!((last.text().lines().count(), last.header("x-next")), (2, None));
    let values = csv(&format!("/api/v1/query?{RANGE}&metrics=power_w&gpus=GPU-a&aggregate=max,count")).await;
    let lines: Vec<&str> = values.text().lines().collect();
    assert_eq!(
        lines[..2],
        ["timestamp,metric,aggregate,gpu,value", "2026-11-20T15:59:40Z,power_w,max,GPU-a,600.1"]
    );
    assert_eq!(lines.len(), 1 + 6);
    let gpus =
        csv("/api/v1/gpus?sort=id&limit=2&metrics=power_w,room_c,fan_speed_pct&labels=namespace").await;
    let lines: Vec<&str> = gpus.text().lines().collect();
    assert_eq!(
        lines[..2],
        [
            "id,timestamp,namespace,power_w,room_c,fan_speed_pct",
            "GPU-a,2026-11-20T16:00:00Z,research,598.1,21.5,"
        ]
    );
    assert_eq!(lines[3..], ["# 3 rows are left out: offset=2 asks for the next."]);
    assert_eq!(gpus.header("x-next"), Some("2"));
    assert_eq!(csv("/api/v1/gpus?sort=id&offset=2").await.header("x-next"), None);
    let plain = csv("/api/v1/gpus?sort=id&limit=1").await;
    assert_eq!(
        plain.text().lines().collect::<Vec<_>>(),
        [
            "id,timestamp,hostname,index,model,vendor,driver_version,memory_mb,state,judgement",
            "GPU-a,2026-11-20T16:00:00Z,sim-node-01,0,NVIDIA H100 80GB HBM3,nvidia,570.86.15,81559,active,active",
            "# 4 rows are left out: offset=1 asks for the next."
        ]
    );
    let empty = csv("/api/v1/telemetry?start_time=2020-01-01T00:00:00Z&end_time=2020-01-02T00:00:00Z").await;
    assert_eq!((empty.status, empty.text()), (200, "\r\n"));
}

#[tokio::test]
async fn tables_come_as_arrow_whose_schema_says_what_they_lack() {
    let world = World::new().await;
    let arrow = "accept: application/vnd.apache.arrow.stream\r\n";
    for (path, rows) in [
        (format!("/api/v1/query?{RANGE}&metrics=power_w"), 5),
        ("/api/v1/telemetry".to_owned(), 7),
        ("/api/v1/gpus?include=metrics".to_owned(), 5),
    ] {
        let answer = request(world.address, "GET", &path, arrow).await;
        assert_eq!(answer.header("content-type"), Some("application/vnd.apache.arrow.stream"));
        let reader = arrow_ipc::reader::StreamReader::try_new(answer.body.as_slice(), None).unwrap();
        assert_eq!(reader.schema().metadata.get("lacks"), None, "{path}");
        let found: usize = reader.map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(found, rows, "{path}");
    }
    let cut = request(world.address, "GET", "/api/v1/gpus?limit=2", arrow).await;
    let reader = arrow_ipc::reader::StreamReader::try_new(cut.body.as_slice(), None).unwrap();
    let schema = reader.schema();
    let said = |key: &str| schema.metadata.get(key).map(String::as_str);
    assert_eq!(said("lacks"), Some("3 rows are left out: offset=2 asks for the next."));
    assert_eq!((said("next"), said("partial")), (Some("2"), None));
}
