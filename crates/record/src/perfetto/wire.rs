//! Bytes of protocol buffers: what a trace needs of them, and no more.

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

/// A message that is being written. Kept and reused, so that an event allocates nothing.
#[derive(Debug, Default)]
pub(super) struct ProtoMessage(Vec<u8>);

impl ProtoMessage {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// An integer or an enumeration; a negative one as its two's complement.
    pub(super) fn number(&mut self, field: u64, value: u64) {
        self.varint((field << 3) | VARINT);
        self.varint(value);
    }

    pub(super) fn double(&mut self, field: u64, value: f64) {
        self.varint((field << 3) | FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    pub(super) fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint((field << 3) | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Seven bits a byte, the lowest first; the highest bit says that more follow.
    fn varint(&mut self, mut value: u64) {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                self.0.push(low & 0x7f);
                return;
            }
            self.0.push(low | 0x80);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_those_of_the_documented_encoding() {
        let check = |write: fn(&mut ProtoMessage), wanted: &[u8]| {
            let mut message = ProtoMessage::default();
            write(&mut message);
            assert_eq!(message.as_bytes(), wanted);
        };
        check(|it| it.number(1, 150), &[0x08, 0x96, 0x01]);
        check(|it| it.number(58, 3), &[0xd0, 0x03, 0x03]);
        check(|it| it.number(1, 0), &[0x08, 0x00]);
        check(|it| it.number(1, 127), &[0x08, 0x7f]);
        check(|it| it.number(1, 128), &[0x08, 0x80, 0x01]);
        check(
            |it| it.number(1, (-1_i64).cast_unsigned()),
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        );
        check(|it| it.text(2, "testing"), b"\x12\x07testing");
        check(|it| it.double(44, 1.0), &[0xe1, 0x02, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        let mut inner = ProtoMessage::default();
        inner.number(1, 150);
        let mut outer = ProtoMessage::default();
        outer.message(3, &inner);
        assert_eq!(outer.as_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
    }
}
