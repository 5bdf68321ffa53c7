//! Runs Pingora with all services.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use pingora::server::{RunArgs, Server, configuration::ServerConf};
use tempfile::NamedTempFile;
use tokio::{runtime::Runtime, sync::watch};

use crate::{
    config::Config,
    domain::{
        catalogue::{Catalogue, Model},
        rules::Provider,
        strict_toml::nearest,
        wire::protocol::Protocol,
    },
    edges::{clock, switches::Switches},
    money::account_changes::journaled::JournaledChanges,
    providers::{
        live::LiveCell,
        pools::{CredentialState, PassedOver, Pool},
    },
    side::{
        admin::{self, AdminState, CredentialView, ModelView, PassedOverView, ProviderView, Providers},
        audit::Audit,
        ops::{self, OpsState, Readiness},
        service::{Bound, SideService},
    },
    store::StoreWarning,
    wiring::{
        StartError,
        descriptors::Descriptors,
        front_service,
        listen_fds::HandedOver,
        parts::Parts,
        signals::{self, Phase, TerminationWatch},
        trust,
    },
};

/// How long listening sockets may take to be there.
const START_WAIT: Duration = Duration::from_secs(10);

/// Pingora's own count of tries; weir's rules (`upstream.rs`) end sooner.
const TRIES_MAX: usize = 16;

/// Where a running weir listens.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// The listener for clients.
    pub gateway: SocketAddr,
    /// The listener for metrics and health.
    pub ops: SocketAddr,
    /// The public stability service.
    pub stability: SocketAddr,
    /// The admin API's unix socket.
    pub admin: PathBuf,
    /// The admin API over TCP.
    pub admin_tcp: Option<SocketAddr>,
    /// The listener that sends clients to the one with TLS.
    pub redirect: Option<SocketAddr>,
}

/// A weir that serves, until [`Running::until_stopped`].
pub(crate) struct Running {
    /// The bound addresses.
    pub addresses: Addresses,
    /// The parts that it runs.
    pub parts: Parts,
    /// Where its background tasks run.
    pub background: Runtime,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) end: watch::Sender<bool>,
    pub(super) server_ended: Receiver<()>,
    _roots: Option<NamedTempFile>,
}

/// Starts everything; returns when it serves. To be called before there are threads.
pub(crate) fn start(config: Config, conf: &Path) -> Result<Running, StartError> {
    let mut listeners = vec![config.gateway.listen, config.ops.listen, config.stability.listen];
    listeners.extend(config.gateway.tls.redirect_listen);
    listeners.extend(config.admin.tcp.as_ref().map(|tcp| tcp.listen));
    let handed_over = HandedOver::take(&listeners)?;
    let background = background()?;
    let no_signals = |error| StartError::failed("listening for signals", error);
    let phase = background.block_on(async { signals::phase() }).map_err(no_signals)?;
    let parts = Parts::build(config, conf, &background)?;
    let sinks = Arc::clone(&parts.sinks);
    background
        .block_on(async { signals::reopen_logs(sinks) })
        .map_err(no_signals)?;
    let ca_file = parts.config.upstream.ca_file.as_deref();
    let roots = ca_file
        .map(trust::bundle)
        .transpose()
        .map_err(StartError::Configuration)?;

    let mut server = Server::new_with_opt_and_conf(None, server_conf(&parts.config, roots.as_ref()));
    server.bootstrap();
    let (gateway, gateway_bound) = front_service::gateway(&server.configuration, &parts);
    let (redirect, redirect_bound) = front_service::redirect(&parts, gateway_bound.clone()).unzip();
    let state = admin_state(&parts)?;
    let (admin_tcp, admin_tcp_bound) = admin_tcp_service(&parts, &state).unzip();
    let (admin, admin_bound) = admin_service(&parts, state);
    let (ops, ops_bound) = ops_service(&parts, phase.clone(), admin_bound.clone());
    let (stability, stability_bound) = front_service::stability(&parts);
    handed_over.before(&mut server, |server| {
        let mut services = vec![
            server.add_service(gateway),
            server.add_service(ops),
            server.add_service(stability),
            server.add_service(admin),
        ];
        services.extend(admin_tcp.map(|admin_tcp| server.add_service(admin_tcp)));
        services.extend(redirect.map(|redirect| server.add_service(redirect)));
        services
    });

    let end = watch::Sender::new(false);
    let told = TerminationWatch(end.subscribe());
    let (ended, server_ended) = channel();
    let serve = move || {
        server.run(RunArgs {
            shutdown_signal: Box::new(told),
        });
        // Nobody waits any more when the process ends for another reason.
        let _ = ended.send(());
    };
    std::thread::Builder::new()
        .name("server".to_owned())
        .spawn(serve)
        .map_err(|error| StartError::failed("the server's thread", error))?;
    let addresses = background.block_on(addresses(Bounds {
        gateway: gateway_bound,
        ops: ops_bound,
        stability: stability_bound,
        admin: admin_bound,
        admin_tcp: admin_tcp_bound,
        redirect: redirect_bound,
    }))?;
    Ok(Running {
        addresses,
        parts,
        background,
        phase,
        end,
        server_ended,
        _roots: roots,
    })
}

