//! `api/queue-openapi.yaml` is the document of the handlers, and says what the queue does.

use std::collections::BTreeSet;
use std::path::Path;

use gpuvitals_queue::server::http::HttpLimits;
use gpuvitals_queue::{Consumer as _, ConsumerOptions, Nack, NackKind, QueueConfig};
use serde_json::{Value, json};

use super::client::{Answer, JSON, ask, get, post};
use super::world::{World, array, message};

const HEAD: &str = "# Generated from crates/queue by its test: `UPDATE=1 cargo test -p gpuvitals-queue --test served http::document`.\n";

fn document() -> Value {
    serde_json::to_value(gpuvitals_queue::server::document()).unwrap()
}

#[test]
fn the_kept_document_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../api/queue-openapi.yaml");
    let generated = HEAD.to_owned() + &gpuvitals_queue::server::document().to_yaml().unwrap();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == generated, "{} is out of date; refresh it with `make generate`", path.display());
}

/// The plain schemas that a schema stands for: a value fits one of them.
fn plain(document: &Value, schema: &Value) -> Vec<Value> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = document.pointer(name.trim_start_matches('#')).unwrap_or_else(|| panic!("no {name}"));
        return plain(document, target);
    }
    if let Some(one_of) = schema["oneOf"].as_array() {
        return one_of.iter().flat_map(|one| plain(document, one)).collect();
    }
    let Some(all_of) = schema["allOf"].as_array() else { return vec![schema.clone()] };
    all_of.iter().fold(vec![json!({"type": "object", "properties": {}, "required": []})], |wholes, part| {
        let parts = plain(document, part);
        wholes.iter().flat_map(|whole| parts.iter().map(|part| joined(whole, part))).collect()
    })
}

/// An object with the fields of both.
fn joined(whole: &Value, part: &Value) -> Value {
    let mut both = whole.clone();
    both["properties"].as_object_mut().unwrap().extend(part["properties"].as_object().unwrap().clone());
    both["required"]
        .as_array_mut()
        .unwrap()
        .extend(part["required"].as_array().into_iter().flatten().cloned());
    both
}

/// What is wrong with `value` by `schema`: everything there is must be described, everything required be there.
fn check(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let plain = plain(document, schema);
    plain.iter().map(|plain| check_plain(document, plain, value, at)).min_by_key(Vec::len).unwrap()
}

fn check_plain(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let fits = match schema["type"].as_str() {
        // Anything may stand there.
        None => schema == &json!({}),
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some(other) => panic!("type {other}"),
    };
    let len = value.as_array().map(Vec::len);
    let is_allowed = |allowed: &Vec<Value>| allowed.contains(value);
    if !fits
        || schema["enum"].as_array().is_some_and(|allowed| !is_allowed(allowed))
        || len.zip(schema["maxItems"].as_u64()).is_some_and(|(len, max)| len as u64 > max)
    {
        wrong.push(format!("{at}: {value} is not {schema}"));
    }
    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
        wrong.extend(check(document, &schema["items"], item, &format!("{at}[{n}]")));
    }
    for (name, of) in value.as_object().into_iter().flatten().filter(|_| fits && schema != &json!({})) {
        let (known, others) = (&schema["properties"][name], &schema["additionalProperties"]);
        match (known.is_null(), others.is_null()) {
            (false, _) => wrong.extend(check(document, known, of, &format!("{at}.{name}"))),
            (true, false) => wrong.extend(check(document, others, of, &format!("{at}.{name}"))),
            (true, true) => wrong.push(format!("{at}.{name} is not described")),
        }
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        if value.get(name.as_str().unwrap()).is_none() {
            wrong.push(format!("{at}.{name} is missing"));
        }
    }
    wrong
}

/// That an answer is one that the document has for this path, method and status.
fn fits(document: &Value, method: &str, path: &str, answer: &Answer) {
    let described = &document["paths"][path][method]["responses"][answer.status.to_string()];
    assert!(!described.is_null(), "{method} {path} may not answer {}", answer.status);
    let schema = &described["content"]["application/json"]["schema"];
    if schema.is_null() {
        return;
    }
    let wrong = check(document, schema, &answer.json(), "");
    assert!(wrong.is_empty(), "{method} {path}: {wrong:#?}");
}

#[tokio::test]
async fn the_document_has_the_paths_that_there_are() {
    let world = World::new();
    let document = document();
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            let asked = path.replace(['{', '}'], "");
            let answer = ask(world.at, &method, &asked, &[], b"").await;
            let text = &answer.text;
            assert!(!text.contains("\"not_found\"") && answer.status != 405, "{method} {path}: {text}");
            described.insert(format!("{method} {path}"));
        }
    }
    assert!(described.remove("GET /"));
    let index = get(world.at, "/").await;
    fits(&document, "get", "/", &index);
    let listed =
        index.json()["paths"].as_array().unwrap().iter().map(|p| p.as_str().unwrap().to_owned()).collect();
    assert_eq!(described, listed);
}

#[tokio::test]
async fn answers_are_as_described() {
    let config = QueueConfig { max_messages: 600, ..QueueConfig::default() };
    let world = World::with(config, HttpLimits::default());
    let document = document();
    let publish = "/publish/{topic}";
    let mixed = format!("[{},3,{}]", message(0), message(1).replace("61", "-900"));
    let answer = post(world.at, "/publish/t", &[JSON], mixed.as_bytes()).await;
    assert_eq!(answer.json()["left_out_count"], 1, "{answer:?}");
    fits(&document, "post", publish, &answer);
    for (path, body, status) in [("t", array(900), 429), ("t", "[3]".to_owned(), 400), ("a b", array(1), 400)]
    {
        let answer =
            post(world.at, &format!("/publish/{}", path.replace(' ', "%20")), &[JSON], body.as_bytes()).await;
        assert_eq!(answer.status, status);
        fits(&document, "post", publish, &answer);
    }
    let mut consumer = world.queue.subscribe("t", "g", &ConsumerOptions::default()).await.unwrap();
    for delivery in consumer.receive().await.unwrap() {
        let nack = Nack { id: delivery.id, kind: NackKind::Reject, reason: "bad".into() };
        consumer.nack(&[nack]).await.unwrap();
    }
    for (path, asked) in [
        ("/health", "/health"),
        ("/stats", "/stats"),
        ("/stats/{topic}", "/stats/t"),
        ("/stats/{topic}", "/stats/x"),
        ("/topics", "/topics"),
        ("/topics/{topic}/groups", "/topics/t/groups"),
        ("/topics/{topic}/dead", "/topics/t/dead?limit=1"),
        ("/topics/{topic}/dead", "/topics/t/dead?limit=0"),
    ] {
        fits(&document, "get", path, &get(world.at, asked).await);
    }
    assert!(!get(world.at, "/topics/t/dead").await.json()["dead"].as_array().unwrap().is_empty());
    let replay = json!({"oldest": 1}).to_string();
    let answer = post(world.at, "/topics/t/dead/replay", &[], replay.as_bytes()).await;
    fits(&document, "post", "/topics/{topic}/dead/replay", &answer);
    for _ in 0..2 {
        let answer = ask(world.at, "DELETE", "/topics/t/groups/g", &[], b"").await;
        fits(&document, "delete", "/topics/{topic}/groups/{group}", &answer);
    }
    fits(
        &document,
        "delete",
        "/topics/{topic}/dead",
        &ask(world.at, "DELETE", "/topics/t/dead", &[], b"").await,
    );
}
