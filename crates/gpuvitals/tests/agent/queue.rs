//! A queue on a port of its own, which comes and goes while its contents stay.

use std::collections::BTreeMap;
use std::time::Duration;

use gpuvitals_core::batch::{RowKeys, Value, numbers};
use gpuvitals_core::{Table, wire};
use gpuvitals_listener::ListenerLimits;
use gpuvitals_queue::server::{ServerConfig, serve};
use gpuvitals_queue::{Consumer, ConsumerOptions, InProcessConsumer, Queue, QueueClock, QueueConfig};
use gpuvitals_rig::port::Port;
use gpuvitals_rig::waiting::PATIENCE;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const TOPIC: &str = "gpu-telemetry";

pub(crate) struct TestQueue {
    runtime: Runtime,
    queue: Queue,
    consumer: InProcessConsumer,
    port: Port,
    serving: Option<(CancellationToken, JoinHandle<()>)>,
}

/// How often each row came: GPU and time; of other tables than `gpu_events` the table's name as well, and of `gpu_usage` the holder.
pub(crate) type Rows = BTreeMap<(String, i64), u32>;

impl TestQueue {
    /// One that is away: its port is known, and nobody listens there.
    pub(crate) fn away() -> Self {
        let runtime = Runtime::new().unwrap();
        let (queue, consumer) = runtime.block_on(async {
            let queue = Queue::in_process(QueueConfig::default(), QueueClock::system());
            let consumer = queue.subscribe(TOPIC, "test", &ConsumerOptions::default()).await.unwrap();
            (queue, consumer)
        });
        Self { runtime, queue, consumer, port: Port::new(), serving: None }
    }

    pub(crate) fn listening() -> Self {
        let mut queue = Self::away();
        queue.come();
        queue
    }

    pub(crate) fn url(&self) -> String {
        format!("grpc://127.0.0.1:{}", self.port)
    }

    pub(crate) fn come(&mut self) {
        let (stop, queue) = (CancellationToken::new(), self.queue.clone());
        let address = format!("127.0.0.1:{}", self.port);
        let listener = self.runtime.block_on(TcpListener::bind(address)).unwrap();
        let limits = ListenerLimits { drain: Duration::from_millis(100), ..ListenerLimits::default() };
        let ended = serve(listener, queue, ServerConfig { limits, ..ServerConfig::default() }, stop.clone());
        let task = self.runtime.spawn(async move { ended.await.unwrap() });
        self.serving = Some((stop, task));
    }

    pub(crate) fn go(&mut self) {
        let (stop, task) = self.serving.take().unwrap();
        stop.cancel();
        self.runtime.block_on(task).unwrap();
    }

    /// The rows received, once there are enough.
    pub(crate) fn rows(&mut self, is_enough: impl Fn(&Rows) -> bool) -> Rows {
        let mut rows = Rows::new();
        while !is_enough(&rows) {
            let received = self.consumer.receive();
            let received = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, received).await });
            let deliveries = received.unwrap_or_else(|_| panic!("nothing more came after {rows:?}")).unwrap();
            for delivery in deliveries {
                let batch = wire::decode(&delivery.frame.payload).unwrap();
                assert_eq!(batch.rows(), delivery.frame.count as usize);
                let rest = RowKeys::rest(batch.records(), batch.table());
                let holder = |row: usize| {
                    let rest = rest.as_ref().map(|rest| &rest.keys[rest.ids[row] as usize]);
                    rest.and_then(|rest| rest.split('\0').nth(1)).unwrap_or_default().to_owned()
                };
                // What a holder used is told again and again, as of later instants.
                let as_of =
                    |row: usize| match numbers(batch.records().column_by_name("as_of_ns")?)?.value(row)? {
                        Value::Int(as_of_ns) => Some(as_of_ns),
                        _ => None,
                    };
                for (row, time) in batch.timestamps().iter().enumerate() {
                    let identity = batch.identity(row);
                    let subject = identity.key().unwrap_or_else(|| identity.node().unwrap().into());
                    let key = match batch.table() {
                        Table::GpuEvents => subject.to_string(),
                        table @ Table::GpuUsage => format!("{table} {subject} {}", holder(row)),
                        table => format!("{table} {subject}"),
                    };
                    *rows.entry((key, as_of(row).unwrap_or(*time))).or_insert(0) += 1;
                }
                self.runtime.block_on(self.consumer.ack(&[delivery.id])).unwrap();
            }
        }
        rows
    }
}
