//! A kept frame as a record of the log: the protocol's `Frame` message.

use bytes::Bytes;
use prost::Message;

use crate::frame::Frame;
use crate::protocol::{read_frame, v1, write_frame};

/// The bytes of a frame.
pub(super) fn encode(frame: &Frame) -> Bytes {
    write_frame(frame).encode_to_vec().into()
}

/// The frame of such bytes; none where they are no frame.
pub(super) fn decode(bytes: Bytes) -> Option<Frame> {
    read_frame(v1::Frame::decode(bytes).ok()?).ok()
}
