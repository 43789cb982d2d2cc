//! One history at the other end of a connection.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::Status;
use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, Change, Changes, Fleet, GpuState, History, HistoryStats, LiveFleet,
    QueryError, Rows, RowsQuery, fleet_as_of, spelling,
};
use gpuvitals_core::ports::{Answer, Sink};
use gpuvitals_core::{Health, MetricId, Table};
use gpuvitals_listener::Access;
use gpuvitals_listener::client::{BearerToken, Credentials};
use gpuvitals_remote::{Remote, serve, v1};
use gpuvitals_rig::rounds::rounds;
use gpuvitals_rig::waiting::{soon, watched};
use gpuvitals_suite::{BASE_NS, TestRow, answer, batch, cases};
use proptest::prelude::*;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Sender, channel};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::world::{Kept, Service, dial, endpoint, guarded, remote};

const SECOND_NS: i64 = 1_000_000_000;
/// An answer that waits for nothing would have come.
const EARLY: Duration = Duration::from_millis(50);

/// Waits until a history tells of itself what is asked.
async fn until(history: &dyn History, is: impl Fn(&dyn History) -> bool) {
    watched("what a history tells of itself", || is(history)).await;
}

/// Writes rows until it is so: those who have just begun to follow may miss some.
async fn written_until(kept: &Kept, is_so: impl Fn() -> bool) {
    let writing = async {
        for second in 0.. {
            kept.store.accept(vec![batch(&[row(0, second)])]).await.unwrap();
            tokio::task::yield_now().await;
            if is_so() {
                return;
            }
        }
    };
    soon("what rows bring about", writing).await;
}

fn row(gpu: u8, second: i64) -> TestRow {
    TestRow { power: Some(8), energy: Some(4), pod: Some(gpu % 2), ..TestRow::of(gpu, second) }
}

fn power(metrics: Vec<MetricId>, step_ns: i64) -> BucketQuery {
    BucketQuery::of(Table::GpuEvents, metrics, BASE_NS, BASE_NS + SECOND_NS, step_ns)
}

/// States of all GPUs; columns that the catalogue does not know in the order of their names.
fn states(fleet: &Fleet) -> Vec<GpuState> {
    let state = |gpu: &Arc<GpuState>| {
        let mut state = GpuState::clone(gpu);
        state.extras.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        state
    };
    fleet.gpus.iter().map(state).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(24), ..ProptestConfig::default() })]
    #[test]
    fn the_other_end_answers_as_all_histories_do(case in cases()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let kept = Kept::new();
            let model = case.write(&kept.store, async || kept.store.flush().await.unwrap()).await;
            let service = Service::new(Arc::new(kept.store.clone())).await;
            let remote = remote(&service);
            case.ask(&remote, &model).await;
            let (local, far) = (kept.store.fleet(), History::fleet(&remote).await.unwrap().answer);
            assert_eq!(states(&far), states(&local));
            drop(remote);
            service.end().await;
        });
    }
}

#[tokio::test]
async fn the_fleet_of_an_instant_is_the_same_by_call_and_from_rows() {
    let kept = Kept::new();
    kept.store.accept(vec![batch(&[row(0, 0), row(0, 100), row(1, 100)])]).await.unwrap();
    let at_ns = BASE_NS + 50 * SECOND_NS;
    let near = fleet_as_of(&kept.store, at_ns).await.unwrap().answer;
    let seen: Vec<_> = near.gpus.iter().map(|gpu| (gpu.key.as_ref(), gpu.last_seen_ns)).collect();
    assert_eq!(seen, [("GPU-0", BASE_NS)], "the other one has not come");

    let service = Service::new(Arc::new(kept.store.clone())).await;
    let mut client =
        v1::history_client::HistoryClient::new(endpoint(service.address).connect().await.unwrap());
    let mut now = client.fleet(v1::FleetRequest::default()).await.unwrap().into_inner();
    let now = now.message().await.unwrap().unwrap();
    // Who has the state of now does not have that of then.
    let (known_version, known_life) = (now.version, now.life);
    let request = v1::FleetRequest { known_version, known_life, at_ns: Some(at_ns) };
    let mut parts = client.fleet(request).await.unwrap().into_inner();
    let mut called = LiveFleet::default();
    while let Some(part) = parts.message().await.unwrap() {
        assert!(!part.unchanged);
        spelling::read(&part.gpus, &mut called).unwrap();
    }
    assert_eq!(states(&called.snapshot()), states(&near));
    // A gateway asks for the rows of each collector, and puts the fleet together.
    let remote = remote(&service);
    assert_eq!(states(&fleet_as_of(&remote, at_ns).await.unwrap().answer), states(&near));
}

