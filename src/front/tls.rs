//! TLS of weir's own listeners: which certificate a client gets, which clients are accepted, and how both are replaced at run
//! time.
//!
//! It reads no files: `wiring::tls` reads them, [`Certificate::read`](certificate::Certificate::read) gets their content.

pub(crate) mod certificate;
mod choice;
pub(crate) mod listener;
pub(crate) mod names;
