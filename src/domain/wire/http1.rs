//! Checks HTTP/1.1 requests (RFC 9112) before any other parser reads them: the form of the head, and where the body ends.
//!
//! If two parsers read the same bytes differently, one request can pass as another (request smuggling). Everything that
//! RFC 9112 leaves to the recipient's judgement is therefore refused here.

pub mod chunked;
pub mod head;
