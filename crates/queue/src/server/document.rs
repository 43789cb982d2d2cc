//! The OpenAPI document, generated from the handlers and the types they take and answer with.

use utoipa::OpenApi;
use utoipa::openapi::{InfoBuilder, License};

use super::paths::Document;

const DESCRIPTION: &str = "Publishing by HTTP, what the queue holds, dead letters, figures. To receive messages, speak gRPC \
(`api/proto/gpuvitals/queue/v1/queue.proto`).

A message is one row. Messages are stored in frames; a frame is delivered and acknowledged as one.

**Errors** are `{error, message, code}` everywhere. 429 and 503 come with `Retry-After`, in seconds.

**Tokens**: where the queue knows tokens, send `Authorization: Bearer …`; without one that may do what is asked every \
path answers 401 or 403, only `/health`, `/healthz` and `/readyz` need none.

**Rates**: a client beyond `listener.request_rate` gets 429 `too_many_requests`, with `Retry-After`.

**Pages**: a page of another site may change nothing (403) unless its origin is listed in `broker.cors`.";

/// The document, as it is kept in `api/queue-openapi.yaml`.
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    document.info = InfoBuilder::new()
        .title("gpuvitals queue")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .license(Some(License::builder().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build();
    document
}
