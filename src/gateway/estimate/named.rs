//! The models that a body names in addition to the requested one. If the provider does not say which of them it ran, the most
//! expensive one is charged.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::domain::{
    catalogue::{Catalogue, route::PricedEndpoint},
    ledger::consumption::PriceModifiers,
    money::price::{OtherModel, Price},
    wire::{
        json_scan::NamedModels,
        model_name,
        protocol::Protocol,
        usage::{Run, RunKind},
    },
};

/// The further models that a body names, each a candidate for runs that the provider does not attribute.
#[derive(Clone, Debug, Default)]
pub(super) struct CandidateModels {
    models: Vec<CandidateModel>,
}

#[derive(Clone, Debug)]
struct CandidateModel {
    /// The name in the body, without a resource prefix.
    name: SmolStr,
    /// Whether it answers when the requested one declines.
    is_fallback: bool,
}

impl CandidateModels {
    pub(super) fn new(models: &NamedModels, protocol: Protocol, body: &[u8]) -> Self {
        let named = models.names(body).map(|(name, is_fallback)| CandidateModel {
            name: model_name::without_resource(protocol, &name).into(),
            is_fallback,
        });
        Self {
            models: named.collect(),
        }
    }

    /// Whether one of them may have done a run of this kind.
    pub(super) fn may_run(&self, kind: RunKind) -> bool {
        self.candidates(kind).next().is_some()
    }

    /// The most expensive of the models that may have done this run; `None` for the requested one. A model that is not in the
    /// catalogue counts as the provider's most expensive one, unless the run is the answer, which the requested model usually
    /// gives.
    pub(super) fn most_expensive(
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
