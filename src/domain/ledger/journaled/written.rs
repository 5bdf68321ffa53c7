//! Writes records as bytes, in the form that [`super`] describes.

use smol_str::SmolStr;

use crate::domain::{
    ledger::{
        AccountChange, Settlement, Step,
        consumption::{CostShare, PriceModifiers, RequestTransport, Row},
        daily_sums::Sums,
        ids::Tag,
        journaled::{AdmittedRequest, Checkpoint, Record, RecordWriter, VERSION, has, kind, without_zeros},
        lease::LeaseId,
    },
    wire::usage::{RunKind, Usage, UsageSource},
};

impl Record {
    /// Appends the record's bytes to `out`.
    ///
    /// # Errors
    /// The same errors as [`serde_json::to_writer`].
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        match self {
            Self::Admit(admitted) => {
                let AdmittedRequest {
                    row,
                    tokens_estimated,
                    lease,
                } = &**admitted;
                out.extend([VERSION, kind::ADMIT]);
                without_zeros(out, |to| to.row(row, *tokens_estimated, lease.as_ref()));
            }
            Self::Checkpoints(checkpoints) => {
                Self::write_checkpoints(checkpoints, usize::MAX, out);
            }
            Self::Step {
                account,
                step:
                    Step {
                        seq,
                        change: AccountChange::Settle(settlement),
                    },
            } if write_settlement(account, *seq, settlement, out) => {}
            Self::Step { .. } => {
                out.extend([VERSION, kind::STEP]);
                return serde_json::to_writer(out, self);
            }
            Self::Key { .. } | Self::KeyGone { .. } | Self::Account { .. } => {
                out.extend([VERSION, kind::OTHER]);
                return serde_json::to_writer(out, self);
            }
        }
        Ok(())
    }

    /// Appends the bytes of a [`Record::Checkpoints`] that contains as many of the checkpoints as fit into `bytes_max` bytes.
    /// Returns the number of these checkpoints. Appends nothing if it is 0.
    pub(crate) fn write_checkpoints(checkpoints: &[Checkpoint], bytes_max: usize, out: &mut Vec<u8>) -> usize {
        let begin = out.len();
        out.extend([VERSION, kind::CHECKPOINTS]);
        for (count, checkpoint) in checkpoints.iter().enumerate() {
            let end = out.len();
            without_zeros(out, |to| to.checkpoint(checkpoint));
            if out.len() - begin > bytes_max {
                out.truncate(if count == 0 { begin } else { end });
                return count;
            }
        }
        checkpoints.len()
    }
}

/// Appends a step with a settlement, if the settlement has a binary form. Returns whether it has one.
fn write_settlement(account: &str, seq: u64, settlement: &Settlement, out: &mut Vec<u8>) -> bool {
    let Settlement {
        request,
        key,
        at_ms,
        tokens_estimated,
        lease,
        row,
        ..
    } = settlement;
    let lease = lease.as_ref();
    match row {
        Some(row) if row.account == account && settlement.matches_row(row) => {
            out.extend([VERSION, kind::CHARGE]);
            without_zeros(out, |to| {
                to.number(seq);
                to.row(row, *tokens_estimated, lease);
            });
            true
        }
        None if settlement.is_free() => {
            out.extend([VERSION, kind::RELEASE]);
            without_zeros(out, |to| {
                to.number(seq);
                to.text(account);
                to.text(request);
                to.text(key.as_str());
                to.signed(*at_ms);
                to.number(*tokens_estimated);
                to.number(flag(lease.is_some(), has::LEASE));
                to.lease(lease);
            });
            true
        }
        Some(_) | None => false,
    }
}

const fn flag(is_there: bool, flag: u64) -> u64 {
    if is_there { flag } else { 0 }
}

impl Row {
    /// Appends the row's bytes in the form of the journal to `out`.
    pub(crate) fn write_bytes(&self, out: &mut Vec<u8>) {
        without_zeros(out, |to| to.row(self, 0, None));
    }
}

impl Sums {
    /// Appends the bytes of the sums to `out`, in the form of the embedded ledger's file.
    pub(crate) fn write_bytes(&self, out: &mut Vec<u8>) {
        without_zeros(out, |to| {
            to.number(self.requests);
            to.number(self.errors);
            to.signed(self.cost_nano_usd.nanos());
            to.number(self.digest);
            to.usage(&self.usage);
        });
    }
}

