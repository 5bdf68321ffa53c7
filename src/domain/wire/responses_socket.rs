//! Responses over WebSocket, without any input or output. A client's frame becomes the body of a `POST /v1/responses`
//! ([`client_frame`]), the answer's events and errors become frames ([`server_frame`]), and the conversations that clients
//! continue by the id of a response are stored within limits ([`conversations`]). At a provider's WebSocket, the body of a POST
//! becomes a frame, and the provider's frames become the answer to the POST ([`provider_frame`]).

pub(crate) mod client_frame;
pub(crate) mod conversations;
pub(crate) mod provider_frame;
pub(crate) mod server_frame;
