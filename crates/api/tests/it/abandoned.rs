//! A client that goes away before its answer is there, an answer that never is, and one that waits for its patterns.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use gpuvitals_api::{Api, ApiConfig, Beside, serve};
use gpuvitals_core::Health;
use gpuvitals_core::clock;
use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, Changes, Fleet, History, HistoryStats, Rows, RowsQuery,
};
use gpuvitals_listener::Access;
use gpuvitals_store::Store;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_util::sync::CancellationToken;

use crate::client::{request, soon};
use crate::world::World;

/// A history whose buckets never come; it tells when they are asked for and when the question is dropped.
#[derive(Debug)]
struct Endless {
    store: Store,
    told: Sender<&'static str>,
}

struct Question(Sender<&'static str>);

impl Drop for Question {
    fn drop(&mut self) {
        self.0.try_send("dropped").unwrap();
    }
}

impl History for Endless {
    fn version(&self) -> u64 {
        self.store.version()
    }

    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        History::fleet(&self.store)
    }

    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows> {
        self.store.rows(query)
    }

    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets> {
        // The gateway's own questions, by GPU and holder, have answers.
        if query.group_by.len() > 1 {
            return self.store.buckets(query);
        }
        self.told.try_send("asked").unwrap();
        let question = Question(self.told.clone());
        Box::pin(async move {
            let _question = question;
            std::future::pending().await
        })
    }

    fn changes(&self) -> Box<dyn Changes> {
        self.store.changes()
    }

    fn health(&self) -> Health {
        self.store.health()
    }

    fn stats(&self) -> HistoryStats {
        History::stats(&self.store)
    }
}

/// A gateway whose answers take so long at most, before a history that never has one.
async fn endless(world: &World, request_timeout: Duration) -> (SocketAddr, Receiver<&'static str>) {
    let (told, news) = channel(2);
    let history = Arc::new(Endless { store: world.store.clone(), told });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = ApiConfig::default();
    config.limits.request_timeout = request_timeout;
    let api = Api::new(config, history, world.parts.clone());
    tokio::spawn(serve(
        listener,
        api,
        Beside::reading(Router::new()),
        Access::open(),
        CancellationToken::new(),
    ));
    (address, news)
}

/// What becomes of a question next.
async fn next(news: &mut Receiver<&'static str>) -> &'static str {
    soon("news of the question", news.recv()).await.expect("the question tells of its end")
}

#[tokio::test]
async fn a_question_whose_client_has_gone_is_dropped() {
    let world = World::new().await;
    let (address, mut news) = endless(&world, Duration::from_mins(1)).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET /api/v1/query?metrics=power_w HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(next(&mut news).await, "asked");
    drop(client);
    assert_eq!(next(&mut news).await, "dropped");
}

#[tokio::test]
async fn a_question_that_takes_too_long_is_an_error_and_dropped() {
    let world = World::new().await;
    let (address, mut news) = endless(&world, Duration::from_millis(100)).await;
    let answer = request(address, "GET", "/api/v1/query?metrics=power_w", "").await;
    assert_eq!((answer.status, &answer.json()["code"]), (503, &"timeout".into()), "{}", answer.text());
    assert_eq!((next(&mut news).await, next(&mut news).await), ("asked", "dropped"));
}

#[test]
fn a_question_whose_patterns_take_too_long_is_an_error_and_holds_up_nobody() {
    // Patterns are compiled on threads for blocking work. There is one here, and it is busy for as long as the test wants: the
    // patterns take longer than a question may.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).max_blocking_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let limit = Duration::from_secs(2);
        let world = World::empty(|config, _| config.limits.request_timeout = limit).await;
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (free, freed) = std::sync::mpsc::sync_channel::<()>(0);
        let busy = tokio::task::spawn_blocking(move || {
            begun.send(()).unwrap();
            // It ends when the other half is dropped.
            freed.recv().unwrap_err();
        });
        soon("the busy thread", begins).await.unwrap();
        let patterns = vec!["pod=~.{0,300}"; 32].join(";");
        for path in ["/api/v1/gpus?", "/api/v1/query?metrics=power_w&", "/api/v1/telemetry?"] {
            let asked = clock::instant();
            let dear = format!("{path}where={patterns}");
            let mut question = std::pin::pin!(world.get(&dear));
            tokio::select! {
                biased;
                answer = &mut question => panic!("{path}: it did not wait: {}", answer.text()),
                health = world.get("/healthz") => assert_eq!(health.status, 200),
            }
            assert!(asked.elapsed() < limit, "{path}: others were served after {:?}", asked.elapsed());
            let answer = question.await;
            assert_eq!(
                (answer.status, &answer.json()["code"]),
                (503, &"timeout".into()),
                "{}",
                answer.text()
            );
            assert!(asked.elapsed() < 10 * limit, "{path}: after {:?}", asked.elapsed());
        }
        drop(free);
        busy.await.unwrap();
        // Those of the questions that were given up are in nobody's way.
        let answer = world.get("/api/v1/gpus?where=pod=~(").await;
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (400, &"bad_parameter".into()),
            "{}",
            answer.text()
        );
    });
}
