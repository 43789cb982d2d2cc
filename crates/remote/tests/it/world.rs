//! Stores, and services in front of them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use gpuvitals_core::history::History;
use gpuvitals_listener::client::{Credentials, Dial};
use gpuvitals_listener::{Access, Listener, Meter, PortKind, Terms, TokenScope, Tokens};
use gpuvitals_remote::{Remote, serve};
use gpuvitals_settings::Section;
use gpuvitals_store::{Store, StoreConfig};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

/// Questions that are computed at the same time.
const QUERIES: usize = 8;

/// A store in a folder of its own.
pub(crate) struct Kept {
    pub(crate) store: Store,
    _dir: tempfile::TempDir,
}

impl Kept {
    /// With small files and parts of them.
    pub(crate) fn new() -> Self {
        Self::of(|config| StoreConfig { row_group_gpus: 2, row_group_rows: 32, page_rows: 4, ..config })
    }

    pub(crate) fn of(config: impl FnOnce(StoreConfig) -> StoreConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(config(StoreConfig::new(dir.path()))).unwrap();
        Self { store, _dir: dir }
    }
}

/// A service that runs.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn new(history: Arc<dyn History>) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), history, Access::open()).await
    }

    pub(crate) async fn at(address: SocketAddr, history: Arc<dyn History>, access: Access) -> Self {
        Self::with((address, access), history, Arc::new(Semaphore::new(QUERIES))).await
    }

    /// With the number of questions that are computed at the same time.
    pub(crate) async fn of_queries(history: Arc<dyn History>, queries: &Arc<Semaphore>) -> Self {
        Self::with(("127.0.0.1:0".parse().unwrap(), Access::open()), history, Arc::clone(queries)).await
    }

    async fn with(
        (address, access): (SocketAddr, Access),
        history: Arc<dyn History>,
        queries: Arc<Semaphore>,
    ) -> Self {
        let socket = gpuvitals_listener::bind(address).unwrap();
        let (address, stop) = (socket.local_addr().unwrap(), CancellationToken::new());
        let terms = Terms { access, ..Terms::new(Arc::new(Meter::new("test"))) };
        let app = serve(history, queries, &stop).await;
        let serving = gpuvitals_listener::serve(socket, app, terms, stop.clone());
        let served = tokio::spawn(async { serving.await.unwrap() });
        Self { address, stop, served }
    }

    /// Ends it, with all of its connections.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.served.await.unwrap();
    }
}

/// The endpoint of a service.
pub(crate) fn endpoint(address: SocketAddr) -> Endpoint {
    dial(address, &Credentials::default()).endpoint().clone()
}

pub(crate) fn dial(address: SocketAddr, access: &Credentials) -> Dial {
    Dial::new(&address.to_string(), false, access).unwrap()
}

pub(crate) fn remote(service: &Service) -> Remote {
    Remote::new(&service.address.to_string(), dial(service.address, &Credentials::default()))
}

/// Access for those who have the token, which is returned.
pub(crate) fn guarded(dir: &Path) -> (Access, String) {
    let file = dir.join("tokens");
    let token =
        Tokens::create(&file, "gateway", &[TokenScope::Read], "2026-01-01T00:00:00Z".to_owned()).unwrap();
    let settings = Listener::of(&[("listener.token_file", file.to_str().unwrap().into())]).unwrap();
    (Access::load(&settings, PortKind::Service).unwrap(), token)
}
