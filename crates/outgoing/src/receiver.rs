//! What a protocol is to the loop that sends.

use std::fmt::Debug;

use bytes::Bytes;

use crate::counts::ReceiverCounts;
use crate::families::FamilyParts;
use crate::verdict::{Standing, Verdict};

/// Most samples of a request: some 300 KB of remote write before compression, some 1.5 MB of OTLP, below the 4 MiB that
/// receivers of gRPC take unless told otherwise.
pub(crate) const SAMPLES_MAX: usize = 5_000;

/// A request as it waits.
#[derive(Debug)]
pub(crate) struct Packed<F> {
    /// As it goes out, unless the receiver turns out to want another form.
    pub(crate) body: Bytes,
    /// Form of the body, where the protocol has several.
    pub(crate) form: F,
    /// Number of its samples.
    pub(crate) samples: u64,
    /// Time of the newest sample, milliseconds since 1970.
    pub(crate) newest_ms: i64,
}

/// A receiver of families, spoken to by one protocol.
pub(crate) trait Receiver: Debug + Send + Sync + 'static {
    /// The protocol, in log lines.
    const PROTOCOL: &str;
    /// What it calls samples, in log lines.
    const SAMPLES: &str;
    /// Form of a request, where the protocol has several.
    type Form: Debug + Send + Sync;

    /// What becomes of its samples.
    fn counts(&self) -> &ReceiverCounts;

    /// Writes what is new in the families as requests for `emit`, of [`SAMPLES_MAX`] samples at most. Blocks its thread.
    fn pack(&self, families: FamilyParts, emit: &mut dyn FnMut(Packed<Self::Form>));

    /// Sends a request once, or in another form if the receiver wants that.
    fn send(&self, request: &Packed<Self::Form>) -> impl Future<Output = Verdict> + Send;

    /// Says in the log what people should know of a verdict, from how the receiver stood before; most often nothing.
    fn tell(&self, before: Standing, verdict: &Verdict);
}
