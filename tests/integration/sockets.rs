//! Responses over WebSocket: each `response.create` on a socket is authenticated, billed and recorded like a POST, and the socket
//! ends as clients expect it. The tests of known defects of other gateways say which defect in their comments.

mod billing;
mod continuation;
mod crash;
mod drain;
mod frames;
mod handshake;
mod hostile;
mod keys;
mod lanes;
mod leaving;
mod lifetime;
mod provider;
mod provider_ends;
mod provider_lines;
mod provider_stage;
mod sdk;
mod sizes;
mod stage;
mod turns;
