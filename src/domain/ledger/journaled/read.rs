//! Reads records from their bytes.

use smol_str::SmolStr;

use crate::domain::{
    keys::KeyId,
    ledger::{
        AccountChange, Settlement, Step,
        consumption::{CostShare, PriceModifiers, RequestTransport, Row},
        daily_sums::Sums,
        ids::{NodeId, Tag},
        journaled::{AdmittedRequest, Checkpoint, Record, RecordReader, VERSION, has, kind},
        lease::LeaseId,
    },
    money::NanoUsd,
    wire::usage::{RunKind, Usage, UsageSource},
};

impl Record {
    /// Whether these are the bytes of a [`Record::Step`].
    pub(crate) fn is_step(bytes: &[u8]) -> bool {
        matches!(bytes, [VERSION, kind::CHARGE | kind::RELEASE | kind::STEP, ..])
    }

    /// Reads a record from its bytes, in the form that [`Record::write`] writes; `None` if the bytes are not those of a record.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let [VERSION, form, fields @ ..] = bytes else {
            return None;
        };
        if let kind::STEP | kind::OTHER = *form {
            return serde_json::from_slice(fields).ok();
        }
        let mut from = RecordReader(fields);
        let record = match *form {
            kind::ADMIT => {
                let (row, tokens_estimated, lease) = from.row()?;
                Self::Admit(Box::new(AdmittedRequest {
                    row: row.into(),
                    tokens_estimated,
                    lease,
                }))
            }
            kind::CHECKPOINTS => {
                let mut checkpoints = Vec::new();
                while !from.is_at_end() {
                    checkpoints.push(from.checkpoint()?);
                }
                Self::Checkpoints(checkpoints)
            }
            kind::CHARGE => {
                let seq = from.number()?;
                let (row, tokens_estimated, lease) = from.row()?;
                let account = row.account.clone();
                Self::settle_step(account, seq, Settlement::of(row, tokens_estimated).with_lease(lease))
            }
            kind::RELEASE => {
                let (seq, account, request) = (from.number()?, from.text()?, from.text()?);
                let key = from.key()?;
                let (at_ms, tokens_estimated) = (from.signed()?, from.number()?);
                let flags = from.number()?;
                let settlement = Settlement::without_charge(request, key, at_ms, tokens_estimated);
                Self::settle_step(account, seq, settlement.with_lease(from.lease(flags)?))
            }
            _ => return None,
        };
        from.is_at_end().then_some(record)
    }

    fn settle_step(account: SmolStr, seq: u64, settlement: Settlement) -> Self {
        let change = AccountChange::Settle(Box::new(settlement));
        Self::Step {
            account,
            step: Step { seq, change },
        }
    }
}

/// Reads a record from its bytes and writes it again; `None` if the bytes are not those of a record. Used by fuzzing.
pub fn reread(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut again = Vec::new();
    Record::read(bytes)?.write(&mut again).ok()?;
    Some(again)
}

/// The optional fields that rows and checkpoints have in common.
struct OptionalRowFields {
    modifiers: PriceModifiers,
    parts: Vec<CostShare>,
    ttft_ms: Option<u64>,
}

impl Sums {
    /// Reads sums from bytes that [`Sums::write_bytes`] has written; `None` for any other bytes.
    pub(crate) fn read_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = RecordReader(bytes);
        let sums = Self {
            requests: from.number()?,
            errors: from.number()?,
            cost_nano_usd: from.amount()?,
            digest: from.number()?,
            usage: from.usage()?,
        };
        from.is_at_end().then_some(sums)
    }
}

