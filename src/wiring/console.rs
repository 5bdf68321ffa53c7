//! Builds the operators' console and the owners' portal from this process's parts.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use tokio::sync::watch;

use crate::{
    admin::Admin,
    config::Config,
    console::{
        Alerts, AlertsReply, Console, Doors, LinkAddress, Links, Site, Source,
        listener::ConsoleHandler,
        oauth::OAuth,
        openid::{OpenId, OpenIdSettings},
        portal::{People, Portal},
    },
    domain::{
        faults::stability::{Hour, Window},
        rules::RuleFile,
    },
    edges::clock,
    front::layers::Layers,
    providers::live::LiveCell,
    side::{ops::Ready, service::Bound},
    stability::Snapshots,
    store::{KeyStore, time::StoreTime},
    telemetry::attention::Attention,
    wiring::{
        StartError, catalogue,
        front_service::{self, FrontService},
        listeners::{CONSOLE, Listeners},
        log_postgres::pem,
        parts::Parts,
        store,
    },
};

/// How long this node's troubles are told again to all who look, before it is looked anew.
const TROUBLES_FRESH: Duration = Duration::from_secs(1);

/// The admin API, with links into the console if there is one.
pub(super) fn state(state: Admin, parts: &Parts) -> (Admin, Option<Arc<Links>>) {
    if parts.config.console.listen.is_none() {
        return (state, None);
    }
    let links = Arc::new(Links::default());
    (state.with_console(Arc::clone(&links) as _), Some(links))
}

/// The portal, unless it is switched off. `openid` is for people who get a key of the template.
pub(super) fn portal(parts: &Parts, state: &Admin, openid: Option<OpenId>) -> Option<Arc<Portal>> {
    let config = &parts.config;
    let people = config.sign_in.template.clone().zip(openid);
    let people = people.map(|(template, openid)| People::new(openid, template));
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

/// The OpenID provider, if it is configured.
///
/// # Errors
/// The client's secret is not there, or nobody is trusted to verify the provider's certificate.
pub(super) fn openid(parts: &Parts) -> Result<Option<OpenId>, StartError> {
    let Some(config) = &parts.config.console.openid else {
        return Ok(None);
    };
    let secret = config.client_secret.as_ref();
    let settings = OpenIdSettings {
        issuer: config.issuer.clone(),
        client_id: config.client_id.clone(),
        client_secret: store::required("[console.openid]", "client_secret", secret)?,
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

/// Prometheus, if its address is configured.
///
/// # Errors
/// Nobody is trusted to verify its certificate.
pub(super) fn alerts(parts: &Parts) -> Result<Option<Alerts>, StartError> {
    let Some(url) = &parts.config.console.prometheus_url else {
        return Ok(None);
    };
    let alerts = Alerts::new(url, authorities(parts)?.as_deref());
    let alerts = alerts.map_err(|error| StartError::Configuration(format!("[console] prometheus_url: {error}")));
    alerts.map(Some)
}

/// The content of the file with the certificate authorities that are trusted besides the platform's.
fn authorities(parts: &Parts) -> Result<Option<Vec<u8>>, StartError> {
    let file = parts.config.upstream.ca_file.as_deref();
    file.map(|path| pem("[upstream] ca_file", path)).transpose()
}

/// The console's service, if it is configured, and the watch that tells where it listens.
pub(super) fn service(
    parts: &Parts,
    state: Admin,
    (links, openid, alerts): (Option<Arc<Links>>, Option<OpenId>, Option<Alerts>),
    (ready, gateway): (&Ready, &watch::Receiver<Bound>),
    listeners: &Listeners,
    closing: ShutdownWatch,
) -> Option<(FrontService<ConsoleHandler>, watch::Receiver<Bound>)> {
    let config = &parts.config;
    let (listen, links) = (listeners.address(CONSOLE, config.console.listen?), links?);
    let gateway = address(
        config.console.gateway_url.as_ref(),
        parts.tls.gateway.is_some(),
        gateway,
    );
    let reads = Reads {
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
    let doors = Doors::new(Arc::clone(&links), openid, trusted.clone(), clock::instant());
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
    links.lead_to(address(config.console.url.as_ref(), speaks_tls, &bound));
    Some((service, bound))
}

/// Where browsers reach a listener that speaks TLS or not.
fn site(config: &Config, tls: bool, url: Option<&str>) -> Site {
    Site::new(tls, config.stability.trusted_proxies.clone(), url)
}

fn address(configured: Option<&String>, tls: bool, bound: &watch::Receiver<Bound>) -> LinkAddress {
    configured.map_or_else(
        || LinkAddress::Listener {
            tls,
            bound: bound.clone(),
        },
        |url| LinkAddress::Configured(url.clone()),
    )
}

/// What the console reads of this process.
struct Reads {
    live: Arc<LiveCell>,
    snapshots: Arc<Snapshots>,
    time: Arc<StoreTime>,
    store: Arc<dyn KeyStore>,
    ready: Ready,
    attention: Arc<Attention>,
    alerts: Option<Alerts>,
    gateway: LinkAddress,
    /// What was found last, and when: all samplers run for it.
    troubles: Mutex<Option<(Instant, Vec<String>)>>,
}

impl Reads {
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

impl Source for Reads {
    fn window(&self) -> Option<Window> {
        let snapshot = self.snapshots.get()?;
        let live = self.live.get();
        let names = live.catalogue.models().map(|model| model.name.as_str());
        let now = Hour::of_ms(self.time.now_ms(clock::instant()));
        Some(Window::new(now, names, &snapshot.buckets))
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
        // What cannot be read has been told by the reload, and by `weir check`.
        catalogue::rule_files(&config).unwrap_or_default()
    }

    fn gateway(&self) -> String {
        self.gateway.base().unwrap_or_default()
    }
}
