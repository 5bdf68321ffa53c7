//! TLS of weir's own listeners: which certificate a client gets, which clients are let in, and how either is exchanged
//! while connections come in.
//!
//! It reads no files: [`Certificate::read`](certificate::Certificate::read) takes their content, `wiring::tls` reads them.

pub(crate) mod certificate;
mod choice;
pub(crate) mod listener;
pub(crate) mod names;