fn background() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("background")
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("background threads", error))
}

fn server_conf(config: &Config, roots: Option<&NamedTempFile>) -> ServerConf {
    ServerConf {
        threads: config.gateway.threads,
        max_retries: TRIES_MAX,
        upstream_keepalive_pool_size: Descriptors::share(config).pool,
        ca_file: roots.map(|roots| roots.path().to_string_lossy().into_owned()),
        // Pingora is told to end when the gateway has drained.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(1),
        ..ServerConf::default()
    }
}

fn ops_service(
    parts: &Parts,
    phase: watch::Receiver<Phase>,
    admin: watch::Receiver<Bound>,
) -> (SideService, watch::Receiver<Bound>) {
    let store = Arc::clone(&parts.store);
    let keys = Arc::clone(&parts.keys);
    let live = Arc::clone(&parts.live);
    let time = Arc::clone(parts.money.billing.time());
    let (billing, journal) = (parts.money.billing.clone(), Arc::clone(&parts.money.journal));
    let ready = move || Readiness {
        store_reachable: keys.store_is_reachable(),
        store_trouble: store.trouble(),
        store_rights_missing: store.warnings().contains(&StoreWarning::MissingRights),
        serves_on_grace: billing.has_grace() && keys.has_offline_keys(clock::instant()),
        journal: journal.shut(),
        admin_listening: matches!(*admin.borrow(), Bound::Unix(_)),
        providers_on: live
            .get()
            .catalogue
            .providers()
            .filter(|provider| provider.is_on())
            .count(),
        draining: *phase.borrow() != Phase::Serving,
        clock_offset_ms: time.offset_ms(clock::instant()),
    };
    let state = OpsState {
        metrics: Arc::clone(&parts.sinks.metrics),
        ready: Arc::new(ready),
    };
    SideService::http("ops", parts.config.ops.listen, ops::router(state))
}

fn admin_state(parts: &Parts) -> Result<AdminState, StartError> {
    let audit =
        Audit::open(&parts.config.admin.audit).map_err(|error| StartError::failed("the audit record", error))?;
    let prefix = parts.config.gateway.key_prefix.clone();
    Ok(AdminState::new(
        admin::Stores {
            keys: Arc::clone(&parts.store),
            ledger: Arc::clone(&parts.money.ledger),
            changes: Arc::new(JournaledChanges::new(
                Arc::clone(&parts.money.journal),
                Arc::clone(&parts.money.ledger),
                parts.money.billing.clone(),
            )),
            archive: parts.archive.clone(),
        },
        Arc::new(Served {
            live: Arc::clone(&parts.live),
            switches: Arc::clone(&parts.switches),
        }),
        prefix,
        audit,
    ))
}

fn admin_service(parts: &Parts, state: AdminState) -> (SideService, watch::Receiver<Bound>) {
    let serve = move |listener, shutdown| admin::serve(listener, state.clone(), shutdown);
    let socket = parts.config.admin.socket.clone();
    SideService::unix("admin", socket, serve)
}

/// The same over TCP, if it is configured: only with TLS.
fn admin_tcp_service(parts: &Parts, state: &AdminState) -> Option<(SideService, watch::Receiver<Bound>)> {
    let tcp = parts.config.admin.tcp.as_ref()?;
    let tls = Arc::clone(parts.tls.admin.as_ref()?);
    let serve = admin::tcp::serve(state.clone(), tls);
    Some(SideService::tcp("admin over TCP", tcp.listen, Box::new(serve)))
}

/// What the admin API shows and switches.
struct Served {
    live: Arc<LiveCell>,
    switches: Arc<Switches>,
}

impl Providers for Served {
    fn models(&self) -> Vec<ModelView> {
        models(&self.live.get().catalogue, &self.switches)
    }

