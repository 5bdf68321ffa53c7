//! Checks HTTP/1.1 requests (RFC 9112) before any other parser reads them: validates the head, and finds the end of the body.
//!
//! If two parsers read the same bytes differently, one request can pass as another (request smuggling). weir therefore refuses
//! everything that RFC 9112 leaves to the recipient's judgement.

pub mod chunked;
pub mod head;
