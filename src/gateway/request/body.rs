//! A request's body, which stays in memory until no attempt can need it any more, and the resources that all bodies share.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    config::GatewayConfig,
    domain::{
        faults::refusal::{BodyShare, Refusal},
        keys::secret::KeyDigest,
        rules::{self, BodyRules, RequestFacts},
        translation::reasoning::ReasoningMaker,
        wire::json_scan::Scan,
    },
    edges::{
        body_budget::{BodyBudget, BodyHolder, BodyLimits, BodyReservation, NoRoom},
        limiter::ClientAddress,
    },
    gateway::{
        coding::Coding,
        request::{
            body_work::{BodyWork, KeyWork, TURN_WAIT_MAX, WorkShare},
            translation::RequestTranslation,
        },
    },
    providers::pools::Probing,
};

/// A request's body in memory, with its share of the process-wide budget.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// The body to send: decoded, and edited for the current provider.
    pub bytes: Bytes,
    /// The body before any edit; `None` if it is not stored, because no other provider can need it.
    original: Option<Bytes>,
    /// The route index of the endpoint for which the body has been edited; `None` before the first edit.
    edited_for: Option<usize>,
    /// The translation that produced `bytes`; `None` if the provider speaks the client's protocol.
    translation: Option<Arc<RequestTranslation>>,
    /// The way in which the body's end is delimited.
    pub form: BodyFraming,
    /// The number of bytes received from the client, before decoding and edits.
    pub received: usize,
    /// The content coding in which the body arrived; `None` if it was uncompressed.
    coding: Option<Coding>,
    /// The body's share of the process-wide memory budget; returned on drop.
    lease: BodyReservation,
}

/// The way in which the end of a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// A declared length delimits the body. All of the body has been read.
    Sized,
    /// The framing of HTTP delimits the body. The JSON value is complete, but the end of the body may not have arrived yet.
    Open,
}

/// The size of Pingora's replay buffer in bytes (`BODY_BUF_LIMIT` in Pingora's source).
pub(super) const REPLAY_BYTES_MAX: usize = 64 * 1024;

impl RequestBody {
    /// Creates a body from the client's bytes, which are already decoded.
    pub(crate) fn new(
        bytes: Bytes,
        form: BodyFraming,
        received: usize,
        coding: Option<Coding>,
        lease: BodyReservation,
    ) -> Self {
        Self {
            bytes,
            original: None,
            edited_for: None,
            translation: None,
            form,
            received,
            coding,
            lease,
        }
    }

    /// Stores a copy of the client's body, so that the original can be edited for another provider.
    pub(crate) fn keep_original(&mut self) {
        self.original = Some(self.bytes.clone());
    }