    fn model_named(&self, name: &str) -> Result<String, Option<String>> {
        let live = self.live.get();
        let near = || nearest(name, live.catalogue.models().map(|model| model.name.as_str())).map(str::to_owned);
        let found = live.catalogue.named(name);
        found.map(|model| model.name.clone()).ok_or_else(near)
    }

    fn providers(&self) -> Vec<ProviderView> {
        let (live, now) = (self.live.get(), clock::instant());
        let view = |provider: &Arc<Provider>| {
            let pool = live.pools.of(&provider.name);
            let credentials = pool.map(|pool| {
                let state = |one: &Arc<CredentialState>| CredentialView {
                    name: one.credential.name.clone(),
                    rests_seconds: one.rests_until(now).map_or(0, |until| (until - now).as_secs()),
                };
                pool.credentials.iter().map(state).collect()
            });
            ProviderView {
                name: provider.name.clone(),
                display_name: provider.display_name.clone(),
                configured: provider.is_on(),
                why_off: provider.why_off(),
                enabled: !self.switches.is_off(&provider.name),
                credentials: credentials.unwrap_or_default(),
                places_ejected: pool.map_or(0, |pool| pool.ejected(now)),
                passed_over: pool.map(|pool| passed_over(pool, now)).unwrap_or_default(),
            }
        };
        live.catalogue.providers().map(view).collect()
    }

    fn switch(&self, provider: &str, on: bool) -> std::io::Result<bool> {
        self.switches.set(provider, on)
    }
}

fn passed_over(pool: &Pool, now: Instant) -> Vec<PassedOverView> {
    let view = |one: PassedOver| PassedOverView {
        model: one.upstream_model,
        asked_again_seconds: (one.until - now).as_secs(),
    };
    pool.models_passed_over(now).into_iter().map(view).collect()
}

fn models(catalogue: &Catalogue, switches: &Switches) -> Vec<ModelView> {
    let serves = |model: &&Arc<Model>| {
        let mut providers = model.providers.iter();
        providers.any(|provider| provider.is_on() && !switches.is_off(&provider.name))
    };
    let view = |model: &Arc<Model>| ModelView {
        name: model.name.clone(),
        display_name: model.display_name.clone(),
        provider: model.owner().to_owned(),
        protocols: [Protocol::Messages, Protocol::Responses, Protocol::Gemini]
            .into_iter()
            .filter(|protocol| model.serves(*protocol))
            .map(Protocol::as_str)
            .collect(),
        prices: model.prices.clone(),
    };
    catalogue.models().filter(serves).map(view).collect()
}

/// What tells where each listener is bound.
struct Bounds {
    gateway: watch::Receiver<Bound>,
    ops: watch::Receiver<Bound>,
    stability: watch::Receiver<Bound>,
    admin: watch::Receiver<Bound>,
    admin_tcp: Option<watch::Receiver<Bound>>,
    redirect: Option<watch::Receiver<Bound>>,
}

async fn addresses(bounds: Bounds) -> Result<Addresses, StartError> {
    let admin = match bound(bounds.admin).await? {
        Bound::Unix(path) => path,
        Bound::Failed(reason) => return Err(StartError::Listen(reason)),
        Bound::Waiting | Bound::Tcp(_) => return Err(of_the_wrong_kind()),
    };
    Ok(Addresses {
        gateway: tcp(bounds.gateway).await?,
        ops: tcp(bounds.ops).await?,
        stability: tcp(bounds.stability).await?,
        admin,
        admin_tcp: optional(bounds.admin_tcp).await?,
        redirect: optional(bounds.redirect).await?,
    })
}

async fn optional(watch: Option<watch::Receiver<Bound>>) -> Result<Option<SocketAddr>, StartError> {
    match watch {
        Some(watch) => tcp(watch).await.map(Some),
        None => Ok(None),
    }
}

async fn tcp(watch: watch::Receiver<Bound>) -> Result<SocketAddr, StartError> {
    match bound(watch).await? {
        Bound::Tcp(address) => Ok(address),
        Bound::Failed(reason) => Err(StartError::Listen(reason)),
        Bound::Waiting | Bound::Unix(_) => Err(of_the_wrong_kind()),
    }
}

fn of_the_wrong_kind() -> StartError {
    StartError::Listen("a listener of the wrong kind".to_owned())
}

async fn bound(mut watch: watch::Receiver<Bound>) -> Result<Bound, StartError> {
    let waiting = watch.wait_for(|bound| *bound != Bound::Waiting);
    match tokio::time::timeout(START_WAIT, waiting).await {
        Ok(Ok(bound)) => Ok(bound.clone()),
        _ => Err(StartError::Listen("a listener did not start in time".to_owned())),
    }
}
