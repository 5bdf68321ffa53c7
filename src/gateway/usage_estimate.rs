//! Estimates the usage of a request before it is sent, and computes the consumption of a running request.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use smol_str::SmolStr;

use crate::{
    domain::{
        catalogue::{
            Catalogue, Model,
            models::{PricedEndpoint, PricedRoute},
        },
        faults::{End, refusal::Refusal},
        keys::KeyRecord,
        ledger::{
            calibration::{Estimate, output_estimate},
            consumption::{PriceModifiers, UsageSource},
        },
        money::price::{OtherModel, Price, PricedRun},
        wire::{
            json_scan::{NamedModels, Scan, input_estimate},
            operation::{self, Operation},
            protocol::{Break, Protocol},
            tokens::bill::{AnswerExtent, BilledUsage, Evidence, ModelLimits, bill},
            usage::{Run, RunKind, Usage},
        },
    },
    gateway::meter::AnswerMeter,
    money::billing::Consumption,
    providers::learnt_usage::{LearnedUsage, UsageHandle, UsageKey},
};

/// The estimator of one request's usage, which also computes the request's consumption.
#[derive(Clone, Debug)]
pub(crate) struct UsageEstimator {
    learnt: Arc<LearnedUsage>,
    /// Finds the learned values for requests of this kind in `learnt`.
    handle: UsageHandle,
    model: Arc<Model>,
    route: Arc<PricedRoute>,
    /// The catalogue at admission. Its prices apply to the entire request, whichever models run.
    catalogue: Arc<Catalogue>,
    input_scanned: u64,
    output_asked: Option<u64>,
    /// The further models that the body names, in addition to the requested one.
    named: CandidateModels,
}

/// The model of one run of a request.
enum ModelRun<'a> {
    /// The requested model, under any of its names.
    Asked,
    /// Another model of the catalogue, with its price at the provider.
    Other(&'a Arc<Model>, &'a Arc<Price>),
    /// One of the further models that the body names. The provider does not report which one.
    Unnamed,
    /// A model that is not in the catalogue. Its tokens are charged at the price of the provider's most expensive model.
    Unknown(&'a str),
}

impl UsageEstimator {
    /// Creates the estimator for a request of this key to this model, with the facts of the scanned body.
    pub(crate) fn new(
        learnt: &Arc<LearnedUsage>,
        catalogue: &Arc<Catalogue>,
        key: &KeyRecord,
        model: &Arc<Model>,
        route: Arc<PricedRoute>,
        operation: Operation,
        scan: &Scan,
    ) -> Self {
        let kind = UsageKey {
            account: &key.account,
            key: &key.id,
            model: &model.name,
            turns: scan.turns,
        };
        Self {
            learnt: Arc::clone(learnt),
            handle: learnt.handle(&kind),
            model: Arc::clone(model),
            route,
            catalogue: Arc::clone(catalogue),
            input_scanned: scan.input_tokens,
            output_asked: scan.output_limits.for_protocol(operation.protocol()),
            named: CandidateModels::default(),
        }
    }

    /// Sets the further models that the request's body names.
    pub(crate) fn set_named_models(&mut self, models: &NamedModels, protocol: Protocol, body: &[u8]) {
        self.named = CandidateModels::new(models, protocol, body);
    }

    /// The priced route to which the request was admitted.
    pub(crate) fn route(&self) -> &Arc<PricedRoute> {
        &self.route
    }

    /// Estimates the usage of the request, from which the hold is computed.
    pub(crate) fn estimate(&self, scan: &Scan) -> Estimate {
        let usual = self.learnt.typical(&self.handle);
        let factor = self.learnt.factors(&self.handle).input;
        let input = input_estimate(self.input_scanned, factor, self.model.context_tokens);
        let parts = usual.map(|usual| usual.input).unwrap_or_default();
        let output = usual.map(|usual| usual.output);
        Estimate {
            input: parts.estimate(input, self.learnt.new_tokens(&self.handle)),
            output: output_estimate(scan.output_max, output.as_ref(), self.model.output_tokens),
        }
    }