#[tokio::test]
async fn a_question_is_refused_with_the_same_words() {
    let kept = Kept::new();
    let service = Service::new(Arc::new(kept.store.clone())).await;
    let remote = remote(&service);
    let far = RowsQuery { offset: 1 << 40, ..RowsQuery::of(Table::GpuEvents, 1) };
    let backward = RowsQuery { start_ns: Some(2), end_ns: Some(1), ..RowsQuery::of(Table::GpuEvents, 1) };
    for query in [far, backward] {
        let (near, far) = (kept.store.rows(query.clone()).await, remote.rows(query).await);
        assert_eq!(far.unwrap_err().to_string(), near.unwrap_err().to_string());
    }
    let (host, _) = gpuvitals_core::catalogue::host_metrics().next().unwrap();
    for query in [power(vec![host], 1), power(vec![], 0), power(vec![], 1)] {
        let (near, far) = (kept.store.buckets(query.clone()).await, remote.buckets(query).await);
        assert_eq!(far.unwrap_err().to_string(), near.unwrap_err().to_string());
    }
}

#[tokio::test]
async fn what_a_message_says_is_checked_and_its_field_named() {
    let service = Service::new(Arc::new(Kept::new().store)).await;
    let channel = endpoint(service.address).connect().await.unwrap();
    let mut client = v1::history_client::HistoryClient::new(channel);
    let table = || "gpu_events".to_owned();
    let matcher = |column: &str, test: v1::matcher::Test, text: &str| v1::Matcher {
        column: column.to_owned(),
        test: test.into(),
        texts: vec![text.to_owned()],
    };
    for (selector, words) in [
        (matcher("rack", v1::matcher::Test::Is, "a"), "selector.column: \"rack\""),
        (matcher("pod", v1::matcher::Test::Unspecified, "a"), "selector.test"),
        (matcher("pod", v1::matcher::Test::Matches, "("), "selector.texts"),
    ] {
        let request = v1::RowsRequest { table: table(), selector: vec![selector], ..Default::default() };
        let status = client.rows(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with(words), "{}", status.message());
    }
    let status = client.rows(v1::RowsRequest::default()).await.unwrap_err();
    assert!(status.message().starts_with("table:"), "{}", status.message());
    let many = v1::RowsRequest { table: table(), limit: 200_001, ..Default::default() };
    let status = client.rows(many).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("more than 200000"), "{}", status.message());
    let many = v1::UsageRequest { gpus: vec!["a".to_owned(); 100_001], ..Default::default() };
    let status = client.usage(many).await.unwrap_err();
    assert!(status.message().starts_with("gpus: 100001 entries"), "{}", status.message());
    for (metrics, aggregates, group_by, words) in [
        ("powr_w", "mean", "gpu", "metrics: no metric is called \"powr_w\""),
        ("power_w", "sum", "gpu", "aggregates:"),
        ("power_w", "p101", "gpu", "aggregates:"),
        ("power_w", "p100", "rack", "group_by:"),
    ] {
        let request = v1::BucketsRequest {
            table: table(),
            metrics: vec![metrics.to_owned()],
            aggregates: vec![aggregates.to_owned()],
            group_by: vec![group_by.to_owned()],
            ..Default::default()
        };
        let status = client.buckets(request).await.unwrap_err();
        assert!(status.message().starts_with(words), "{}", status.message());
    }
}

#[tokio::test]
async fn those_without_the_token_hear_nothing() {
    let (kept, dir) = (Kept::new(), tempfile::tempdir().unwrap());
    kept.store.accept(vec![batch(&[row(0, 0)])]).await.unwrap();
    let (access, token) = guarded(dir.path());
    let service = Service::at("127.0.0.1:0".parse().unwrap(), Arc::new(kept.store.clone()), access).await;
    let refused = remote(&service);
    let error = History::fleet(&refused).await.unwrap_err();
    assert!(gpuvitals_core::causes(&error).contains("token"), "{error:?}");
    until(&refused, |history| history.health().reason.contains("token")).await;
    let access = Credentials { token: BearerToken::new(&token), ..Credentials::default() };
    let known = Remote::new("guarded", dial(service.address, &access));
    assert_eq!(History::fleet(&known).await.unwrap().answer.gpus.len(), 1);
}

