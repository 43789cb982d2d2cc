//! Prometheus' query API: its parameters, shapes and errors. What PromQL means is tested in its own crate.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::client::request;
use crate::world::World;

const PROM: &str = "/api/v1/prom/api/v1";
/// The time of the world, seconds.
const NOW: i64 = 1_795_190_400;

async fn data(world: &World, path: &str) -> Value {
    let answer = world.ok(&format!("{PROM}/{path}")).await;
    assert_eq!((&answer["status"], answer.get("warnings")), (&json!("success"), None), "{path}: {answer}");
    answer["data"].clone()
}

fn labels(uuid: &str, gpu: &str) -> Value {
    json!({
        "__name__": "gpu_power_watts", "gpu": gpu, "uuid": uuid, "vendor": "nvidia", "node": "sim-node-01",
        "instance": "sim-node-01"
    })
}

#[tokio::test]
async fn a_query_of_an_instant_and_of_steps_has_prometheus_shape() {
    let world = World::new().await;
    let power = "gpu_power_watts%7Bvendor%3D%22nvidia%22,gpu!%3D%222%22%7D";
    assert_eq!(
        data(&world, &format!("query?query={power}&time={NOW}")).await,
        json!({"resultType": "vector", "result": [
            {"metric": labels("GPU-a", "0"), "value": [NOW, "598.1"]},
            {"metric": labels("GPU-b", "10"), "value": [NOW, "70"]},
        ]})
    );
    // Without a time it is now.
    assert_eq!(
        data(&world, "query?query=sum(gpu_power_watts)").await["result"][0]["value"],
        json!([NOW, "968.1"])
    );
    assert_eq!(
        data(&world, &format!("query?query=1%2B1&time={NOW}.25")).await,
        json!({"resultType": "scalar", "result": [1_795_190_400.25, "2"]})
    );
    let text = data(&world, &format!("query?query=%22a%22&time={NOW}")).await;
    assert_eq!(text, json!({"resultType": "string", "result": [NOW, "a"]}));
    for (number, spelling) in [
        ("1e-6", "0.000001"),
        ("1.5e-7", "1.5e-07"),
        ("-1e-300", "-1e-300"),
        ("123456789e12", "123456789000000000000"),
        ("1e21", "1e+21"),
        ("0", "0"),
    ] {
        let found = data(&world, &format!("query?query={number}&time={NOW}")).await;
        assert_eq!(found["result"][1], json!(spelling), "{number}");
    }
    let all = data(
        &world,
        &format!("query?query=gpu_power_watts%7Bgpu%3D%220%22,vendor%3D%22nvidia%22%7D%5B1m%5D&time={NOW}"),
    )
    .await;
    assert_eq!(
        all,
        json!({"resultType": "matrix", "result": [{"metric": labels("GPU-a", "0"), "values": [
            [NOW - 20, "600.1"], [NOW - 10, "612.4"], [NOW, "598.1"]
        ]}]})
    );
    let (start, end) = (NOW - 20, "2026-11-20T16:00:00Z");
    let steps =
        format!("query_range?query=max(gpu_power_watts%7Bgpu%3D%220%22%7D)&start={start}&end={end}&step=10s");
    assert_eq!(
        data(&world, &steps).await,
        json!({"resultType": "matrix", "result": [{"metric": {}, "values": [
            [NOW - 20, "600.1"], [NOW - 10, "612.4"], [NOW, "598.1"]
        ]}]})
    );
    let none = data(&world, &format!("query_range?query=gpu_nothing&start={start}&end={end}&step=1")).await;
    assert_eq!(none, json!({"resultType": "matrix", "result": []}));
    let inf = data(&world, &format!("query?query=1/0&time={NOW}")).await;
    assert_eq!(inf["result"][1], "+Inf");
}

