//! Batches for tests.

/// Writes msgpack by hand.
#[derive(Default)]
pub(super) struct MsgpackWriter(pub(super) Vec<u8>);

impl MsgpackWriter {
    pub(super) fn array(mut self, members: u32) -> Self {
        rmp::encode::write_array_len(&mut self.0, members).unwrap();
        self
    }
    pub(super) fn map(mut self, pairs: u32) -> Self {
        rmp::encode::write_map_len(&mut self.0, pairs).unwrap();
        self
    }
    pub(super) fn text(mut self, text: &str) -> Self {
        rmp::encode::write_str(&mut self.0, text).unwrap();
        self
    }
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        rmp::encode::write_bin(&mut self.0, bytes).unwrap();
        self
    }
    pub(super) fn whole(mut self, whole: i64) -> Self {
        rmp::encode::write_sint(&mut self.0, whole).unwrap();
        self
    }
    pub(super) fn large(mut self, whole: u64) -> Self {
        rmp::encode::write_uint(&mut self.0, whole).unwrap();
        self
    }
    pub(super) fn time(mut self, time: f64) -> Self {
        rmp::encode::write_f64(&mut self.0, time).unwrap();
        self
    }
    pub(super) fn nil(mut self) -> Self {
        rmp::encode::write_nil(&mut self.0).unwrap();
        self
    }
}
