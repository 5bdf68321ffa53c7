//! The models that a body names beside the one that was asked for, and which of them is charged where the provider does not say
//! which it ran: the dearest.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::domain::{
    catalogue::{Catalogue, route::PricedEndpoint},
    ledger::consumption::Modifiers,
    money::price::{OtherModel, Price},
    wire::{
        json_scan::NamedModels,
        model_name,
        protocol::Protocol,
        usage::{Run, RunKind},
    },
};

/// The models that a body names.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    models: Vec<NamedModel>,
}

#[derive(Clone, Debug)]
struct NamedModel {
    /// As it stands in the body.
    name: SmolStr,
    /// Whether it answers when the one that was asked for declines.
    is_fallback: bool,
}

impl Named {
    pub(super) fn new(models: &NamedModels, protocol: Protocol, body: &[u8]) -> Self {
        let named = models.names(body).map(|(name, is_fallback)| NamedModel {
            name: model_name::without_resource(protocol, &name).into(),
            is_fallback,
        });
        Self {
            models: named.collect(),
        }
    }

    /// Whether one of them may be the model of such a run, of which the provider names none.
    pub(super) fn may_run(&self, kind: RunKind) -> bool {
        self.of(kind).next().is_some()
    }

    /// The dearest of those that may be the model of this run; `None`: the model that was asked for is. What is no model of the
    /// catalogue is as dear as the provider's dearest, unless the run is the answer, which the model asked for gives as a rule.
    pub(super) fn dearest(
        &self,
        catalogue: &Catalogue,
        endpoint: &PricedEndpoint,
        asked: &str,
        run: &Run,
        modifiers: &Modifiers,
    ) -> Option<OtherModel> {
        let modifiers = modifiers.of_run(run.kind);
        let sum = |price: &Price| price.sum(&run.usage, &modifiers);
        let priced = self.of(run.kind).filter_map(|named| {
            let listed = catalogue.served_as(&endpoint.provider, &named.name);
            let unlisted = || match run.kind {
                RunKind::Answer | RunKind::Compaction => None,
                RunKind::Fallback | RunKind::Advisor => {
                    catalogue.dearest_at(&endpoint.provider, &run.usage, &modifiers)
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

    fn of(&self, kind: RunKind) -> impl Iterator<Item = &NamedModel> {
        let may_be = move |named: &&NamedModel| match kind {
            RunKind::Answer | RunKind::Fallback => named.is_fallback,
            RunKind::Compaction => false,
            RunKind::Advisor => true,
        };
        self.models.iter().filter(may_be)
    }
}
