//! Collects the messages of a socket. The same limits on size, memory and time apply as for request bodies. A message that
//! exceeds a limit is read completely, but not stored.

use std::time::Instant;

use bytes::{Bytes, BytesMut};

use crate::{
    config::limits::BodiesConfig,
    domain::{
        faults::{BodyTime, refusal::Refusal},
        keys::secret::KeyDigest,
    },
    edges::{body_budget::BodyReservation, clock, limiter::ClientAddress},
    gateway::request::{
        body::{self, BodyResources},
        read_body,
    },
};

/// A message that has arrived completely.
#[derive(Debug)]
pub(crate) struct CompleteMessage {
    /// The length of the message in bytes, even if the message was not stored.
    pub length: u64,
    /// The text with the reservation of its memory. If the message was not stored, this is the refusal that is sent to the client
    /// instead.
    pub content: Result<(Bytes, BodyReservation), Refusal>,
}

/// Collects the pieces of the socket's messages, one message at a time.
pub(crate) struct MessageReader {
    bodies: BodyResources,
    key: KeyDigest,
    address: Option<ClientAddress>,
    /// Boxed, because idle sockets have none.
    current: Option<Box<IncompleteMessage>>,
}

/// A message that is arriving.
struct IncompleteMessage {
    /// The number of bytes that have arrived.
    received: u64,
    /// The announced length in bytes; `None` if the message arrives in fragments.
    length: Option<u64>,
    bytes_max: u64,
    time: BodyTime,
    content: Result<(BytesMut, BodyReservation), Refusal>,
}

impl IncompleteMessage {
    /// Adds a piece. Drops the entire message if it exceeds a limit.
    fn push(&mut self, piece: &[u8]) {
        self.received += piece.len() as u64;
        self.time.on_moved(piece.len(), clock::instant);
        if self.received > self.bytes_max {
            self.refuse_size();
        }
        let added = match &mut self.content {
            Err(_) => return,
            Ok((text, lease)) => {
                let grown = body::grow_lease(lease, piece.len());
                if grown.is_ok() {
                    read_body::extend(text, piece, self.length);
                }
                grown
            }
        };
        if let Err(refusal) = added {
            self.content = Err(refusal);
        }
    }

    fn refuse_size(&mut self) {
        self.content = Err(Refusal::BodyTooLarge {
            limit_bytes: self.bytes_max,
        });
    }
}

impl MessageReader {
    /// Creates a reader for a socket that was opened with this key. `address` is the client's address; `None` if many clients
    /// share the address.
    pub(crate) fn new(bodies: BodyResources, key: KeyDigest, address: Option<ClientAddress>) -> Self {
        Self {
            bodies,
            key,
            address,
            current: None,
        }
    }

    /// Whether a message is arriving.
    pub(crate) fn is_open(&self) -> bool {
        self.current.is_some()
    }

    /// Begins a message. `length` is its announced length in bytes; `None` if no length is announced.
    pub(crate) fn begin(&mut self, length: Option<u64>, limits: &BodiesConfig) {
        let mut message = IncompleteMessage {
            received: 0,
            length,
            bytes_max: limits.bytes_max as u64,
            time: BodyTime::new(limits.time(), clock::instant()),
            content: Ok((BytesMut::new(), self.reservation())),
        };
        if length.is_some_and(|length| length > message.bytes_max) {
            message.refuse_size();
        }
        self.current = Some(Box::new(message));
    }

    /// Adds a piece of the message.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        if let Some(message) = &mut self.current {
            message.push(piece);
        }
    }

    /// Ends the message and returns it. Returns `None` if no message has begun.
    pub(crate) fn finish(&mut self) -> Option<CompleteMessage> {
        let IncompleteMessage {
            received,
            length,
            content,
            ..
        } = *self.current.take()?;
        Some(CompleteMessage {
            length: length.unwrap_or(received),
            content: content.map(|(text, lease)| (text.freeze(), lease)),
        })
    }

    /// Returns the time by which the next piece of the message must have arrived; `None` if no message is arriving.
    pub(crate) fn due(&mut self) -> Option<Instant> {
        let message = self.current.as_mut()?;
        Some(message.time.begin_wait(clock::instant()))
    }

    /// Returns an empty reservation of memory for this socket's key and address.
    pub(crate) fn reservation(&self) -> BodyReservation {
        self.bodies.lease(self.key, self.address)
    }
}
