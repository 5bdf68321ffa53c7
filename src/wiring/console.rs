//! Builds the operators' console and the key owners' portal from the parts of this process.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    admin::{Admin, AdminPeer},
    api::{AdminError, log::ListLatestRows},
    config::Config,
    console::{
        Alerts, AlertsReply, Console, ConsoleHandler, ConsoleSource, LinkAddress, Links, SignInMethods, Site,
        oauth::OAuth,
        openid::{OpenId, OpenIdSettings},
        portal::{OidcSignIn, Portal},
    },
    domain::{
        faults::stability::{Hour, StabilityWindow},
        keys::KeyRecord,
        rules::RuleFile,
    },
    edges::clock,
    front::Layers,
    gateway::reply::own_usage::LastRows,
    providers::CurrentConfig,
    side::{ReadinessSource, service::BoundAddress},
    stability::Snapshots,
    store::{KeyStore, time::StoreTime},
    telemetry::attention::AttentionMonitor,
    wiring::{
        StartError, catalogue,
        front_service::{self, FrontService},
        listeners::{CONSOLE, ListeningSockets},
        log_sinks::pem,
        parts::NodeParts,
        store,
    },
};

/// The time for which the list of this node's problems is reused for all users of the console.
const TROUBLES_FRESH: Duration = Duration::from_secs(1);

/// Lets the admin API issue links that open the console, if the console is configured. Returns the API and the links.
pub(super) fn with_links(state: Admin, parts: &NodeParts) -> (Admin, Option<Arc<Links>>) {
    if parts.config.console.listen.is_none() {
        return (state, None);
    }
    let links = Arc::new(Links::default());
    (state.with_console(Arc::clone(&links) as _), Some(links))
}

/// Builds the portal. `None` if it is off. Users who sign in at the provider `openid` get a key that is created from the template
/// `[sign_in.template]`.
pub(super) fn portal(parts: &NodeParts, state: &Admin, openid: Option<OpenId>) -> Option<Arc<Portal>> {
    let config = &parts.config;
    let people = config.sign_in.template.clone().zip(openid);
    let people = people.map(|(template, openid)| OidcSignIn::new(openid, template));
    let oauth = parts.sign_ins.as_ref().map(|sign_ins| {
        let prefix = config.gateway.key_prefix.clone();
        OAuth::new(Arc::clone(sign_ins), prefix, clock::instant())
    });
    let portal = || {
        Portal::new(
            (Arc::clone(&parts.store), Arc::clone(&parts.web_sessions)),
            state.clone(),
            config.gateway.key_prefix.clone(),
            site(
                config,
                parts.tls.gateway.is_some(),
                config.console.gateway_url.as_deref(),
            ),
            clock::instant(),
        )
        .with_agents(oauth)
        .with_people(people)
    };
    config.console.portal.then(|| Arc::new(portal()))
}

/// Builds the client of the OpenID provider. `None` if none is configured.
///
/// # Errors
/// The client secret is missing, or there are no CA certificates to verify the provider's certificate.
pub(super) fn openid(parts: &NodeParts) -> Result<Option<OpenId>, StartError> {
    let Some(config) = &parts.config.console.openid else {
        return Ok(None);
    };
    let secret = config.client_secret.as_ref();
    let settings = OpenIdSettings {
        issuer: config.issuer.clone(),
        client_id: config.client_id.clone(),
        client_secret: store::required_secret("[console.openid]", "client_secret", secret)?,
        scopes: config.scopes.clone(),
        groups_claim: config.groups_claim.clone(),
        roles: config.roles.clone(),
        ca: authorities(parts)?,
    };
    let sessions = Arc::clone(&parts.web_sessions);
    let openid = OpenId::new(settings, sessions, clock::instant());
    let openid = openid.map_err(|error| StartError::Configuration(format!("[console.openid]: {error}")));
    openid.map(Some)
}

/// Builds the client of Prometheus. `None` if its URL is not configured.
///
/// # Errors
/// There are no CA certificates to verify Prometheus' certificate.
pub(super) fn alerts(parts: &NodeParts) -> Result<Option<Alerts>, StartError> {
    let Some(url) = &parts.config.console.prometheus_url else {
        return Ok(None);
    };
    let alerts = Alerts::new(url, authorities(parts)?.as_deref());
    let alerts = alerts.map_err(|error| StartError::Configuration(format!("[console] prometheus_url: {error}")));
    alerts.map(Some)
}

/// Returns the content of the configured file of CA certificates, which are trusted in addition to the platform's. `None` if no
/// file is configured.
fn authorities(parts: &NodeParts) -> Result<Option<Vec<u8>>, StartError> {
    let file = parts.config.upstream.ca_file.as_deref();
    file.map(|path| pem("[upstream] ca_file", path)).transpose()
}

