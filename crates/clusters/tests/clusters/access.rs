//! Tokens, rights, certificates, and clusters that do not answer.

use std::time::Duration;

use gpuvitals_clusters::{Cluster, ClusterList, ClusterSettings, ClusterToken, ConfigError, Kubernetes};
use gpuvitals_core::clusters::{ClusterState, NodeState};
use gpuvitals_rig::cluster::{Double, NodeSpec, World};
use gpuvitals_settings::{Notation, Section as _, Typed as _};
use serde_json::json;

use crate::{cluster_at, kubernetes, settings, start, watched, when, when_seen, when_state};

const TOKEN: &str = "a-token-that-nobody-may-see";

fn guarded() -> World {
    let mut world = World::new(vec![NodeSpec::new("n1", 1)]);
    world.token = Some(TOKEN.to_owned());
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_token_file_is_read_again_and_no_error_shows_a_token() {
    let double = Double::start_tls(guarded()).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let mut cluster = settings("east", &double);
    cluster.token_file = Some(file.clone());
    let (clusters, _feed) = start(vec![cluster]);
    when_state(&clusters, "east", ClusterState::Ok).await;
    double.change(|world| world.token = Some("the-next-one".to_owned()));
    let view = when_state(&clusters, "east", ClusterState::Unauthorized).await;
    assert!(!format!("{view:?} {clusters:?}").contains(TOKEN));
    assert_eq!(view.node("n1").unwrap().gpus().unwrap().len(), 1, "the last reading is kept");
    std::fs::write(&file, "the-next-one").unwrap();
    when_state(&clusters, "east", ClusterState::Ok).await;
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_missing_right_is_named() {
    for verb in ["get", "create"] {
        let mut world = World::new(vec![NodeSpec::new("n1", 1)]);
        world.forbidden.insert(verb);
        let (_double, clusters, _feed) = watched(world).await;
        let view = when_state(&clusters, "east", ClusterState::Degraded).await;
        let error = view.node("n1").unwrap().error.as_deref().unwrap().to_owned();
        assert!(
            error.contains("403") && error.contains(&format!("cannot {verb} resource \"pods/exec\"")),
            "{error}"
        );
        clusters.stop().await;
    }
    let mut world = World::new(vec![NodeSpec::new("n1", 1)]);
    world.forbidden.insert("list");
    let (_double, clusters, _feed) = watched(world).await;
    let view = when_state(&clusters, "east", ClusterState::Forbidden).await;
    assert!(view.error.as_deref().unwrap().contains("cannot list"), "{:?}", view.error);
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_counts_by_the_clusters_ca_or_not_at_all() {
    let double = Double::start_tls(guarded()).await;
    let other = Double::start_tls(guarded()).await;
    let token = || Some(ClusterToken::from(TOKEN));
    let cluster = |name: &str| ClusterSettings { token: token(), ..settings(name, &double) };
    let trusting = cluster("trusting");
    let wrong = ClusterSettings { ca_data: other.ca.clone(), ..cluster("wrong") };
    let system = ClusterSettings { ca_data: None, ..cluster("system") };
    let skipping = ClusterSettings { ca_data: None, skip_tls_verify: true, ..cluster("skipping") };
    let named = ClusterSettings { tls_server_name: Some("kubernetes".to_owned()), ..cluster("named") };
    let misnamed = ClusterSettings { tls_server_name: Some("elsewhere".to_owned()), ..cluster("misnamed") };
    let (clusters, _feed) = start(vec![trusting, wrong, system, skipping, named, misnamed]);
    for name in ["trusting", "skipping", "named"] {
        when_state(&clusters, name, ClusterState::Ok).await;
    }
    for name in ["wrong", "system", "misnamed"] {
        let view = when_state(&clusters, name, ClusterState::Unreachable).await;
        assert!(view.error.as_deref().unwrap().contains("certificate"), "{name}: {:?}", view.error);
    }
    assert!(clusters.clusters().iter().any(|view| view.skips_tls_verify));
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_hung_and_refusing_clusters_do_not_delay_a_good_one() {
    let good = Double::start(World::new(vec![NodeSpec::new("n1", 1)])).await;
    let hung = Double::start(World::new(Vec::new())).await;
    hung.change(|world| world.hangs = true);
    let refusing = Double::start(guarded()).await;
    // A port that nobody listens on any more.
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut idle = cluster_at("idle", "https://192.0.2.1:6443");
    idle.has_gpu = false;
    let clusters = vec![
        ClusterSettings {
            poll_interval: Duration::from_millis(200),
            ..cluster_at("dead", &format!("http://{dead}"))
        },
        settings("hung", &hung),
        settings("refusing", &refusing),
        idle,
        settings("good", &good),
    ];
    let (clusters, _feed) = start(clusters);
    let view = when_state(&clusters, "good", ClusterState::Ok).await;
    assert_eq!(
        clusters.watch("hung").unwrap().borrow().state,
        ClusterState::Starting,
        "it has not even timed out"
    );
    assert_eq!(view.node("n1").unwrap().state, NodeState::Ok);
    when_state(&clusters, "dead", ClusterState::Unreachable).await;
    when_state(&clusters, "hung", ClusterState::Unreachable).await;
    when_state(&clusters, "refusing", ClusterState::Unauthorized).await;
    assert_eq!(clusters.watch("idle").unwrap().borrow().state, ClusterState::NoGpu);
    assert!(clusters.watch("unknown").is_none());
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_patience_gets_it() {
    let (double, clusters, _feed) = watched(World::new(vec![NodeSpec::new("n1", 1)])).await;
    when_state(&clusters, "east", ClusterState::Ok).await;
    double.change(|world| world.busy = (1, 1));
    when_state(&clusters, "east", ClusterState::Throttled).await;
    let before = double.seen().borrow().len();
    let view = when_state(&clusters, "east", ClusterState::Ok).await;
    assert_eq!(view.node("n1").unwrap().state, NodeState::Ok, "it is not the node's failure");
    let mut seen = double.seen();
    let all = when_seen(&mut seen, |all| all.len() > before).await;
    // In the second of patience five rounds would have come.
    assert!(all.iter().filter(|seen| seen.status == 429).count() == 1);
    clusters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_reading_survives_a_server_that_goes_away() {
    let (double, clusters, _feed) = watched(World::new(vec![NodeSpec::new("n1", 2)])).await;
    when_state(&clusters, "east", ClusterState::Ok).await;
    drop(double);
    let view = when(&clusters, "east", |view| view.state == ClusterState::Unreachable).await;
    assert_eq!(view.node("n1").unwrap().gpus().unwrap().len(), 2);
    clusters.stop().await;
}

#[test]
fn impossible_clusters_are_refused() {
    let refused = |change: &dyn Fn(&mut ClusterSettings)| {
        let mut settings = cluster_at("east", "https://10.0.0.1:6443");
        change(&mut settings);
        Cluster::checked(&kubernetes(vec![settings])).unwrap_err()
    };
    let token = || Some(ClusterToken::from("x"));
    let is_both = |error: ConfigError| matches!(error, ConfigError::Both { .. });
    assert!(is_both(refused(&|s| (s.skip_tls_verify, s.ca_data) = (true, Some("x".to_owned())))));
    assert!(is_both(refused(&|s| (s.token, s.token_file) = (token(), Some("/t".into())))));
    let error = refused(&|s| (s.api_url, s.token) = ("http://10.0.0.1".to_owned(), token()));
    assert_eq!(error, ConfigError::ClearToken("east".to_owned()));
    let error = refused(&|s| s.api_url = "https://user:secret@10.0.0.1".to_owned());
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(matches!(refused(&|s| s.name = "a/b".to_owned()), ConfigError::Name(_)));
    assert!(matches!(refused(&|s| s.parallel = Some(0)), ConfigError::Range { .. }));
    let twice = vec![cluster_at("a", "https://b"), cluster_at("a", "https://c")];
    assert_eq!(Cluster::checked(&kubernetes(twice)).unwrap_err(), ConfigError::Twice("a".to_owned()));
    let many = |count: usize, parallel| {
        let of = |at| ClusterSettings { parallel, ..cluster_at(&format!("c{at}"), "https://b") };
        Cluster::checked(&kubernetes((0..count).map(of).collect()))
    };
    let shares = |count| many(count, None).unwrap().iter().map(|cluster| cluster.parallel).max();
    assert_eq!((shares(1), shares(6), shares(20)), (Some(64), Some(42), Some(12)));
    assert!(many(4, Some(64)).is_ok());
    assert_eq!(many(5, Some(64)).unwrap_err(), ConfigError::Parallel(320));
    let mut local = cluster_at("local", "http://127.0.0.1:8001");
    local.token = token();
    assert!(!format!("{:?}", Cluster::checked(&kubernetes(vec![local])).unwrap()).contains("\"x\""));
}

#[test]
fn the_section_names_the_entry_and_the_field_at_fault_and_no_token() {
    let good = json!({"name": "east", "api_url": "https://a", "token": TOKEN});
    let listed = json!([good, {"name": "west", "api_url": "https://b", "parallel": 4}]);
    let section = Kubernetes::of(&[("kubernetes.clusters", listed.clone())]).unwrap();
    assert_eq!(section.clusters.0.len(), 2);
    let from_environment = Kubernetes::of(&[("kubernetes.clusters", listed.to_string().into())]).unwrap();
    assert_eq!(from_environment, section);
    assert!(Kubernetes::of(&[("kubernetes.clusters", json!(""))]).unwrap().clusters.0.is_empty());
    let refused = |value: serde_json::Value| {
        let why = Kubernetes::of(&[("kubernetes.clusters", value)]).unwrap_err().why;
        assert!(!why.contains(TOKEN), "{why}");
        why
    };
    for (entry, words) in [
        (
            json!({"name": "west", "api_url": "https://b", "tokn": TOKEN}),
            "entry 2: cluster west: tokn: unknown field",
        ),
        (json!({"name": "west", "api_url": "https://b", "token": [TOKEN]}), "token: the token is no text"),
        (json!({"name": "west", "api_url": "https://b", "ca_file": 5}), "entry 2: cluster west: ca_file: "),
        (json!({"name": "west", "api_url": "https://b", "exec_deadline": "soon"}), "exec_deadline: "),
        (json!({"api_url": "https://b"}), "entry 2: missing field `name`"),
        (json!("west"), "entry 2: it has no fields"),
        (good.clone(), "two clusters have the name east"),
        (json!({"name": "west", "api_url": "http://b", "token": TOKEN}), "a token is not sent over http://"),
    ] {
        let why = refused(json!([good, entry]));
        assert!(why.contains(words), "{why}");
    }
    assert_eq!(refused(json!(format!("[{{token: {TOKEN}}}]"))), "it is no JSON");
    let shown = |value| <ClusterList as gpuvitals_settings::Typed>::NOTATION.shown(value);
    assert!(matches!(ClusterList::NOTATION, Notation::Objects(_)));
    for value in [listed.clone(), listed.to_string().into()] {
        let text = shown(value).to_string();
        assert!(!text.contains(TOKEN) && text.contains("https://b") && text.contains("***"), "{text}");
    }
    assert_eq!(shown(json!(format!("[{TOKEN}"))), "***");
}

#[test]
fn a_cluster_is_read_from_text() {
    let settings: ClusterSettings = serde_json::from_str(
        r#"{"name": "east", "api_url": "https://h:6443", "token": "t", "poll_interval": "1m", "output_max": "64KiB"}"#,
    )
    .unwrap();
    assert_eq!((settings.poll_interval, settings.output_max), (Duration::from_mins(1), 64 << 10));
    assert!(settings.has_gpu && !settings.skip_tls_verify && settings.parallel.is_none());
    let misspelt = serde_json::from_str::<ClusterSettings>(r#"{"name": "e", "api_url": "u", "tokn": "t"}"#);
    assert!(misspelt.unwrap_err().to_string().contains("tokn"));
}
