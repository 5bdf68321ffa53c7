//! What a request is estimated at before it is sent, and what it has consumed as far as anybody knows.

use std::sync::Arc;

use crate::{
    billing::Consumed,
    domain::{
        calibration::output_estimate,
        catalogue::Model,
        json_scan::{Scan, Turns},
        key::{KeyId, KeyRecord},
        outcome::Outcome,
        tokens::{
            bill::{End, Evidence, bill},
            input::input_estimate,
        },
        usage::Usage,
    },
    gateway::ticket::Meter,
    usual::{Kind, Learnt},
};

/// What the estimates of one request stand on.
#[derive(Clone, Debug)]
pub struct Basis {
    learnt: Arc<Learnt>,
    account: String,
    key: KeyId,
    model: Arc<Model>,
    input_scanned: u64,
    turns: Turns,
}

impl Basis {
    /// For a request of this key to this model, whose body was scanned.
    pub fn new(learnt: &Arc<Learnt>, key: &KeyRecord, model: &Arc<Model>, scan: &Scan) -> Self {
        Self {
            learnt: Arc::clone(learnt),
            account: key.account.clone(),
            key: key.id.clone(),
            model: Arc::clone(model),
            input_scanned: scan.input_tokens,
            turns: scan.turns,
        }
    }

    /// What the request is expected to use: what is held for it.
    pub fn expected(&self, scan: &Scan) -> Usage {
        let kind = self.kind();
        let usual = self.learnt.usual(&kind);
        let factor = self.learnt.factors(&self.model.name).input;
        let input = input_estimate(self.input_scanned, factor, self.model.context_tokens);
        let parts = usual.map(|usual| usual.input).unwrap_or_default();
        let output = usual.map(|usual| usual.output);
        Usage {
            output_text: output_estimate(scan.output_max, output.as_ref(), self.model.output_tokens),
            ..parts.parts(input, self.learnt.new_tokens(&kind))
        }
    }

    fn kind(&self) -> Kind<'_> {
        Kind {
            account: &self.account,
            key: &self.key,
            model: &self.model.name,
            turns: self.turns,
        }
    }

    /// What a request has consumed; `outcome` says how it ended, `None` while it runs.
    pub fn consumed(&self, meter: &Meter, outcome: Option<Outcome>) -> Consumed {
        let observed = meter.observed();
        let factors = self.learnt.factors(&self.model.name);
        let (usage, source) = bill(&Evidence {
            reported: observed.as_ref().and_then(|observed| observed.usage),
            end: end(outcome, meter),
            input_scanned: self.input_scanned,
            output_observed: meter.output_estimate(),
            input_factor: factors.input,
            output_factor: factors.output,
            context_tokens: self.model.context_tokens,
            output_tokens_max: self.model.output_tokens,
        });
        Consumed {
            usage,
            source: Some(source),
            modifiers: observed.map(|observed| observed.modifiers.clone()).unwrap_or_default(),
        }
    }

    /// Learns from an answer that is whole and says what it consumed.
    pub fn learn(&self, meter: &Meter) {
        if let Some(usage) = meter.observed().and_then(|observed| observed.usage) {
            self.learnt
                .learn(&self.kind(), &usage, self.input_scanned, meter.output_estimate());
        }
    }
}

/// How the request ended, as far as its bill is concerned. A report counts as final only where the provider ended its
/// answer itself, be it that the client had left meanwhile.
fn end(outcome: Option<Outcome>, meter: &Meter) -> End {
    match outcome {
        Some(Outcome::Ok) => End::Whole,
        Some(Outcome::ProviderError | Outcome::CredentialRefused | Outcome::Refused) => End::Refused,
        Some(Outcome::ProviderUnreachable) => End::NoAnswer,
        Some(Outcome::ClientGone) if meter.status() >= 400 => End::Refused,
        Some(Outcome::ClientGone) if meter.is_complete() => End::Whole,
        Some(Outcome::ClientGone) => End::ClientLeft,
        Some(Outcome::ProviderTimeout | Outcome::ProviderCut | Outcome::Internal) if meter.output_estimate() == 0 => {
            End::NoAnswer
        }
        Some(Outcome::InBandError) if meter.output_estimate() == 0 => End::Refused,
        Some(
            Outcome::ProviderTimeout
            | Outcome::ProviderCut
            | Outcome::Internal
            | Outcome::InBandError
            | Outcome::LimitReached,
        )
        | None => End::Cut,
    }
}

#[cfg(test)]
mod tests;