/// Builds the service of the console, and returns it with the receiver of the console's address. `None` if the console is not
/// configured.
pub(super) fn service(
    parts: &NodeParts,
    state: Admin,
    (links, openid, alerts): (Option<Arc<Links>>, Option<OpenId>, Option<Alerts>),
    (ready, gateway): (&ReadinessSource, &watch::Receiver<BoundAddress>),
    listeners: &ListeningSockets,
    closing: ShutdownWatch,
) -> Option<(FrontService<ConsoleHandler>, watch::Receiver<BoundAddress>)> {
    let config = &parts.config;
    let (listen, links) = (listeners.address(CONSOLE, config.console.listen?), links?);
    let gateway = link_address(
        config.console.gateway_url.as_ref(),
        parts.tls.gateway.is_some(),
        gateway,
    );
    let reads = NodeConsoleSource {
        live: Arc::clone(&parts.live),
        snapshots: Arc::clone(&parts.stability.snapshots),
        time: Arc::clone(parts.money.billing.time()),
        store: Arc::clone(&parts.store),
        ready: Arc::clone(ready),
        attention: Arc::clone(parts.attention.as_ref()?),
        alerts,
        gateway,
        troubles: Mutex::default(),
    };
    let trusted = &config.stability.trusted_proxies;
    let doors = SignInMethods::new(Arc::clone(&links), openid, trusted.clone(), clock::instant());
    let sessions = Arc::clone(&parts.web_sessions);
    let console = Console::new(state, Box::new(reads), doors, sessions);
    let tls = parts.tls.console.clone();
    let speaks_tls = tls.is_some();
    let handler = ConsoleHandler::new(console, site(config, speaks_tls, config.console.url.as_deref()));
    let layers = Layers {
        announced_by: Vec::new(),
        tls,
    };
    let (service, bound) = front_service::console(parts, listen, handler, layers, closing);
    links.set_address(link_address(config.console.url.as_ref(), speaks_tls, &bound));
    Some((service, bound))
}

/// Describes how browsers reach a listener, with or without TLS.
fn site(config: &Config, tls: bool, url: Option<&str>) -> Site {
    Site::new(tls, config.stability.trusted_proxies.clone(), url)
}

fn link_address(configured: Option<&String>, tls: bool, bound: &watch::Receiver<BoundAddress>) -> LinkAddress {
    configured.map_or_else(
        || LinkAddress::Listener {
            tls,
            bound: bound.clone(),
        },
        |url| LinkAddress::Configured(url.clone()),
    )
}

/// The source of the data about this process that the console displays.
struct NodeConsoleSource {
    live: Arc<CurrentConfig>,
    snapshots: Arc<Snapshots>,
    time: Arc<StoreTime>,
    store: Arc<dyn KeyStore>,
    ready: ReadinessSource,
    attention: Arc<AttentionMonitor>,
    alerts: Option<Alerts>,
    gateway: LinkAddress,
    /// The problems found by the most recent search, and the time of that search. They are cached because a search runs all
    /// samplers of metrics.
    troubles: Mutex<Option<(Instant, Vec<String>)>>,
}

impl NodeConsoleSource {
    fn find_troubles(&self) -> Vec<String> {
        let readiness = (self.ready)();
        let words = readiness.reasons().into_iter().chain(readiness.warnings());
        let told = words.map(|word| word.replace('_', " ")).chain(readiness.details());
        let of_store = self
            .store
            .warnings()
            .into_iter()
            .map(|warning| warning.advice().to_owned());
        let facts = self.attention.sentences(clock::unix_seconds(), clock::instant());
        told.chain(of_store).chain(facts).collect()
    }
}

impl ConsoleSource for NodeConsoleSource {
    fn window(&self) -> Option<StabilityWindow> {
        let snapshot = self.snapshots.get()?;
        let live = self.live.get();
        let names = live.catalogue.served_models().map(|model| model.name.as_str());
        let now = Hour::from_unix_ms(self.time.now_ms(clock::instant()));
        Some(StabilityWindow::new(now, names, &snapshot.buckets))
    }

    fn troubles(&self) -> Vec<String> {
        let now = clock::instant();
        let mut found = self.troubles.lock();
        match &*found {
            Some((at, troubles)) if now.saturating_duration_since(*at) < TROUBLES_FRESH => troubles.clone(),
            _ => {
                let troubles = self.find_troubles();
                *found = Some((now, troubles.clone()));
                troubles
            }
        }
    }

    fn alerts(&self) -> Option<AlertsReply> {
        let alerts = self.alerts.as_ref()?;
        Some(alerts.read(clock::instant()))
    }

    fn rule_files(&self) -> Vec<RuleFile> {
        let config: Arc<Config> = Arc::clone(&self.live.get().config);
        // An error in reading the files is ignored here, because the reload and `weir check` report it.
        catalogue::rule_files(&config).unwrap_or_default()
    }

    fn gateway(&self) -> String {
        self.gateway.base().unwrap_or_default()
    }
}

/// Reads a key's most recent rows for the API path `/web/v1/me`. It calls this process's admin API as the key's owner, as the
/// portal does.
pub(super) struct OwnerLogRows(Admin);

impl OwnerLogRows {
    pub(super) fn new(admin: Admin) -> Self {
        Self(admin)
    }

    async fn rows(&self, key: &KeyRecord, limit: usize) -> Result<Value, AdminError> {
        let asked = ListLatestRows {
            account: key.account.parse().map_err(|why: String| AdminError::failed(why))?,
            key: key.id.clone(),
            limit: Some(limit),
            lines: Some(true),
        };
        let answer = self.0.call(AdminPeer::Owner(key.id.clone()).into(), asked).await?;
        serde_json::to_value(answer.rows).map_err(|error| AdminError::failed(error.to_string()))
    }
}

#[async_trait]
impl LastRows for OwnerLogRows {
    async fn read(&self, key: &KeyRecord, limit: usize) -> Option<Value> {
        let rows = self.rows(key, limit).await;
        let told = |refused: &AdminError| tracing::warn!(error = %refused, "cannot read the most recent rows of a key; the response of /web/v1/me lacks them");
        rows.inspect_err(told).ok()
    }
}