#[tokio::test]
async fn a_service_that_ends_and_comes_back_is_heard_again() {
    let kept = Kept::new();
    let service = Service::new(Arc::new(kept.store.clone())).await;
    let address = service.address;
    let remote = remote(&service);
    let mut changes = remote.changes();
    until(&remote, |history| history.health().status == Status::Healthy).await;
    let version = remote.version();
    let first = tokio::spawn(async move { (changes.next().await, changes) });
    written_until(&kept, || first.is_finished()).await;
    let (change, mut changes) = soon("the first change", first).await.unwrap();
    assert!(matches!(change, Some(Change::Rows(rows)) if rows.iter().all(|batch| batch.rows() == 1)));
    until(&remote, |history| history.version() != version).await;

    service.end().await;
    let error = remote.rows(RowsQuery::of(Table::GpuEvents, 1)).await.unwrap_err();
    assert!(matches!(error, QueryError::Away { .. }));
    until(&remote, |history| history.health().status == Status::Degraded).await;
    let (since, version) = (remote.health().since_ns, remote.version());

    let _service = Service::at(address, Arc::new(kept.store.clone()), Access::open()).await;
    until(&remote, |history| history.health().status == Status::Healthy).await;
    assert!(remote.health().since_ns <= since, "the store itself was well all the time");
    assert_ne!(remote.version(), version, "what came in the meantime is unknown");
    assert_eq!(History::fleet(&remote).await.unwrap().answer.gpus.len(), 1);
    let missed = soon("the missed change", async {
        loop {
            match changes.next().await {
                Some(Change::Rows(_)) => {}
                other => break other,
            }
        }
    });
    assert!(matches!(missed.await, Some(Change::Missed(1))));
}

#[tokio::test]
async fn followers_get_the_rows_that_they_asked_for() {
    let kept = Kept::new();
    let service = Service::new(Arc::new(kept.store.clone())).await;
    let channel = endpoint(service.address).connect().await.unwrap();
    let mut client = v1::history_client::HistoryClient::new(channel);
    let request = v1::ChangesRequest {
        tables: vec!["gpu_events".to_owned()],
        gpus: vec!["GPU-1".to_owned(), "GPU-2".to_owned()],
        selector: vec![v1::Matcher {
            column: "pod".to_owned(),
            test: v1::matcher::Test::Is.into(),
            texts: vec!["pod-1".to_owned()],
        }],
    };
    let mut changes = client.changes(request).await.unwrap().into_inner();
    for second in 0..3 {
        kept.store.accept(vec![batch(&[row(0, second), row(2, second)])]).await.unwrap();
    }
    kept.store.accept(vec![batch(&[row(0, 9), row(1, 9), row(2, 9), row(3, 9)])]).await.unwrap();
    let part = soon("the batches that pass", changes.message()).await.unwrap().unwrap();
    let [bytes] = part.batches.as_slice() else { panic!("{} batches", part.batches.len()) };
    let found = gpuvitals_core::wire::decode(bytes).unwrap();
    assert_eq!(answer(&Rows { batch: Some(found), total: None }).len(), 1);
}

#[tokio::test]
async fn the_service_says_what_it_is_and_that_it_serves() {
    let service = Service::new(Arc::new(Kept::new().store)).await;
    let channel = endpoint(service.address).connect().await.unwrap();
    let name = "gpuvitals.history.v1.History";
    let mut health = HealthClient::new(channel.clone());
    let mut states =
        health.watch(HealthCheckRequest { service: name.to_owned() }).await.unwrap().into_inner();
    let serving =
        async { while states.message().await.unwrap().unwrap().status() != ServingStatus::Serving {} };
    soon("the state in which it serves", serving).await;
    let ask = |request| ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let asked = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(name.to_owned())),
    ];
    let mut reflection = ServerReflectionClient::new(channel);
    let asked = futures_util::stream::iter(asked);
    let mut answers = reflection.server_reflection_info(asked).await.unwrap().into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) =
        answers.message().await.unwrap().unwrap().message_response
    else {
        panic!("no list of services")
    };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&name) && names.contains(&"grpc.health.v1.Health"), "{names:?}");
    let file = answers.message().await.unwrap().unwrap().message_response;
    assert!(matches!(file, Some(MessageResponse::FileDescriptorResponse(_))), "{file:?}");
}

#[tokio::test]
async fn those_who_follow_here_share_one_stream_that_ends_with_the_last() {
    let kept = Kept::new();
    let service = Service::new(Arc::new(kept.store.clone())).await;
    let remote = remote(&service);
    let (mut one, mut other) = (remote.changes(), remote.changes());
    let first = tokio::spawn(async move { one.next().await });
    written_until(&kept, || first.is_finished()).await;
    let (first, same) = (first.await.unwrap(), soon("the same change", other.next()).await);
    let (Some(Change::Rows(first)), Some(Change::Rows(same))) = (first, same) else { panic!("no rows") };
    assert!(Arc::ptr_eq(&first, &same), "they were decoded once");

    let (told, mut news) = channel(8);
    let service = Service::new(Arc::new(Endless(told))).await;
    let remote = crate::world::remote(&service);
    let (one, other) = (remote.changes(), remote.changes());
    assert_eq!(soon("news of the other end", news.recv()).await, Some("followed"));
    drop(one);
    let third = remote.changes();
    drop(other);
    let news_soon = tokio::time::timeout(Duration::from_millis(50), news.recv()).await;
    assert!(news_soon.is_err(), "there is one stream, and it goes on: {news_soon:?}");
    drop(third);
    assert_eq!(soon("news of the other end", news.recv()).await, Some("dropped"));
    let _again = remote.changes();
    assert_eq!(soon("news of the other end", news.recv()).await, Some("followed"));
}

