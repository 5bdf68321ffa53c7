//! Metrics of the providers: credentials, places, breakers.

use prometheus::{IntCounterVec, IntGaugeVec};

use super::health::Health;
use super::maker::{Maker, raise};

pub(super) struct ProviderMetrics {
    retries: IntCounterVec,
    on: IntGaugeVec,
    credential_refused: IntCounterVec,
    credentials_resting: IntGaugeVec,
    places_ejected: IntGaugeVec,
    models_passed_over: IntGaugeVec,
    passed_over: IntCounterVec,
}

/// How a provider stands on this node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProviderFigures {
    /// The number of credentials that rest.
    pub credentials_resting: usize,
    /// Addresses that are left out.
    pub places_ejected: usize,
    /// Models for which others are asked.
    pub models_passed_over: usize,
    /// Requests that went to another provider because of that, since the start.
    pub passed_over: u64,
}

impl ProviderMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            retries: make.counters(
                "weir_upstream_retries_total",
                "Further attempts at a provider for the same request.",
                &["provider", "reason"],
            )?,
            on: make.gauges("weir_provider_on", "1 while the provider is served.", &["provider"])?,
            credential_refused: make.counters(
                "weir_provider_credential_refused_total",
                "Answers of a provider that refuse weir's own credential.",
                &["provider"],
            )?,
            credentials_resting: make.gauges(
                "weir_provider_credentials_resting",
                "Credentials that are passed over after the provider limited or refused them.",
                &["provider"],
            )?,
            places_ejected: make.gauges(
                "weir_provider_places_ejected",
                "Addresses of a provider that are left out after failures in a row.",
                &["provider"],
            )?,
            models_passed_over: make.gauges(
                "weir_provider_models_passed_over",
                "Models for which a provider is passed over after failures in a row.",
                &["provider"],
            )?,
            passed_over: make.counters(
                "weir_provider_passed_over_total",
                "Requests that went to another provider at once, because of what this one failed at lately.",
                &["provider"],
            )?,
        })
    }

    /// A provider's figures begin at zero.
    pub(super) fn begin(&self, provider: &str) {
        self.on.with_label_values(&[provider]).set(0);
        self.credential_refused.with_label_values(&[provider]).reset();
        self.passed_over.with_label_values(&[provider]).reset();
    }
}

impl ProviderMetrics {
    pub(super) fn retried(&self, provider: &str, reason: &'static str) {
        self.retries.with_label_values(&[provider, reason]).inc();
    }

    pub(super) fn credential_refused(&self, provider: &str) {
        self.credential_refused.with_label_values(&[provider]).inc();
    }

    pub(super) fn is(&self, provider: &str, state: Health) {
        self.on.with_label_values(&[provider]).set(state.as_gauge());
    }

    pub(super) fn stands(&self, provider: &str, figures: ProviderFigures) {
        let provider = &[provider];
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.credentials_resting
            .with_label_values(provider)
            .set(count(figures.credentials_resting));
        self.places_ejected
            .with_label_values(provider)
            .set(count(figures.places_ejected));
        self.models_passed_over
            .with_label_values(provider)
            .set(count(figures.models_passed_over));
        raise(&self.passed_over.with_label_values(provider), figures.passed_over);
    }
}
