//! `[sign_in]`: agents sign in by the OAuth device flow, and a person approves it in the portal; `[sign_in.template]`: people whom
//! the OpenID provider vouches for get a key of their own.

use std::path::PathBuf;

use super::{
    console::ConsoleConfig,
    kinds::{path, usd},
};
use crate::domain::{
    keys::{
        template::KeyTemplate,
        terms::{KeyTerms, Rates, Reset},
    },
    money::NanoUsd,
    settings::{Section, flag, list_of, number, one_of, optional_table, settings, text, within},
};

const DAY_SECONDS: i64 = 86_400;
const RESETS: [Reset; 4] = [Reset::None, Reset::Daily, Reset::Weekly, Reset::Monthly];

settings! {
    /// `[sign_in]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct SignInConfig {
        /// Whether Claude Code may be signed in to this gateway: by its `/login`, which shows a code that a person approves in the
        /// portal with their key. It does so only with gateways of private networks. docs/sign-in.md says more.
        enabled: bool = flag(false),
        /// How long the agent's token is good before it is refreshed.
        access_seconds: i64 = number(3600, 60..=DAY_SECONDS),
        /// How long a sign-in lasts in all: then a person approves it anew.
        sign_in_seconds("days"): i64 = number(30, 1..=365).map(|days: i64| days * DAY_SECONDS),
        /// Most codes that wait for approval at this node. Beyond it nobody begins to sign in.
        codes_max: usize = number(1000, 1..=100_000),
        /// Settings for all agents that are signed in, a JSON object as in Claude Code's managed-settings.json.
        managed_settings: Option<PathBuf> = path().optional("managed-settings.json"),
        /// With this table people sign in at the portal by the provider of [console.openid], which has to let them come back to
        /// https://GATEWAY/portal/openid/return. Each gets one key, at the first sign-in, as it says here; docs/sign-in.md says more.
        template: Option<KeyTemplate> = optional_table::<TemplateSection>().map(|section| section.map(KeyTemplate::from)),
    }
}

settings! {
    /// `[sign_in.template]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct TemplateSection {
        /// The account that pays.
        account: String = text().fits("needs an account that pays", |account| !account.is_empty()).example("people"),
        /// What each key may spend in each period, in USD. Without it: no limit.
        quota_usd: Option<NanoUsd> = usd().optional("20"),
        /// When that begins anew: none, daily, weekly or monthly.
        reset: Option<Reset> = one_of("reset", RESETS.map(|reset| (reset.as_str(), reset))).optional("monthly"),
        /// The models it may use. Without it: all.
        models: Option<Vec<String>> = list_of(text()).optional(vec!["claude-haiku-4-5"]),
        /// Requests per minute.
        rpm: Option<u64> = within(1..=Rates::MAX).optional(60),
        /// Tokens per minute.
        tpm: Option<u64> = within(1..=Rates::MAX).optional(200_000),
        /// Requests at one time.
        concurrency: Option<u64> = within(1..=Rates::MAX).optional(4),
        /// The groups at the provider whose members get a key. Without it: everybody whom it vouches for.
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
                rates: Rates {
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
    if read.quota_usd.is_none() && read.reset.is_some_and(|reset| reset != Reset::None) {
        let message = "only a quota begins anew: set quota_usd, or take this out";
        from.wrong("reset", &["quota_usd"], message);
    }
    read
}

/// Notes what is missing of the portal, where people sign in.
pub(super) fn has_portal(sign_in: &SignInConfig, console: &ConsoleConfig, from: &Section<'_>) {
    if sign_in.enabled && !console.portal {
        let message = "needs the portal, where people approve it: take [console] portal = false out";
        from.wrong("sign_in.enabled", &["console.portal"], message);
    }
    if sign_in.template.is_some() && !(console.portal && console.openid.is_some()) {
        let message = "is for people who sign in at the portal by the OpenID provider: set [console.openid], and leave the portal on";
        from.wrong("sign_in.template", &["console.portal", "console.openid"], message);
    }
}
