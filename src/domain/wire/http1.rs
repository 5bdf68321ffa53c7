//! HTTP/1.1 messages on the wire (RFC 9112), as far as weir reads them before any other parser does: what a request's
//! head may look like, and where its body ends.
//!
//! Two parsers that read the same bytes differently let one request pass as another (request smuggling). So whatever
//! RFC 9112 leaves to the recipient's judgement is refused here.

pub mod chunked;
pub mod head;