impl RecordWriter<'_> {
    fn row(&mut self, row: &Row, tokens_estimated: u64, lease: Option<&LeaseId>) {
        let Row {
            time_ms,
            admitted_ms,
            request_id,
            account,
            key_id,
            protocol,
            model_asked,
            model,
            provider,
            status,
            outcome,
            stream,
            tags,
            usage,
            usage_source,
            parts,
            modifiers,
            price_version,
            cost_nano_usd,
            latency_ms,
            ttft_ms,
            hold_nano_usd,
            attempts,
            transport,
            translated,
            losses,
        } = row;
        self.number(
            flags_of(modifiers, parts, *ttft_ms)
                | flags_of_way(*transport, translated.is_some(), losses)
                | flag(*stream, has::STREAM)
                | flag(hold_nano_usd.is_some(), has::HOLD)
                | flag(attempts.is_some(), has::ATTEMPTS)
                | flag(!tags.is_empty(), has::TAGS)
                | flag(lease.is_some(), has::LEASE),
        );
        self.signed(*time_ms);
        self.signed(*admitted_ms);
        for text in [request_id, account] {
            self.text(text);
        }
        self.text(key_id.as_str());
        for text in [protocol, model_asked, model, provider, outcome, price_version] {
            self.text(text);
        }
        self.number(u64::from(*status));
        self.usage(usage);
        self.source(*usage_source);
        self.signed(cost_nano_usd.nanos());
        self.number(*latency_ms);
        self.number(tokens_estimated);
        self.optional_row_fields(modifiers, parts, *ttft_ms);
        if let Some(hold) = hold_nano_usd {
            self.signed(hold.nanos());
        }
        if let Some(attempts) = attempts {
            self.number(u64::from(*attempts));
        }
        self.list(tags.iter().map(Tag::as_str));
        if let Some(translated) = translated {
            self.text(translated);
        }
        self.list(losses.iter().map(SmolStr::as_str));
        self.lease(lease);
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) {
        let Checkpoint {
            request,
            status,
            usage,
            source,
            modifiers,
            parts,
            cost,
            provider,
            latency_ms,
            ttft_ms,
            attempts,
        } = checkpoint;
        self.number(flags_of(modifiers, parts, *ttft_ms));
        self.text(request);
        self.text(provider);
        self.number(u64::from(*status));
        self.usage(usage);
        self.source(*source);
        self.signed(cost.nanos());
        self.number(*latency_ms);
        self.number(u64::from(*attempts));
        self.optional_row_fields(modifiers, parts, *ttft_ms);
    }

    /// Appends the fields whose flags [`flags_of`] sets.
    fn optional_row_fields(&mut self, modifiers: &PriceModifiers, parts: &[CostShare], ttft_ms: Option<u64>) {
        let PriceModifiers {
            service_tier,
            speed,
            geo,
        } = modifiers;
        for text in [service_tier, speed, geo].into_iter().flatten() {
            self.text(text);
        }
        if !parts.is_empty() {
            self.number(parts.len() as u64);
            parts.iter().for_each(|part| self.part(part));
        }
        if let Some(ttft_ms) = ttft_ms {
            self.number(ttft_ms);
        }
    }

    fn part(&mut self, part: &CostShare) {
        let CostShare {
            run,
            model,
            usage,
            priced_as,
            price_version,
            above_input_tokens,
            cost_nano_usd,
        } = part;
        self.number(flag(priced_as.is_some(), has::PRICED_AS) | flag(price_version.is_some(), has::PRICE_VERSION));
        self.number(index_in(&RunKind::ALL, *run));
        self.text(model);
        self.usage(usage);
        self.number(*above_input_tokens);
        self.signed(cost_nano_usd.nanos());
        for text in [priced_as, price_version].into_iter().flatten() {
            self.text(text);
        }
    }

    /// Appends a number that contains one bit for each count in the usage. A bit is set if its count is more than zero. Then
    /// appends the counts that are more than zero.
    fn usage(&mut self, usage: &Usage) {
        let parts = usage.parts();
        let there = parts
            .iter()
            .rev()
            .fold(0, |there, count| (there << 1) | u64::from(*count > 0));
        self.number(there);
        for count in parts.into_iter().filter(|count| *count > 0) {
            self.number(count);
        }
    }

    fn source(&mut self, source: UsageSource) {
        self.number(index_in(&UsageSource::ALL, source));
    }

    /// Appends the number of strings and the strings. Appends nothing for an empty list, because its flag is not set.
    fn list<'t>(&mut self, texts: impl ExactSizeIterator<Item = &'t str>) {
        if texts.len() > 0 {
            self.number(texts.len() as u64);
            texts.for_each(|text| self.text(text));
        }
    }

    fn lease(&mut self, lease: Option<&LeaseId>) {
        if let Some(LeaseId { holder, number }) = lease {
            self.text(holder.as_str());
            self.number(*number);
        }
    }
}

/// Returns the flags of the fields that [`RecordWriter::optional_row_fields`] writes.
fn flags_of(modifiers: &PriceModifiers, parts: &[CostShare], ttft_ms: Option<u64>) -> u64 {
    flag(modifiers.service_tier.is_some(), has::SERVICE_TIER)
        | flag(modifiers.speed.is_some(), has::SPEED)
        | flag(modifiers.geo.is_some(), has::GEO)
        | flag(!parts.is_empty(), has::PARTS)
        | flag(ttft_ms.is_some(), has::TTFT)
}

/// Returns the flags for three fields: the transport by which the request arrived, its translation, and the losses of the
/// translation.
fn flags_of_way(transport: RequestTransport, is_translated: bool, losses: &[SmolStr]) -> u64 {
    flag(transport == RequestTransport::WebSocket, has::WEB_SOCKET)
        | flag(is_translated, has::TRANSLATED)
        | flag(!losses.is_empty(), has::LOSSES)
}

/// Returns the index of `one` in `all`. `all` must contain it.
fn index_in<T: Copy + PartialEq>(all: &[T], one: T) -> u64 {
    all.iter().take_while(|other| **other != one).count() as u64
}