    /// Computes the consumption of the request at an endpoint of its route. `end` is `None` while the request runs.
    pub(crate) fn consumed(&self, meter: &AnswerMeter, endpoint: usize, end: Option<&End>) -> Consumption {
        let endpoint = self.route.endpoint(endpoint);
        let observed = meter.observed();
        let factors = self.learnt.factors(&self.handle);
        let runs = observed
            .as_ref()
            .map(|observed| self.with_limits(&endpoint.provider, &observed.runs));
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
            output_requested: self.output_asked,
            unlimited: observed.as_ref().map(|observed| observed.unlimited).unwrap_or_default(),
        });
        let modifiers = observed.map(|observed| observed.modifiers.clone()).unwrap_or_default();
        let runs = match self.may_be_from_fallback(&billed) {
            true => {
                let run = Run::answer(billed.usage);
                let other = self.most_expensive_named(endpoint, &run, &modifiers);
                vec![PricedRun { run, other }]
            }
            false => self.priced(endpoint, billed.runs, &modifiers),
        };
        Consumption {
            usage: billed.usage,
            source: billed.source,
            runs,
            modifiers,
        }
    }

    /// Whether it is unknown which model answered, because a fallback model may have answered instead of the requested one and
    /// the provider has not reported the model.
    fn may_be_from_fallback(&self, billed: &BilledUsage) -> bool {
        let is_unsaid =
            matches!(billed.source, UsageSource::Estimated | UsageSource::Partial) && billed.runs.is_empty();
        is_unsaid && billed.usage != Usage::default() && self.named.may_run(RunKind::Answer)
    }

    fn with_limits(&self, provider: &str, runs: &[Run]) -> Vec<(Run, ModelLimits)> {
        let limited = |run: &Run| {
            let limits = match self.model_of_run(provider, run) {
                ModelRun::Asked => limits(&self.model),
                ModelRun::Other(model, _) => limits(model),
                ModelRun::Unnamed | ModelRun::Unknown(_) => ModelLimits::default(),
            };
            (run.clone(), limits)
        };
        runs.iter().map(limited).collect()
    }

    fn most_expensive_named(
        &self,
        endpoint: &PricedEndpoint,
        run: &Run,
        modifiers: &PriceModifiers,
    ) -> Option<OtherModel> {
        self.named
            .most_expensive(&self.catalogue, endpoint, &self.model.name, run, modifiers)
    }

    /// Adds to each run the price of the model that did the run.
    fn priced(&self, endpoint: &PricedEndpoint, runs: Vec<Run>, modifiers: &PriceModifiers) -> Vec<PricedRun> {
        let priced = |run: Run| {
            let other = match self.model_of_run(&endpoint.provider, &run) {
                ModelRun::Asked => None,
                ModelRun::Unnamed => self.most_expensive_named(endpoint, &run, modifiers),
                ModelRun::Other(model, price) => Some(OtherModel {
                    name: model.name.clone(),
                    priced_as: None,
                    price: Arc::clone(price),
                }),
                ModelRun::Unknown(name) => {
                    let dearest =
                        self.catalogue
                            .most_expensive_at(&endpoint.provider, &run.usage, &modifiers.for_run(run.kind));
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

    fn model_of_run<'a>(&'a self, provider: &str, run: &'a Run) -> ModelRun<'a> {
        let Some(name) = run.model.as_deref() else {
            let is_another = matches!(run.kind, RunKind::Fallback | RunKind::Advisor) && self.named.may_run(run.kind);
            return if is_another { ModelRun::Unnamed } else { ModelRun::Asked };
        };
        match (self.catalogue.find_served(provider, name), run.kind) {
            (Some((model, _)), _) if model.name == self.model.name => ModelRun::Asked,
            (Some((model, price)), _) => ModelRun::Other(model, price),
            (None, RunKind::Answer | RunKind::Compaction) => ModelRun::Asked,
            (None, RunKind::Fallback | RunKind::Advisor) => ModelRun::Unknown(name),
        }
    }

    /// Learns from a complete answer whose usage the provider has reported.
    pub(crate) fn learn(&self, meter: &AnswerMeter) {
        // A usage report for several runs together says nothing about a single run.
        let observed = meter.observed().filter(|observed| observed.runs.is_empty());
        if let Some(usage) = observed.and_then(|observed| observed.usage) {
            self.learnt
                .learn(&self.handle, &usage, self.input_scanned, meter.output_estimate());
        }
    }
}

fn limits(model: &Model) -> ModelLimits {
    ModelLimits {
        context_tokens: model.context_tokens,
        output_tokens: model.output_tokens,
    }
}

/// Returns which part of the answer is priced. A usage report is final only if the provider itself ended its answer. It makes no
/// difference whether the client was connected at that time.
fn extent(end: Option<&End>, meter: &AnswerMeter) -> AnswerExtent {
    let has_text = meter.output_estimate() > 0;
    match end {
        Some(End::Complete) => AnswerExtent::Whole,
        Some(End::ProviderError) => AnswerExtent::Refused,
        Some(End::InBandError) if !has_text => AnswerExtent::Refused,
        Some(End::Refused(Refusal::ProviderUnreachable)) => AnswerExtent::NoAnswer,
        Some(End::Refused(
            Refusal::ProviderTimeout | Refusal::ProviderBroken | Refusal::Stopping | Refusal::Internal,
        )) => match has_text {
            true => AnswerExtent::Cut,
            false => AnswerExtent::NoAnswer,
        },
        Some(End::Refused(_)) => AnswerExtent::Refused,
        Some(End::ClientLeft) if meter.status() >= 400 => AnswerExtent::Refused,
        Some(End::ClientLeft) if meter.is_complete() => AnswerExtent::Whole,
        Some(End::ClientLeft) => AnswerExtent::ClientLeft,
        Some(End::Broken(why)) if !has_text && *why != Break::LimitReached => AnswerExtent::NoAnswer,
        Some(End::InBandError | End::Broken(_)) | None => AnswerExtent::Cut,
    }
}

/// The further models that a body names. Each of them may have done a run that the provider attributes to no model.
#[derive(Clone, Debug, Default)]
pub(crate) struct CandidateModels {
    models: Vec<CandidateModel>,
}

#[derive(Clone, Debug)]
struct CandidateModel {
    /// The model's name in the body, without a resource prefix.
    name: SmolStr,
    /// Whether the model answers when the requested one declines.
    is_fallback: bool,
}

impl CandidateModels {
    pub(crate) fn new(models: &NamedModels, protocol: Protocol, body: &[u8]) -> Self {
        let named = models.names(body).map(|(name, is_fallback)| CandidateModel {
            name: operation::without_resource(protocol, &name).into(),
            is_fallback,
        });
        Self {
            models: named.collect(),
        }
    }

    /// Whether one of the models may have done a run of this kind.
    pub(crate) fn may_run(&self, kind: RunKind) -> bool {
        self.candidates(kind).next().is_some()
    }

    /// Returns the most expensive of the models that may have done this run; `None` if that is the requested model. A model that
    /// is not in the catalogue is ignored if the requested model usually does a run of this kind. For other kinds of runs, such a
    /// model counts as the provider's most expensive model.
    pub(crate) fn most_expensive(
        &self,
        catalogue: &Catalogue,
        endpoint: &PricedEndpoint,
        asked: &str,
        run: &Run,
        modifiers: &PriceModifiers,
    ) -> Option<OtherModel> {
        let modifiers = modifiers.for_run(run.kind);
        let sum = |price: &Price| price.sum(&run.usage, &modifiers);
        let priced = self.candidates(run.kind).filter_map(|named| {
            let listed = catalogue.find_served(&endpoint.provider, &named.name);
            let unlisted = || match run.kind {
                RunKind::Answer | RunKind::Compaction => None,
                RunKind::Fallback | RunKind::Advisor => {
                    catalogue.most_expensive_at(&endpoint.provider, &run.usage, &modifiers)
                }
            };
            let is_listed = listed.is_some();
            let (model, price) = listed.or_else(unlisted)?;
            Some((model, price, (!is_listed).then_some(&named.name)))
        });
        let (model, price, unlisted) = priced.max_by_key(|(_, price, _)| sum(price))?;
        let is_asked = model.name == asked && unlisted.is_none();
        if is_asked || run.kind == RunKind::Answer && sum(&endpoint.price) >= sum(price) {
            return None;
        }
        Some(OtherModel {
            name: unlisted.map_or_else(|| model.name.clone(), ToString::to_string),
            priced_as: unlisted.map(|_| model.name.clone()),
            price: Arc::clone(price),
        })
    }

    fn candidates(&self, kind: RunKind) -> impl Iterator<Item = &CandidateModel> {
        let may_be = move |named: &&CandidateModel| match kind {
            RunKind::Answer | RunKind::Fallback => named.is_fallback,
            RunKind::Compaction => false,
            RunKind::Advisor => true,
        };
        self.models.iter().filter(may_be)
    }
}