#[tokio::test]
async fn a_form_says_the_same_as_a_query_string() {
    let world = World::new().await;
    let form = "query=count%28gpu_power_watts%29&time=2026-11-20T16%3A00%3A00Z";
    let body = format!(
        "content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{form}",
        form.len()
    );
    // What follows the head is the body: the client ends the head by itself.
    let answer = request(world.address, "POST", &format!("{PROM}/query"), &body).await;
    assert_eq!(
        (answer.status, answer.json()["data"]["result"][0]["value"].clone()),
        (200, json!([NOW, "3"]))
    );
}

#[tokio::test]
async fn series_labels_values_and_families_are_listed() {
    let world = World::new().await;
    let found =
        data(&world, "series?match[]=gpu_power_watts%7Bvendor%3D%22amd%22%7D&match[]=gpu_nothing").await;
    assert_eq!(found.as_array().unwrap().len(), 1);
    assert_eq!((&found[0]["uuid"], &found[0]["__name__"]), (&json!("GPU-d"), &json!("gpu_power_watts")));
    let names = data(&world, "labels").await;
    assert!(
        ["__name__", "node", "pod", "sensor"]
            .iter()
            .all(|name| names.as_array().unwrap().contains(&json!(name)))
    );
    assert_eq!(data(&world, "label/node/values").await, json!(["sim-node-01", "sim-node-02"]));
    assert_eq!(data(&world, "label/pod/values?match[]=gpu_attribution_info").await, json!(["train-7"]));
    assert_eq!(
        data(&world, &format!("label/node/values?start={}&end={NOW}", NOW - 60)).await,
        json!(["sim-node-01"])
    );
    let family = data(&world, "metadata?metric=gpu_power_watts").await;
    assert_eq!(family["gpu_power_watts"][0]["type"], "gauge");
    assert!(data(&world, "metadata").await.as_object().unwrap().len() > 100);
    assert_eq!(data(&world, "metadata?limit=3").await.as_object().unwrap().len(), 3);
}

#[tokio::test]
async fn a_subquery_alone_is_a_matrix_and_the_end_is_the_one_asked_for() {
    let world = World::new().await;
    let power = "max(gpu_power_watts%7Bgpu%3D%220%22%7D)";
    let found = data(&world, &format!("query?query={power}%5B20s:10s%5D&time={}", NOW + 3)).await;
    assert_eq!(
        found,
        json!({"resultType": "matrix", "result": [{"metric": {}, "values": [
            [NOW - 10, "612.4"], [NOW, "598.1"]
        ]}]})
    );
    // The last step is 12 s before the end.
    let power = "max(gpu_power_watts%7Bgpu%3D%220%22%7D%20@%20end())";
    let steps = format!("query_range?query={power}&start={}&end={NOW}&step=16s", NOW - 28);
    assert_eq!(
        data(&world, &steps).await["result"][0]["values"],
        json!([[NOW - 28, "598.1"], [NOW - 12, "598.1"]])
    );
}

#[tokio::test]
async fn a_limit_cuts_an_answer_and_a_warning_says_so() {
    let world = World::new().await;
    let matcher = "match[]=gpu_power_watts";
    for (path, most) in [
        (format!("query?query=gpu_power_watts&time={NOW}"), 3),
        (format!("query?query=gpu_power_watts%5B1m%5D&time={NOW}"), 3),
        (format!("query_range?query=gpu_power_watts&start={NOW}&end={NOW}&step=1"), 3),
        (format!("series?{matcher}"), 3),
        (format!("labels?{matcher}"), 4),
        ("label/__name__/values?".to_owned(), 4),
    ] {
        let entries = |answer: &Value| {
            let data = &answer["data"];
            data.get("result").unwrap_or(data).as_array().unwrap().len()
        };
        let whole = world.ok(&format!("{PROM}/{path}&limit=0")).await;
        assert!(entries(&whole) >= most && whole.get("warnings").is_none(), "{path}: {whole}");
        let cut = world.ok(&format!("{PROM}/{path}&limit=2")).await;
        assert_eq!(entries(&cut), 2, "{path}: {cut}");
        assert_eq!(cut["warnings"], json!(["results truncated due to limit"]), "{path}");
    }
}

