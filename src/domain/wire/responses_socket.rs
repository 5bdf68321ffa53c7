//! Responses over WebSocket, without any input or output. A client's frame becomes the body of a `POST /v1/responses`
//! ([`client_frame`]), the answer's events and errors become frames ([`server_frame`]), and the conversations that clients
//! continue by the id of a response are stored within limits ([`conversations`]).

pub(crate) mod client_frame;
pub(crate) mod conversations;
pub(crate) mod server_frame;
