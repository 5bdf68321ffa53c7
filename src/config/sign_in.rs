//! `[sign_in]`: agents sign in by the OAuth device flow, which a person approves in the portal. `[sign_in.template]`: people who
//! sign in by the OpenID provider get a key of their own.

use std::path::PathBuf;

use super::{
    console::ConsoleConfig,
    kinds::{path, usd},
};
use crate::domain::{
    keys::{
        template::KeyTemplate,
        terms::{KeyTerms, QuotaReset, RateLimits},
    },
    money::NanoUsd,
    settings::{Section, flag, list_of, number, one_of, optional_table, settings, text, within},
};

const DAY_SECONDS: i64 = 86_400;
const RESETS: [QuotaReset; 4] = [
    QuotaReset::None,
    QuotaReset::Daily,
    QuotaReset::Weekly,
    QuotaReset::Monthly,
];

settings! {
    /// `[sign_in]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct SignInConfig {
        /// Whether Claude Code may sign in to this gateway with its `/login`, which shows a code that a person approves in the
        /// portal with their key. Claude Code offers this only for gateways in private networks; see docs/sign-in.md.
        enabled: bool = flag(false),
        /// How long an agent's token is valid before it must be refreshed.
        access_seconds: i64 = number(3600, 60..=DAY_SECONDS),
        /// How long a sign-in lasts; then a person must approve a new one.
        sign_in_seconds("days"): i64 = number(30, 1..=365).map(|days: i64| days * DAY_SECONDS),
        /// Maximum number of codes that wait for approval at this node; beyond it no sign-in can begin.
        codes_max: usize = number(1000, 1..=100_000),
        /// Settings for all signed-in agents: a JSON object as in Claude Code's managed-settings.json.
        managed_settings: Option<PathBuf> = path().optional("managed-settings.json"),
        /// With this table, people sign in at the portal by the provider of [console.openid], where the redirect address
        /// https://GATEWAY/portal/openid/return must be registered. At the first sign-in, each person gets one key with these
        /// terms; see docs/sign-in.md.
        template: Option<KeyTemplate> = optional_table::<TemplateSection>().map(|section| section.map(KeyTemplate::from)),
    }
}

settings! {
    /// `[sign_in.template]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct TemplateSection {
        /// The account that pays.
        account: String = text().fits("needs an account that pays", |account| !account.is_empty()).example("people"),
        /// What each key may spend per period, in USD. Without it: no limit.
        quota_usd: Option<NanoUsd> = usd().optional("20"),
        /// When the quota is reset: none, daily, weekly or monthly.
        reset: Option<QuotaReset> = one_of("reset", RESETS.map(|reset| (reset.as_str(), reset))).optional("monthly"),
        /// The models it may use. Without it: all.
        models: Option<Vec<String>> = list_of(text()).optional(vec!["claude-haiku-4-5"]),
        /// Requests per minute.
        rpm: Option<u64> = within(1..=RateLimits::MAX).optional(60),
        /// Tokens per minute.
        tpm: Option<u64> = within(1..=RateLimits::MAX).optional(200_000),
        /// Concurrent requests.
        concurrency: Option<u64> = within(1..=RateLimits::MAX).optional(4),
        /// The provider's groups whose members get a key. Without it: everybody who can sign in there.
        groups: Option<Vec<String>> = list_of(text()).optional(vec!["engineering"]),
    } checked by quota_begins_anew
}

impl From<TemplateSection> for KeyTemplate {
    fn from(section: TemplateSection) -> Self {
        Self {
            account: section.account,
            models: section.models,
            terms: KeyTerms {
                quota: section.quota_usd,
                reset: section.reset.unwrap_or_default(),
                rates: RateLimits {
                    rpm: section.rpm,
                    tpm: section.tpm,
                    concurrency: section.concurrency,
                },
                ..KeyTerms::default()
            },
            groups: section.groups,
        }
    }
}

fn quota_begins_anew(read: TemplateSection, from: &Section<'_>) -> TemplateSection {
    if read.quota_usd.is_none() && read.reset.is_some_and(|reset| reset != QuotaReset::None) {
        let message = "only a quota can be reset: set quota_usd, or remove this line";
        from.report_fault("reset", &["quota_usd"], message);
    }
    read
}

/// Reports a sign-in without the portal settings that it needs.
pub(super) fn has_portal(sign_in: &SignInConfig, console: &ConsoleConfig, from: &Section<'_>) {
    if sign_in.enabled && !console.portal {
        let message = "needs the portal, where people approve a sign-in: remove [console] portal = false";
        from.report_fault("sign_in.enabled", &["console.portal"], message);
    }
    if sign_in.template.is_some() && !(console.portal && console.openid.is_some()) {
        let message = "is for people who sign in at the portal by the OpenID provider: set [console.openid], and keep the portal on";
        from.report_fault("sign_in.template", &["console.portal", "console.openid"], message);
    }
}