#[tokio::test]
async fn what_a_history_has_not_is_well_formed_and_empty() {
    let world = World::new().await;
    assert_eq!(data(&world, "rules?type=alert").await, json!({ "groups": [] }));
    assert_eq!(data(&world, "alerts").await, json!({ "alerts": [] }));
    assert_eq!(data(&world, &format!("query_exemplars?query=gpu_info&start=0&end={NOW}")).await, json!([]));
    let build = data(&world, "status/buildinfo").await;
    assert!(build["version"].as_str().unwrap().starts_with("3."), "{build}");
    for name in ["revision", "branch", "buildUser", "buildDate", "goVersion"] {
        assert!(build[name].is_string(), "{build}");
    }
    assert_eq!(
        data(&world, "format_query?query=sum(gpu_power_watts)by(node)").await,
        "sum by (node) (gpu_power_watts)"
    );
    let form = "content-type: application/x-www-form-urlencoded\r\ncontent-length: 11\r\n\r\nquery=1%2B1";
    let answer = request(world.address, "POST", &format!("{PROM}/format_query"), form).await;
    assert_eq!((answer.status, &answer.json()["data"]), (200, &json!("1 + 1")));
}

#[tokio::test]
async fn what_prometheus_takes_is_taken() {
    let world = World::new().await;
    for path in [
        "query_range?query=1&start=0&end=11000&step=1",
        "query_range?query=1&start=0&end=7000&step=1h30m",
        "series?match[]=gpu_power_watts&start=2&end=1",
        "labels?start=2&end=1",
        "labels?match[]=gpu_power_watts&start=2&end=1",
        "label/node/values?start=2&end=1",
        "rules?type=alert",
        "rules",
    ] {
        let answer = world.get(&format!("{PROM}/{path}")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let is_list = answer.json()["data"].as_array().map(Vec::len);
        assert!(!path.contains("start=2") || is_list == Some(0), "{path}: {}", answer.text());
    }
}

#[tokio::test]
async fn errors_are_prometheus_and_say_what_to_change() {
    let world = World::new().await;
    for (path, status, kind, words) in [
        ("query", 400, "bad_data", "\"query\": it is missing"),
        ("query?query=sum(", 400, "bad_data", "parenthesis"),
        ("query?query=gpu_up", 400, "bad_data", "gpu_up is made by an exporter; a history does not keep it"),
        ("query?query=1&time=soon", 400, "bad_data", "valid timestamp"),
        ("query_range?query=1&start=0&end=1", 400, "bad_data", "\"step\": it is missing"),
        ("query_range?query=1&start=0&end=1&step=0", 400, "bad_data", "positive integer"),
        ("query_range?query=1&start=2&end=1&step=1", 400, "bad_data", "before start"),
        ("query_range?query=1&start=0&end=100000&step=1", 400, "bad_data", "maximum resolution of 11000"),
        ("query_range?query=1&start=0&end=11001&step=1", 400, "bad_data", "maximum resolution of 11000"),
        ("query_range?query=1&start=0&end=1&step=1h30", 400, "bad_data", "positive integer"),
        ("rules?type=x", 400, "bad_data", "not supported value \"x\""),
        ("series?match[]=sum(&start=2&end=1", 400, "bad_data", "parenthesis"),
        ("query_range?query=%22a%22%5B5m%5D&start=0&end=10&step=1", 400, "bad_data", ""),
        (
            "query?query=gpu_power_watts*on(node)gpu_power_watts",
            422,
            "execution",
            "many-to-many matching not allowed",
        ),
        ("series", 400, "bad_data", "match[]"),
        ("series?match[]=1", 400, "bad_data", "no selector"),
        // A text or a range of values is none for steps, and a label has a name.
        ("query_range?query=%22a%22&start=0&end=10&step=1", 400, "bad_data", "\"string\" for range query"),
        ("query_range?query=(%22a%22)&start=0&end=0&step=1", 400, "bad_data", "\"string\" for range query"),
        ("query_range?query=gpu_info%5B1m:%5D&start=0&end=0&step=1", 400, "bad_data", "\"range vector\""),
        ("query?query=label_replace(gpu_info,%22a-b%22,%22%22,%22%22,%22%22)", 422, "execution", "\"a-b\""),
        (
            "query?query=label_replace(gpu_info,%22a%22,%22%22,%22%22,%22(%22)",
            422,
            "execution",
            "regular expression",
        ),
        ("query?query=label_join(gpu_info,%22a%22,%22%22,%22a-b%22)", 422, "execution", "\"a-b\""),
        ("query?query=count_values(%22a-b%22,gpu_power_watts)", 422, "execution", "\"a-b\""),
        ("label/a-b/values", 400, "bad_data", "invalid label name"),
        ("query?query=1&limit=-1", 400, "bad_data", "\"limit\""),
        ("labels?limit=x", 400, "bad_data", "\"limit\""),
        ("query?query=1&timeout=1x", 400, "bad_data", "\"timeout\""),
        ("query_range?query=1&start=0&end=0&step=1&timeout=soon", 400, "bad_data", "\"timeout\""),
        ("query?query=topk(0/0,gpu_power_watts)", 422, "execution", "NaN overflows int64"),
        ("query?query=topk(9223372036854775808,gpu_power_watts)", 422, "execution", "overflows int64"),
        ("format_query?query=sum(", 400, "bad_data", "parenthesis"),
        ("query_exemplars?query=1&start=2&end=1", 400, "bad_data", "before start"),
        ("query_exemplars?query=)", 400, "bad_data", ""),
        ("targets", 404, "not_found", "nothing here"),
    ] {
        let answer = world.get(&format!("{PROM}/{path}")).await;
        let said = answer.json();
        assert_eq!(
            (answer.status, &said["status"], &said["errorType"]),
            (status, &json!("error"), &json!(kind)),
            "{path}: {said}"
        );
        assert!(said["error"].as_str().unwrap().contains(words), "{path}: {said}");
    }
    let answer = request(world.address, "DELETE", &format!("{PROM}/query"), "").await;
    assert_eq!((answer.status, answer.json()["status"].clone()), (405, json!("error")));
}

/// What looks like PromQL, and what does not.
fn text() -> impl Strategy<Value = String> {
    let words = [
        "gpu_power_watts",
        "gpu_info",
        "sum",
        "rate",
        "topk",
        "by",
        "on",
        "group_left",
        "(",
        ")",
        "[5m]",
        "[5m:1s]",
        "{",
        "}",
        "node",
        "=",
        "=~",
        "\"n.*\"",
        "\"",
        ",",
        "+",
        "-",
        "/",
        "^",
        "==",
        "bool",
        "offset",
        "@",
        "1e9",
        "0x1F",
        "NaN",
        "Inf",
        "-1",
        "5m",
        "time()",
        "label_replace",
        "quantile_over_time",
        "0.5",
        "unless",
        "\u{e9}",
        "#",
        "\\",
        "'",
        "`",
        "without",
        "start()",
        "1y",
    ];
    let like =
        prop::collection::vec(prop::sample::select(words.to_vec()), 0..14).prop_map(|words| words.join(" "));
    prop_oneof![3 => like, 1 => any::<String>()]
}

#[tokio::test]
async fn no_text_is_a_defect() {
    let world = World::new().await;
    let mut runner = TestRunner::deterministic();
    for _ in 0..400 {
        let text = text().new_tree(&mut runner).unwrap().current();
        let text: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
        for path in [
            format!("query?time={NOW}&query={text}"),
            format!("query_range?start={}&end={NOW}&step=7&query={text}", NOW - 60),
            format!("series?match[]={text}"),
            format!("format_query?query={text}"),
        ] {
            let answer = world.get(&format!("{PROM}/{path}")).await;
            assert!(answer.status < 500, "{path}: {}", answer.text());
            assert!(answer.json()["status"].is_string(), "{path}");
        }
    }
}
