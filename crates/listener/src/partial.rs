//! Messages of gRPC that have come in part: what they take of the memory, and for how long.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tonic::Status;

use crate::body::{Budget, Share};

/// A message of which less than this has come is not counted: the windows of its connection bound it.
const FREE_BYTES: usize = 64 << 10;
/// Bytes before each message: whether it is compressed, and how long it is (gRPC over HTTP/2, "Length-Prefixed-Message").
const PREFIX_LEN: usize = 5;

/// A request's body that may hold part of a long message only within the budget that all share, and only so long.
#[derive(Debug)]
pub struct Partial<B> {
    body: B,
    message: PartialMessage,
    share: Share,
    patience: Duration,
    /// When the rest of a long message has to be there.
    until: Option<Pin<Box<Sleep>>>,
}

impl<B> Partial<B> {
    /// Bounds a body by the budget and the time that the rest of a long message may take.
    pub fn new(body: B, budget: &Budget, patience: Duration) -> Self {
        Self { body, message: PartialMessage::default(), share: budget.share(), patience, until: None }
    }

    fn came(&mut self, data: &[u8]) -> Result<(), Status> {
        if self.message.advance(data) {
            // Each message has its own time.
            self.until = None;
        }
        if self.message.len < FREE_BYTES {
            self.share.clear();
            return Ok(());
        }
        let patience = self.patience;
        self.until.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        let overloaded = |_| Status::unavailable("too much is being received at once; come again");
        self.share.hold(self.message.len).map_err(overloaded)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Partial<B>
where
    B::Error: Into<tonic::codegen::StdError>,
{
    type Data = Bytes;
    type Error = tonic::codegen::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            let Some(frame) = frame.transpose().map_err(Into::into)? else { return Poll::Ready(None) };
            if let Some(data) = frame.data_ref() {
                this.came(data)?;
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        let Some(until) = &mut this.until else { return Poll::Pending };
        ready!(until.as_mut().poll(context));
        this.until = None;
        let seconds = this.patience.as_secs_f32();
        let text = format!("half of a message came, and the rest not within {seconds} s");
        Poll::Ready(Some(Err(Status::deadline_exceeded(text).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The message that is under way.
#[derive(Debug, Default)]
struct PartialMessage {
    /// Bytes of it that have come, with its prefix.
    len: usize,
    /// The length in its prefix, as far as that has come.
    announced: usize,
}

impl PartialMessage {
    /// Takes in what has come; whether a message ended in it.
    fn advance(&mut self, mut data: &[u8]) -> bool {
        let mut has_ended = false;
        while let Some((byte, rest)) = data.split_first() {
            if self.len < PREFIX_LEN {
                if self.len > 0 {
                    self.announced = self.announced << 8 | usize::from(*byte);
                }
                self.len += 1;
                data = rest;
            }
            let missing = (PREFIX_LEN + self.announced).saturating_sub(self.len);
            if self.len >= PREFIX_LEN {
                let (of_this, others) = data.split_at(missing.min(data.len()));
                self.len += of_this.len();
                data = others;
                if of_this.len() == missing {
                    *self = Self::default();
                    has_ended = true;
                }
            }
        }
        has_ended
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{PREFIX_LEN, PartialMessage};

    proptest! {
        #[test]
        fn it_knows_how_much_of_the_last_message_has_come(
            lens in vec(0_usize..600, 0..12),
            cut in 0_usize..4_000,
            steps in vec(1_usize..300, 1..12),
        ) {
            let mut bytes = Vec::new();
            let mut starts = Vec::new();
            for len in lens {
                starts.push(bytes.len());
                bytes.push(0);
                bytes.extend(u32::try_from(len).unwrap().to_be_bytes());
                bytes.resize(bytes.len() + len, 0xff);
            }
            starts.push(bytes.len());
            bytes.truncate(cut);
            let (mut message, mut rest, mut ended) = (PartialMessage::default(), &bytes[..], 0);
            for step in steps.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (data, others) = rest.split_at((*step).min(rest.len()));
                ended += usize::from(message.advance(data));
                rest = others;
            }
            let begun = starts.iter().rev().find(|start| **start <= bytes.len()).unwrap();
            prop_assert_eq!(message.len, bytes.len() - begun);
            prop_assert!(message.announced < 600 || message.len < PREFIX_LEN);
            prop_assert_eq!(ended > 0, *begun > 0);
        }
    }
}