    /// Whether the body has been edited for the endpoint with this route index. If the body is translated, it must also have been
    /// translated for reasoning whose origin is `maker`.
    pub(crate) fn is_edited_for(&self, endpoint: usize, maker: Option<&ReasoningMaker>) -> bool {
        let is_same = match (&self.translation, maker) {
            (Some(translation), Some(maker)) => translation.is_for(maker),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        self.edited_for == Some(endpoint) && is_same
    }

    /// The translation of the body; `None` if the provider speaks the client's protocol.
    pub(crate) fn translation(&self) -> Option<&Arc<RequestTranslation>> {
        self.translation.as_ref()
    }

    /// Undoes all edits.
    ///
    /// # Errors
    /// The body was edited and the original is not stored.
    pub(crate) fn restore(&mut self) -> Result<(), Refusal> {
        if self.edited_for.take().is_some() {
            self.bytes = self.original.clone().ok_or(Refusal::Internal)?;
            self.translation = None;
        }
        Ok(())
    }

    /// Applies a provider's edits to the client's body, or to `translated` if the request is translated. `endpoint` is the route
    /// index of the provider's endpoint. The memory budget counts the edited copy, and also the original if it is stored for
    /// another provider.
    pub(crate) fn edit_for(
        &mut self,
        endpoint: usize,
        edits: &BodyRules,
        (facts, scan): (&RequestFacts<'_>, &Scan),
        translated: Option<(String, RequestTranslation)>,
    ) -> Result<(), Refusal> {
        let refused = |error: rules::EditError| Refusal::BodyInvalid {
            reason: error.to_string(),
        };
        let edited = match translated {
            None => rules::edit_body(edits, facts, &self.bytes, scan).map_err(refused)?,
            Some((text, translation)) => {
                self.translation = Some(Arc::new(translation));
                let edited = rules::edit_body(edits, facts, text.as_bytes(), &Scan::default()).map_err(refused)?;
                Some(edited.unwrap_or_else(|| text.into_bytes()))
            }
        };
        if let Some(edited) = edited {
            let kept = self.original.as_ref().map_or(0, Bytes::len);
            let held = usize::try_from(self.lease.bytes()).unwrap_or(usize::MAX);
            grow_lease(&mut self.lease, (edited.len() + kept).saturating_sub(held))?;
            self.bytes = edited.into();
        }
        self.edited_for = Some(endpoint);
        Ok(())
    }

    /// Whether the body arrived compressed.
    pub(crate) fn is_coded(&self) -> bool {
        self.coding.is_some()
    }

    /// Whether the body can be sent again after it was sent once.
    pub(crate) fn can_resend(&self) -> bool {
        // Pingora can replay at most this number of bytes. At a further attempt, it calls the body's hook only if it can replay
        // them.
        self.form == BodyFraming::Sized || self.received <= REPLAY_BYTES_MAX
    }

    /// Returns whether a request with this body is allowed to be a probe. It is allowed only if the body can be sent to another
    /// provider after a failed probe.
    pub(crate) fn probing(&self) -> Probing {
        match self.can_resend() {
            true => Probing::Allowed,
            false => Probing::Never,
        }
    }

    /// Checks and discards bytes that follow the part of the body that has been read. Only white space can follow a JSON value,
    /// and nothing can follow a compressed stream.
    ///
    /// # Errors
    /// Returns the refusal if other bytes follow, or if the body exceeds `bytes_max`.
    pub(crate) fn accept_rest(&mut self, rest: &[u8], bytes_max: usize) -> Result<(), Refusal> {
        self.received = self.received.saturating_add(rest.len());
        match self.coding {
            None if !rest.iter().all(u8::is_ascii_whitespace) => Err(Refusal::BodyInvalid {
                reason: "after the JSON object, more data begins".to_owned(),
            }),
            Some(coding) if !rest.is_empty() => Err(Refusal::BodyEncodingInvalid {
                encoding: coding.as_str(),
            }),
            _ if self.received > bytes_max => Err(Refusal::BodyTooLarge {
                limit_bytes: bytes_max as u64,
            }),
            _ => Ok(()),
        }
    }
}

/// The memory and the processor time that the bodies of all requests share. Clones share the same resources.
#[derive(Clone, Debug)]
pub(crate) struct BodyResources {
    budget: BodyBudget,
    work: BodyWork,
}

impl BodyResources {
    /// Creates unused resources with the configured limits.
    pub(crate) fn new(config: &GatewayConfig) -> Self {
        let limits = &config.bodies;
        let share = WorkShare::new(config.threads, limits.work_key_percent);
        Self {
            budget: BodyBudget::new(BodyLimits {
                bytes_max: limits.budget_bytes,
                key_bytes_max: limits.key_bytes_max(),
                address_bytes_max: limits.address_bytes_max(),
            }),
            work: BodyWork::new(share, TURN_WAIT_MAX),
        }
    }

    /// Creates an empty lease of memory for a body that this key sends from this address. `address` is `None` if many clients
    /// share the address.
    pub(crate) fn lease(&self, key: KeyDigest, address: Option<ClientAddress>) -> BodyReservation {
        self.budget.reservation(BodyHolder {
            key: *key.as_bytes(),
            address,
        })
    }

    /// Returns the handle for the work on one body. The work counts toward the limit and the debt of this key.
    pub(crate) fn work(&self, key: KeyDigest) -> KeyWork {
        self.work.for_key(key)
    }

    /// The number of bytes of the memory budget that are in use now.
    pub(crate) fn bytes(&self) -> u64 {
        self.budget.in_use()
    }
}

/// Reserves memory for `bytes` more bytes of a body.
///
/// # Errors
/// Returns the refusal for the limit that is reached.
pub(crate) fn grow_lease(lease: &mut BodyReservation, bytes: usize) -> Result<(), Refusal> {
    lease.grow(bytes as u64).map_err(|no_room| {
        let limits = lease.limits();
        match no_room {
            NoRoom::All => Refusal::BodyBudgetExhausted,
            NoRoom::Key => Refusal::BodyShareUsed {
                whose: BodyShare::Key,
                bytes_max: limits.key_bytes_max,
            },
            NoRoom::Address => Refusal::BodyShareUsed {
                whose: BodyShare::Address,
                bytes_max: limits.address_bytes_max,
            },
        }
    })
}
