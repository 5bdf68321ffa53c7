//! The settings of the operators' console and the portal of keys' owners (`[console]`), and of the sign-in of agents
//! (`[sign_in]`).

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use http::Uri;

use crate::{
    config::{address, gateway::TlsConfig, is_unencrypted, is_web_url, names_user, path, usd, web_address},
    domain::{
        catalogue::{SecretRef, secret},
        keys::{
            change::KeyTemplate,
            terms::{KeyTerms, QuotaReset, RateLimits},
        },
        money::NanoUsd,
        settings::{
            Section, SettingKind, flag, list_of, map_of, number, one_of, optional_table, settings, table, text, within,
        },
        sign_in::Role,
    },
};

settings! {
    /// The section `[console]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct ConsoleConfig {
        /// The address of the console for operators' browsers, IP:PORT. `weir console open` prints a link that opens a session.
        /// Off by default. Without a certificate, only loopback addresses are allowed. See docs/console.md.
        listen: Option<SocketAddr> = address().optional("127.0.0.1:8083"),
        /// The console's URL for browsers, SCHEME://HOST[:PORT], if the console is behind a proxy. From this URL, weir derives
        /// the allowed origin of forms, the beginning of links, and whether cookies are for TLS only. [console.openid] needs this
        /// setting unless the console listens on a loopback address. If not set, weir uses the host that each request names, and
        /// links begin with the listener's own address. See docs/proxies.md.
        url: Option<String> = origin().optional("https://console.example.com"),
        /// The gateway's URL for browsers, SCHEME://HOST[:PORT], if the gateway is behind a proxy. weir uses it for the portal,
        /// and in the examples that are displayed with a new key. If not set, the portal uses the host that each request names,
        /// and the examples contain the gateway's own address.
        gateway_url: Option<String> = origin().optional("https://api.example.com"),
        /// Whether the gateway's port serves /portal, where the owner of a key signs in with the key and sees its usage.
        portal: bool = flag(true),
        /// The URL of Prometheus, SCHEME://HOST[:PORT] with an optional path. If set, the console's overview lists the alerts of
        /// Prometheus, some of which concern all nodes or are computed from rates. If not set, the overview displays only the
        /// alerts that this node computes from its own metrics. See docs/console.md.
        prometheus_url: Option<Uri> = prometheus().optional("http://127.0.0.1:9090"),
        /// The OpenID provider with which operators can sign in. They can still use the links of `weir console open` as well.
        /// Register the console at the provider as a client, with the redirect address `url`/openid/return. See docs/console.md.
        openid: Option<OpenIdConfig> = optional_table(),
        /// The certificates of the console's listener.
        tls: TlsConfig = table(),
    } checked by is_reached_safely
}

/// A setting with a web origin, `SCHEME://HOST[:PORT]`, without a path.
fn origin() -> SettingKind<String> {
    const HINT: &str = "not an address, give SCHEME://HOST[:PORT] without a path, such as https://console.example.com";
    text()
        .map(|text| text.trim_end_matches('/').to_owned())
        .fits(HINT, |text| {
            let url = text.parse::<Uri>();
            let names_no_user = |url: &Uri| url.authority().is_some_and(|host| !host.as_str().contains('@'));
            url.is_ok_and(|url| is_web_url(&url) && names_no_user(&url) && url.path() == "/" && url.query().is_none())
        })
}

/// A setting with the URL of Prometheus, `SCHEME://HOST[:PORT][/PATH]`, without a user or a query.
fn prometheus() -> SettingKind<Uri> {
    const HINT: &str = "not an address, give SCHEME://HOST[:PORT], without a user, such as http://127.0.0.1:9090";
    web_address(HINT).fits(HINT, |url| url.query().is_none())
}

fn is_reached_safely(read: ConsoleConfig, from: &Section<'_>) -> ConsoleConfig {
    const NO_LISTENER: &str = "has no effect without a listener: set [console] listen, or remove this setting";
    let is_here = read.listen.is_some_and(|listen| listen.ip().is_loopback());
    match read.listen {
        None if read.tls.is_on() => from.report_fault("tls", &["listen"], NO_LISTENER),
        Some(_) if !read.tls.is_on() && !is_here => from.report_fault(
            "listen",
            &["tls.certificate"],
            "without TLS, others on the network could read sessions: listen on loopback (behind a proxy with TLS if necessary), or add a \
             [[console.tls.certificate]]",
        ),
        Some(_) | None => {}
    }
    match read.listen {
        _ if read.openid.is_none() => {}
        None => from.report_fault("openid", &["listen"], NO_LISTENER),
        Some(_) if read.url.is_none() && !is_here => from.report_fault(
            "openid",
            &["url"],
            "the provider sends browsers back to the console: set [console] url to the console's address, such as https://console.example.com",
        ),
        Some(_) => {}
    }
    read
}

