//! Estimates what a request will use, before it is sent, and computes what it has consumed so far.

mod named;

use std::sync::Arc;

use crate::{
    domain::{
        catalogue::{
            Catalogue, Model,
            route::{PricedEndpoint, PricedRoute},
        },
        faults::{end::End, refusal::Refusal},
        keys::key::KeyRecord,
        ledger::{
            calibration::{Estimate, output_estimate},
            consumption::{Modifiers, UsageSource},
        },
        money::price::{OtherModel, Price, PricedRun},
        wire::{
            json_scan::{NamedModels, Scan, input_estimate},
            operation::Operation,
            protocol::{Break, Protocol},
            tokens::bill::{Billed, Evidence, Extent, Limits, bill},
            usage::{Run, RunKind, Usage},
        },
    },
    gateway::{estimate::named::Named, meter::Meter},
    money::billing::Consumed,
    providers::learnt_usage::{Handle, Kind, Learnt},
};

/// What the estimates of one request are based on.
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    learnt: Arc<Learnt>,
    /// Where it keeps what it knows of such requests.
    kind: Handle,
    model: Arc<Model>,
    route: Arc<PricedRoute>,
    /// The catalogue at admission. Its prices hold for the whole request, whichever models work on the answer.
    catalogue: Arc<Catalogue>,
    input_scanned: u64,
    output_asked: Option<u64>,
    /// The models that the body names beside the one that was asked for.
    named: Named,
}

/// The model that a run used.
enum Ran<'a> {
    /// The requested model, under any of its names.
    Asked,
    /// Another model of the catalogue, with its price at the provider.
    Other(&'a Arc<Model>, &'a Arc<Price>),
    /// One of those that the body names; the provider does not say which.
    Unnamed,
    /// A model that the catalogue does not have. Its tokens cost what those of the provider's most expensive model
    /// cost.
    Unknown(&'a str),
}

impl Basis {
    /// The basis for a request of this key to this model, with the scanned body.
    pub(crate) fn new(
        learnt: &Arc<Learnt>,
        catalogue: &Arc<Catalogue>,
        key: &KeyRecord,
        model: &Arc<Model>,
        route: Arc<PricedRoute>,
        operation: Operation,
        scan: &Scan,
    ) -> Self {
        let kind = Kind {
            account: &key.account,
            key: &key.id,
            model: &model.name,
            turns: scan.turns,
        };
        Self {
            learnt: Arc::clone(learnt),
            kind: learnt.handle(&kind),
            model: Arc::clone(model),
            route,
            catalogue: Arc::clone(catalogue),
            input_scanned: scan.input_tokens,
            output_asked: scan.output_limits.of(operation.protocol()),
            named: Named::default(),
        }
    }

    /// Adds the models that the request's body names.
    pub(crate) fn name(&mut self, models: &NamedModels, protocol: Protocol, body: &[u8]) {
        self.named = Named::new(models, protocol, body);
    }

    /// The route that the request was admitted to.
    pub(crate) fn route(&self) -> &Arc<PricedRoute> {
        &self.route
    }

    /// What the request is expected to use: the hold is computed from it.
    pub(crate) fn estimate(&self, scan: &Scan) -> Estimate {
        let usual = self.learnt.typical(&self.kind);
        let factor = self.learnt.factors(&self.kind).input;
        let input = input_estimate(self.input_scanned, factor, self.model.context_tokens);
        let parts = usual.map(|usual| usual.input).unwrap_or_default();
        let output = usual.map(|usual| usual.output);
        Estimate {
            input: parts.parts(input, self.learnt.new_tokens(&self.kind)),
            output: output_estimate(scan.output_max, output.as_ref(), self.model.output_tokens),
        }
    }

    /// What a request has consumed at an endpoint of its route. `end` is `None` while it runs.
    pub(crate) fn consumed(&self, meter: &Meter, endpoint: usize, end: Option<&End>) -> Consumed {
        let endpoint = self.route.endpoint(endpoint);
        let observed = meter.observed();
        let factors = self.learnt.factors(&self.kind);
        let runs = observed
            .as_ref()
            .map(|observed| self.limited(&endpoint.provider, &observed.runs));
        let billed = bill(&Evidence {
            reported: observed.as_ref().and_then(|observed| observed.usage),
            runs: runs.as_deref().unwrap_or_default(),
            is_full: observed
                .as_ref()
                .is_some_and(|observed| observed.usage_source == Some(UsageSource::Reported)),
            extent: extent(end, meter),
            input_scanned: self.input_scanned,
            output_observed: meter.output_estimate(),
            input_factor: factors.input,
            output_factor: factors.output,
            limits: limits(&self.model),
            output_asked: self.output_asked,
            unlimited: observed.as_ref().map(|observed| observed.unlimited).unwrap_or_default(),
        });
        let modifiers = observed.map(|observed| observed.modifiers.clone()).unwrap_or_default();
        let runs = match self.may_be_anothers(&billed) {
            true => {
                let run = Run::answer(billed.usage);
                let other = self.dearest_named(endpoint, &run, &modifiers);
                vec![PricedRun { run, other }]
            }
            false => self.priced(endpoint, billed.runs, &modifiers),
        };
        Consumed {
            usage: billed.usage,
            source: billed.source,
            runs,
            modifiers,
        }
    }

