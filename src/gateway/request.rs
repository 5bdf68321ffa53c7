//! What the client asks: its head and its body.

pub mod compressed_body;
pub mod gather;
pub mod head;