settings! {
    /// The section `[console.openid]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct OpenIdConfig {
        /// The provider's issuer URL, exactly as in the provider's metadata document. weir reads this document from the issuer
        /// URL with /.well-known/openid-configuration appended.
        issuer: String = text()
            .fits(
                "must be the issuer's URL as in the provider's metadata, with https unless it is on this machine, such as \
                 https://login.example.com",
                |issuer| is_issuer(issuer),
            )
            .example("https://login.example.com"),
        /// The client id with which weir is registered at the provider.
        client_id: String = text()
            .fits("must be the client id with which weir is registered at the provider", |id| {
                !id.is_empty() && !id.chars().any(char::is_control)
            })
            .example("weir"),
        /// The secret of weir's client id. If not set, weir is a public client.
        client_secret: Option<SecretRef> = secret().optional("file:console-openid"),
        /// The scopes to request. `openid` is always requested. Many providers send groups only if a scope for them is requested.
        scopes: Vec<String> = list_of(text().fits("a scope is one word, such as \"groups\"", |scope| is_scope(scope)))
            .map(with_openid)
            .or(vec!["openid", "profile", "email"]),
        /// The claim that contains a user's groups. weir reads the claim from the ID token or, if the token does not contain it,
        /// from the response of the userinfo endpoint.
        groups_claim: String = text().or("groups"),
        /// The role for the members of each group: viewer, operator or owner. A user with several roles gets the highest; a user
        /// without a role cannot sign in.
        roles: Vec<(String, Role)> = map_of(one_of("role", Role::ALL.map(|role| (role.as_str(), role))))
            .map(|roles| roles.into_iter().collect())
            .unset(Vec::new())
            .example(BTreeMap::from([("weir-owners".to_owned(), "owner"), ("weir-operators".to_owned(), "operator")])),
    } checked by somebody_may_sign_in
}

/// Whether `scope` is a valid scope name (RFC 6749, section 3.3).
fn is_scope(scope: &str) -> bool {
    let fits = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    !scope.is_empty() && scope.bytes().all(fits)
}

fn with_openid(mut scopes: Vec<String>) -> Vec<String> {
    if !scopes.iter().any(|scope| scope == "openid") {
        scopes.insert(0, "openid".to_owned());
    }
    scopes
}

fn is_issuer(text: &str) -> bool {
    let Ok(url) = text.parse::<Uri>() else { return false };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_web_url(&url) && (is_here || !is_unencrypted(&url)) && !names_user(&url) && !text.contains(['?', '#'])
}

fn somebody_may_sign_in(read: OpenIdConfig, from: &Section<'_>) -> OpenIdConfig {
    if read.roles.is_empty() {
        let message = "nobody may sign in: name groups in [console.openid.roles], such as weir-owners = \"owner\"";
        from.report_fault("roles", &[], message);
    }
    read
}

const DAY_SECONDS: i64 = 86_400;
const RESETS: [QuotaReset; 4] = [
    QuotaReset::None,
    QuotaReset::Daily,
    QuotaReset::Weekly,
    QuotaReset::Monthly,
];

settings! {
    /// The section `[sign_in]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct SignInConfig {
        /// Whether Claude Code can sign in to this gateway with its command `/login`. The command displays a code, which a user
        /// approves in the portal with their key. Claude Code offers this only for gateways in private networks; see
        /// docs/sign-in.md.
        enabled: bool = flag(false),
        /// How long an agent's token is valid before it must be refreshed.
        access_seconds: i64 = number(3600, 60..=DAY_SECONDS),
        /// How long a sign-in is valid. After this time, a user must approve a new one.
        sign_in_seconds("days"): i64 = number(30, 1..=365).map(|days: i64| days * DAY_SECONDS),
        /// Maximum number of codes that wait for approval at this node; beyond it, no sign-in can begin.
        codes_max: usize = number(1000, 1..=100_000),
        /// A file with settings for all signed-in agents: a JSON object as in Claude Code's managed-settings.json.
        managed_settings: Option<PathBuf> = path().optional("managed-settings.json"),
        /// If this table is present, users sign in at the portal with the OpenID provider of [console.openid]. Register the
        /// redirect address https://GATEWAY/portal/openid/return at this provider. At the first sign-in, each user gets one key
        /// with the terms in this table; see docs/sign-in.md.
        template: Option<KeyTemplate> = optional_table::<TemplateSection>().map(|section| section.map(KeyTemplate::from)),
    }
}

settings! {
    /// The section `[sign_in.template]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct TemplateSection {
        /// The account that pays for the keys.
        account: String = text().fits("empty, give the account that pays for the keys", |account| !account.is_empty()).example("people"),
        /// The amount that each key may spend per period, in USD. If not set: no limit.
        quota_usd: Option<NanoUsd> = usd().optional("20"),
        /// When a key's quota is reset: none, daily, weekly or monthly.
        reset: Option<QuotaReset> = one_of("reset", RESETS.map(|reset| (reset.as_str(), reset))).optional("monthly"),
        /// The models that each key may use. If not set: all.
        models: Option<Vec<String>> = list_of(text()).optional(vec!["claude-haiku-4-5"]),
        /// Maximum number of requests per minute for each key. If not set: no limit.
        rpm: Option<u64> = within(1..=RateLimits::MAX).optional(60),
        /// Maximum number of tokens per minute for each key. If not set: no limit.
        tpm: Option<u64> = within(1..=RateLimits::MAX).optional(200_000),
        /// Maximum number of concurrent requests for each key. If not set: no limit.
        concurrency: Option<u64> = within(1..=RateLimits::MAX).optional(4),
        /// Groups of users at the OpenID provider. Only members of these groups get a key. If not set: every user who can sign in
        /// at the provider gets a key.
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

/// Reports the sign-in settings that cannot work because the portal or the OpenID provider is not configured.
pub(super) fn has_portal(sign_in: &SignInConfig, console: &ConsoleConfig, from: &Section<'_>) {
    if sign_in.enabled && !console.portal {
        let message = "needs the portal, where users approve a sign-in: remove [console] portal = false";
        from.report_fault("sign_in.enabled", &["console.portal"], message);
    }
    if sign_in.template.is_some() && !(console.portal && console.openid.is_some()) {
        let message =
            "needs the portal and its OpenID provider: set [console.openid], and remove [console] portal = false";
        from.report_fault("sign_in.template", &["console.portal", "console.openid"], message);
    }
}