impl RecordReader<'_> {
    fn row(&mut self) -> Option<(Row, u64, Option<LeaseId>)> {
        let flags = self.number()?;
        let (time_ms, admitted_ms) = (self.signed()?, self.signed()?);
        let (request_id, account) = (self.text()?, self.text()?);
        let key_id = self.key()?;
        let (protocol, model_asked, model) = (self.text()?, self.text()?, self.text()?);
        let (provider, outcome, price_version) = (self.text()?, self.text()?, self.text()?);
        let status = u16::try_from(self.number()?).ok()?;
        let usage = self.usage()?;
        let usage_source = self.source()?;
        let cost_nano_usd = self.amount()?;
        let (latency_ms, tokens_estimated) = (self.number()?, self.number()?);
        let OptionalRowFields {
            modifiers,
            parts,
            ttft_ms,
        } = self.optional_row_fields(flags)?;
        let row = Row {
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
            stream: flags & has::STREAM != 0,
            usage,
            usage_source,
            parts,
            modifiers,
            price_version,
            cost_nano_usd,
            latency_ms,
            ttft_ms,
            hold_nano_usd: self.read_if(flags & has::HOLD, Self::amount)?,
            attempts: self.read_if(flags & has::ATTEMPTS, |from| u32::try_from(from.number()?).ok())?,
            tags: self.list(flags & has::TAGS, |from| from.text_as(Tag::parse))?,
            transport: match flags & has::WEB_SOCKET {
                0 => RequestTransport::Http,
                _ => RequestTransport::WebSocket,
            },
            translated: self.read_if(flags & has::TRANSLATED, Self::text)?,
            losses: self.list(flags & has::LOSSES, Self::text)?,
        };
        Some((row, tokens_estimated, self.lease(flags)?))
    }

    fn checkpoint(&mut self) -> Option<Checkpoint> {
        let flags = self.number()?;
        let (request, provider) = (self.text()?, self.text()?);
        let status = u16::try_from(self.number()?).ok()?;
        let usage = self.usage()?;
        let source = self.source()?;
        let cost = self.amount()?;
        let latency_ms = self.number()?;
        let attempts = u32::try_from(self.number()?).ok()?;
        let OptionalRowFields {
            modifiers,
            parts,
            ttft_ms,
        } = self.optional_row_fields(flags)?;
        Some(Checkpoint {
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
        })
    }

    fn optional_row_fields(&mut self, flags: u64) -> Option<OptionalRowFields> {
        let modifiers = PriceModifiers {
            service_tier: self.read_if(flags & has::SERVICE_TIER, Self::text)?,
            speed: self.read_if(flags & has::SPEED, Self::text)?,
            geo: self.read_if(flags & has::GEO, Self::text)?,
        };
        Some(OptionalRowFields {
            modifiers,
            parts: self.list(flags & has::PARTS, Self::part)?,
            ttft_ms: self.read_if(flags & has::TTFT, Self::number)?,
        })
    }

    fn part(&mut self) -> Option<CostShare> {
        let flags = self.number()?;
        let run = self.one_of(&RunKind::ALL)?;
        let string = |from: &mut Self| from.text_as(|text| Some(text.to_owned()));
        Some(CostShare {
            run,
            model: string(self)?,
            usage: self.usage()?,
            above_input_tokens: self.number()?,
            cost_nano_usd: self.amount()?,
            priced_as: self.read_if(flags & has::PRICED_AS, string)?,
            price_version: self.read_if(flags & has::PRICE_VERSION, string)?,
        })
    }

    fn usage(&mut self) -> Option<Usage> {
        let mut there = self.number()?;
        let mut parts = [0; Usage::NAMES.len()];
        for count in &mut parts {
            if there & 1 == 1 {
                *count = self.number()?;
            }
            there >>= 1;
        }
        (there == 0).then(|| Usage::from_parts(parts))
    }

    fn source(&mut self) -> Option<UsageSource> {
        self.one_of(&UsageSource::ALL)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(usize::try_from(self.number()?).ok()?).copied()
    }

    fn amount(&mut self) -> Option<NanoUsd> {
        self.signed().map(NanoUsd::from_nanos)
    }

    fn key(&mut self) -> Option<KeyId> {
        self.text_as(|text| KeyId::parse(text).ok())
    }

    fn lease(&mut self, flags: u64) -> Option<Option<LeaseId>> {
        self.read_if(flags & has::LEASE, |from| {
            let holder = from.text_as(NodeId::parse)?;
            let number = from.number()?;
            Some(LeaseId { holder, number })
        })
    }

    /// Reads a field with `read` if its flag is set. The inner `None` means that the flag is not set. The outer `None` means that
    /// the field cannot be read.
    fn read_if<T>(&mut self, flag: u64, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if flag == 0 {
            return Some(None);
        }
        read(self).map(Some)
    }

    /// Reads a list if its flag is set; otherwise returns an empty list. `None` means that the list cannot be read.
    fn list<T>(&mut self, flag: u64, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = if flag == 0 { 0 } else { self.number()? };
        (0..count).map(|_| read(self)).collect()
    }
}