#[tokio::test]
async fn those_who_follow_rows_keep_nobody_from_watching() {
    let service = Service::new(Arc::new(Kept::new().store)).await;
    let (mut followers, mut refused) = (Vec::new(), 0);
    for _ in 0..5 {
        let channel = endpoint(service.address).connect().await.unwrap();
        let mut client = v1::history_client::HistoryClient::new(channel);
        for _ in 0..60 {
            match client.changes(v1::ChangesRequest::default()).await {
                Ok(changes) => followers.push(changes),
                Err(status) => {
                    assert_eq!(status.code(), Code::ResourceExhausted);
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((followers.len(), refused), (256, 44));
    until(&remote(&service), |history| history.health().status == Status::Healthy).await;
}

/// A history whose answers never come; it tells when it is asked or followed, and when the question or the follower is dropped.
#[derive(Debug)]
pub(crate) struct Endless(pub(crate) Sender<&'static str>);

struct Question(Sender<&'static str>);

impl Drop for Question {
    fn drop(&mut self) {
        // Nobody may listen any more.
        let _told = self.0.try_send("dropped");
    }
}

struct Never(#[expect(dead_code, reason = "it tells when it is dropped")] Question);

impl Changes for Never {
    fn next(&mut self) -> Answer<'_, Option<Change>> {
        Box::pin(std::future::pending())
    }
}

impl Endless {
    fn never<T: Send>(&self) -> Answered<'_, T> {
        let _told = self.0.try_send("asked");
        let question = Question(self.0.clone());
        Box::pin(async move {
            let _question = question;
            std::future::pending().await
        })
    }
}

impl History for Endless {
    fn version(&self) -> u64 {
        1
    }

    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        self.never()
    }

    fn rows(&self, _query: RowsQuery) -> Answered<'_, Rows> {
        self.never()
    }

    fn buckets(&self, _query: BucketQuery) -> Answered<'_, Buckets> {
        self.never()
    }

    fn changes(&self) -> Box<dyn Changes> {
        let _told = self.0.try_send("followed");
        Box::new(Never(Question(self.0.clone())))
    }

    fn health(&self) -> Health {
        Health::healthy(0)
    }

    fn stats(&self) -> HistoryStats {
        HistoryStats::default()
    }
}

#[tokio::test]
async fn a_question_that_is_dropped_here_is_dropped_there() {
    let (told, mut news) = channel(2);
    let service = Service::new(Arc::new(Endless(told))).await;
    let remote = remote(&service);
    let question = tokio::spawn(async move {
        remote.buckets(power(vec![MetricId::of("power_w")], SECOND_NS)).await.map(drop)
    });
    assert_eq!(soon("news of the other end", news.recv()).await, Some("asked"));
    question.abort();
    assert_eq!(soon("news of the other end", news.recv()).await, Some("dropped"));
}

#[tokio::test]
async fn questions_wait_for_their_turn_and_the_latest_state_for_none() {
    let kept = Kept::new();
    kept.store.accept(vec![batch(&[row(0, 0)])]).await.unwrap();
    let queries = Arc::new(Semaphore::new(0));
    let service = Service::of_queries(Arc::new(kept.store.clone()), &queries).await;
    let remote = remote(&service);
    assert_eq!(soon("the latest state", remote.fleet()).await.unwrap().answer.gpus.len(), 1);
    let mut rows = remote.rows(RowsQuery::of(Table::GpuEvents, 1));
    assert!(tokio::time::timeout(EARLY, &mut rows).await.is_err(), "no turn is free");
    queries.add_permits(1);
    assert!(soon("rows", rows).await.unwrap().answer.batch.is_some());
    soon("values", remote.buckets(power(vec![MetricId::of("power_w")], SECOND_NS))).await.unwrap();
    assert_eq!(queries.available_permits(), 1, "a turn ends");
    service.end().await;
}

#[tokio::test]
async fn nothing_is_left_of_a_service_that_was_never_asked() {
    let stop = CancellationToken::new();
    let history: Arc<dyn History> = Arc::new(Kept::new().store);
    let weak = Arc::downgrade(&history);
    drop(serve(history, Arc::new(Semaphore::new(1)), &stop).await);
    stop.cancel();
    watched("the end of its last user", || weak.strong_count() == 0).await;
}