    /// Whether a model that takes the place of the one asked for may have answered, and nothing was reported that says so.
    fn may_be_anothers(&self, billed: &Billed) -> bool {
        let is_unsaid =
            matches!(billed.source, UsageSource::Estimated | UsageSource::Partial) && billed.runs.is_empty();
        is_unsaid && billed.usage != Usage::default() && self.named.may_run(RunKind::Answer)
    }

    fn limited(&self, provider: &str, runs: &[Run]) -> Vec<(Run, Limits)> {
        let limited = |run: &Run| {
            let limits = match self.ran(provider, run) {
                Ran::Asked => limits(&self.model),
                Ran::Other(model, _) => limits(model),
                Ran::Unnamed | Ran::Unknown(_) => Limits::default(),
            };
            (run.clone(), limits)
        };
        runs.iter().map(limited).collect()
    }

    fn dearest_named(&self, endpoint: &PricedEndpoint, run: &Run, modifiers: &Modifiers) -> Option<OtherModel> {
        self.named
            .dearest(&self.catalogue, endpoint, &self.model.name, run, modifiers)
    }

    /// Adds to each run the price of its model.
    fn priced(&self, endpoint: &PricedEndpoint, runs: Vec<Run>, modifiers: &Modifiers) -> Vec<PricedRun> {
        let priced = |run: Run| {
            let other = match self.ran(&endpoint.provider, &run) {
                Ran::Asked => None,
                Ran::Unnamed => self.dearest_named(endpoint, &run, modifiers),
                Ran::Other(model, price) => Some(OtherModel {
                    name: model.name.clone(),
                    priced_as: None,
                    price: Arc::clone(price),
                }),
                Ran::Unknown(name) => {
                    let dearest =
                        self.catalogue
                            .dearest_at(&endpoint.provider, &run.usage, &modifiers.of_run(run.kind));
                    dearest.map(|(model, price)| OtherModel {
                        name: name.to_owned(),
                        priced_as: Some(model.name.clone()),
                        price: Arc::clone(price),
                    })
                }
            };
            PricedRun { run, other }
        };
        runs.into_iter().map(priced).collect()
    }

    fn ran<'a>(&'a self, provider: &str, run: &'a Run) -> Ran<'a> {
        let Some(name) = run.model.as_deref() else {
            let is_another = matches!(run.kind, RunKind::Fallback | RunKind::Advisor) && self.named.may_run(run.kind);
            return if is_another { Ran::Unnamed } else { Ran::Asked };
        };
        match (self.catalogue.served_as(provider, name), run.kind) {
            (Some((model, _)), _) if model.name == self.model.name => Ran::Asked,
            (Some((model, price)), _) => Ran::Other(model, price),
            (None, RunKind::Answer | RunKind::Compaction) => Ran::Asked,
            (None, RunKind::Fallback | RunKind::Advisor) => Ran::Unknown(name),
        }
    }

    /// Learns from a complete answer with a usage report.
    pub(crate) fn learn(&self, meter: &Meter) {
        // The sum over several runs says nothing about a single one.
        let observed = meter.observed().filter(|observed| observed.runs.is_empty());
        if let Some(usage) = observed.and_then(|observed| observed.usage) {
            self.learnt
                .learn(&self.kind, &usage, self.input_scanned, meter.output_estimate());
        }
    }
}

fn limits(model: &Model) -> Limits {
    Limits {
        context_tokens: model.context_tokens,
        output_tokens: model.output_tokens,
    }
}

/// How much of the answer there is to price. A report is final only if the provider ended its answer itself, even if the
/// client had disconnected before.
fn extent(end: Option<&End>, meter: &Meter) -> Extent {
    let has_text = meter.output_estimate() > 0;
    match end {
        Some(End::Complete) => Extent::Whole,
        Some(End::ProviderError) => Extent::Refused,
        Some(End::InBandError) if !has_text => Extent::Refused,
        Some(End::Refused(Refusal::ProviderUnreachable)) => Extent::NoAnswer,
        Some(End::Refused(
            Refusal::ProviderTimeout | Refusal::ProviderBroken | Refusal::Stopping | Refusal::Internal,
        )) => match has_text {
            true => Extent::Cut,
            false => Extent::NoAnswer,
        },
        Some(End::Refused(_)) => Extent::Refused,
        Some(End::ClientLeft) if meter.status() >= 400 => Extent::Refused,
        Some(End::ClientLeft) if meter.is_complete() => Extent::Whole,
        Some(End::ClientLeft) => Extent::ClientLeft,
        Some(End::Broken(why)) if !has_text && *why != Break::LimitReached => Extent::NoAnswer,
        Some(End::InBandError | End::Broken(_)) | None => Extent::Cut,
    }
}

#[cfg(test)]
mod tests;
