//! `[gateway]`, `[upstream]`, `[stability]`: the listeners for clients and readers, and connections to providers.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;

use crate::{
    config::{address, limits::BodiesConfig, networks, path},
    domain::{
        catalogue::{SecretRef, secret},
        faults::MinimumSpeed,
        keys::secret::KeyPrefix,
        settings::{Section, flag, flat, millis, number, seconds, settings, table, tables, text},
    },
};

const DAY_SECONDS: u64 = 86_400;
/// Maximum number of threads by default: each has its own connections to providers, which are cold if it gets few requests.
const THREADS_BY_DEFAULT_MAX: usize = 4;
/// Pingora's own limit for a header block, in bytes.
const HEADER_BYTES_CEILING: usize = 1_048_575;
/// Pingora's own limit for header fields.
const HEADER_COUNT_CEILING: usize = 256;

settings! {
    /// `[gateway]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct GatewayConfig {
        /// The address for clients, IP:PORT. Port 0 takes a free one, which is logged.
        listen: SocketAddr = address().or("127.0.0.1:8080").restart(),
        /// Threads that serve requests. Each serves the connections that it has accepted to their end, and has its own
        /// connections to providers. 0: one per core, but at most 4, which serve tens of thousands of requests per second; with
        /// more threads and few requests, a connection to a provider is more often cold.
        threads: usize = number(0, 0..=1024).map(or_one_per_core).restart(),
        /// The prefix of every service key: 1 to 16 of a-z and 0-9. Changing it invalidates all existing keys.
        key_prefix: KeyPrefix = text()
            .then(|text| KeyPrefix::new(&text).map_err(|error| error.to_string()))
            .or("weir")
            .restart(),
        /// Maximum nesting of a request body; deeper is 400.
        json_depth_max: usize = number(256, 1..=1024),
        /// Maximum number of references to provider state in one request (items, files, containers and the like; each is
        /// checked to belong to the account); more is 400.
        references_max: usize = number(1024, 1..=65_536),
        /// Whether the session that an agent names in its own header (such as x-claude-code-session-id) becomes a tag of the
        /// request, `session=ID`, in its row and for `weir log query --tag`, in addition to the tags of x-weir-tag. There are
        /// no daily sums by session.
        session_tag: bool = flag(false),
        /// Limits of request bodies.
        bodies: BodiesConfig = flat(),
        /// Maximum size of all request header fields, in bytes; larger is 431.
        header_bytes_max: usize = number(65_536, 1024..=HEADER_BYTES_CEILING),
        /// Maximum number of request header fields; more are 431.
        header_count_max: usize = number(100, 8..=HEADER_COUNT_CEILING),
        /// How long an idle client connection stays open.
        keepalive("keepalive_seconds"): Duration = seconds(75, 1..=DAY_SECONDS),
        /// Timeout for a client to take bytes that are ready for it.
        write("write_seconds"): Duration = seconds(60, 1..=DAY_SECONDS),
        /// How long running requests may go on after SIGTERM; then each answer is ended with its protocol's error, within some
        /// seconds.
        drain("drain_seconds"): Duration = seconds(600, 0..=DAY_SECONDS).restart(),
        /// Maximum number of concurrent token counts of one key, apart from all limits on generation; more are 429. Agents send
        /// them in bursts.
        count_tokens_concurrency: usize = number(64, 1..=65_536),
        /// Load balancers that send a PROXY protocol header (version 1 or 2) with the client's address, as ADDRESS/BITS or an
        /// address. Each of their connections must begin with one; other connections must not.
        proxy_protocol_from: Vec<IpNet> = networks().restart(),
        /// The listener's certificates, and a plain listener that redirects to it.
        tls: GatewayTlsConfig = table(),
    }
}

impl GatewayConfig {
    /// The minimum speed at which a client must read its answer.
    pub(crate) fn answer_pace(&self) -> MinimumSpeed {
        MinimumSpeed {
            wait_max: self.write,
            bytes_per_second_min: self.bodies.bytes_per_second_min,
        }
    }
}

fn or_one_per_core(given: usize) -> usize {
    match given {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().min(THREADS_BY_DEFAULT_MAX)),
        given => given,
    }
}

const UPSTREAM_SECONDS_MAX: u64 = 86_400;

settings! {
    /// `[upstream]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct UpstreamConfig {
        /// Timeout for a connection to a provider, TLS included, over IPv4 or IPv6.
        connect("connect_ms"): Duration = millis(3000, 1..=600_000),
        /// Timeout for the first byte of a streamed answer.
        first_byte("first_byte_seconds"): Duration = seconds(120, 1..=UPSTREAM_SECONDS_MAX),
        /// Timeout for the first byte of a unary answer, which is generated as a whole before it begins.
        first_byte_unary("first_byte_unary_seconds"): Duration = seconds(600, 1..=UPSTREAM_SECONDS_MAX),
        /// How long the head of a success is withheld for the first event of a stream, or for the body of a unary answer. Until
        /// then the client has nothing of the answer, so a provider that breaks off or sends an error counts as failed, and the
        /// next one is tried.
        head_wait("head_wait_seconds"): Duration = seconds(5, 1..=60),
        /// Timeout for the body of an error answer; then the client gets its status without it.
        error_body("error_body_seconds"): Duration = seconds(5, 1..=60),
        /// Maximum silence within an answer.
        idle("idle_seconds"): Duration = seconds(300, 1..=UPSTREAM_SECONDS_MAX),
        /// Maximum duration of a request at the provider.
        total("total_seconds"): Duration = seconds(3600, 1..=UPSTREAM_SECONDS_MAX),
        /// How long an unused provider connection is kept. Stay below the provider's own limit.
        pool_idle("pool_idle_seconds"): Duration = seconds(50, 1..=UPSTREAM_SECONDS_MAX),
        /// Maximum number of unused provider connections; each of [gateway] threads keeps its share.
        pool_size: usize = number(256, 1..=65_536).restart(),
        /// How often a failed connect is retried, at another address of the provider if it has one.
        connect_retries: usize = number(1, 0..=10),
        /// Whether to use HTTP/2 with providers that offer it in the TLS handshake. A connection still carries one request at a
        /// time, so that a timeout or a broken connection ends only that request; at most 256 KiB of an answer wait for a slow
        /// client. HTTP/1.1 is cheaper: use this only for networks or providers that require HTTP/2.
        http2: bool = flag(false),
        /// Certificates trusted in addition to the platform's, PEM.
        ca_file: Option<PathBuf> = path().optional("ca.pem").restart(),
        /// How often the providers' names are resolved. The last good addresses are kept.
        resolve("resolve_seconds"): Duration = seconds(30, 1..=UPSTREAM_SECONDS_MAX).restart(),
        /// Timeout for resolving a name.
        resolve_timeout("resolve_timeout_ms"): Duration = millis(2000, 1..=60_000).restart(),
        /// Maximum number of detached answers: those that are read to their end although the client has left, so that their
        /// usage is known ([on_client_gone] of the provider's file). Beyond it the provider's answer is ended when its client
        /// leaves, and what is known by then is billed.
        client_gone_finish_max: usize = number(256, 0..=1_000_000).restart(),
        /// Maximum time for a detached answer after its client has left, in addition to the limits above.
        client_gone_finish("client_gone_finish_seconds"): Duration = seconds(600, 1..=UPSTREAM_SECONDS_MAX),
    }
}

settings! {
    /// `[retry]`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct RetryConfig {
        /// Whether a request also goes on to the next provider if the first does not answer in time (first_byte_seconds,
        /// first_byte_unary_seconds) or closes the connection before an answer. The first may have done the work and bill you
        /// for it; the client is charged once, for the answer it gets. Without this, the request fails (504, 502), and later
        /// ones avoid the provider.
        after_timeout: bool = flag(false),
    }
}

settings! {
    /// The certificates of a listener, in order of preference; without any it does not use TLS.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct TlsConfig {
        /// With a certificate, the listener uses TLS 1.2 and 1.3, with HTTP/2 or HTTP/1.1; without one it is plain. Give several
        /// for several names, or for one name with keys of different kinds (ECDSA, RSA, Ed25519): a client gets the first one
        /// that is valid for the requested name and that it can verify, or the first of all if none is valid for that name.
        /// Several listeners may use the same files. They are reloaded when they change; while new ones cannot be used, the old
        /// ones stay, as with the whole configuration. `weir check` shows the names of each, and when it ends.
        certificates("certificate"): Vec<CertificateConfig> = tables().restart_by(|certificates| certificates.is_empty()),
    }
}

settings! {
    /// A certificate and its key.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct CertificateConfig {
        /// The certificate, followed by the intermediate ones up to its authority's root, PEM.
        chain: PathBuf = path().example("tls/weir.example.com.pem"),
        /// Its private key, PEM, not encrypted.
        key: SecretRef = secret().example("file:tls/weir.example.com.key"),
    }
}

settings! {
    /// `[gateway.tls]`
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct GatewayTlsConfig {
        /// The address of a plain listener, IP:PORT, that redirects every request to the listener with TLS (308). Off by default.
        redirect_listen: Option<SocketAddr> = address().optional("127.0.0.1:8082").restart(),
        /// The listener's certificates.
        tls: TlsConfig = flat(),
    } checked by redirects_somewhere
}

settings! {
    /// `[admin.tls]`
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct AdminTlsConfig {
        /// The authorities of clients' certificates, PEM. A certificate from them grants full control: use a dedicated
        /// authority.
        client_ca_file: Option<PathBuf> = path().optional("tls/operators-ca.pem"),
        /// The listener's certificates.
        tls: TlsConfig = flat(),
    }
}

impl TlsConfig {
    /// Whether the listener uses TLS.
    pub(crate) fn is_on(&self) -> bool {
        !self.certificates.is_empty()
    }
}

fn redirects_somewhere(read: GatewayTlsConfig, from: &Section<'_>) -> GatewayTlsConfig {
    if read.redirect_listen.is_some() && !read.tls.is_on() {
        let message = "needs a listener with TLS to redirect to: add a [[gateway.tls.certificate]]";
        from.report_fault("redirect_listen", &["certificate"], message);
    }
    read
}

settings! {
    /// `[stability]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct StabilityConfig {
        /// The address of the public stability service, IP:PORT: the page /status, the API /web/v1/model-stability/summary, and
        /// its description /web/v1/openapi.json. It needs no authentication, and shows no numbers of requests. The gateway's
        /// port serves the same.
        listen: SocketAddr = address().or("127.0.0.1:8081"),
        /// How often the record is read from the store, and how long a response may be cached.
        refresh("refresh_seconds"): Duration = seconds(5, 1..=60),
        /// Maximum number of connections to this listener; those without a request make room for new ones. Lower if the process
        /// may not open that many files.
        connections_max: usize = number(256, 1..=1_000_000),
        /// Requests per minute from one IP address (IPv6: one /64); more is 429.
        requests_per_minute: u32 = number(120, 1..=1_000_000),
        /// Requests at once after a pause.
        burst: u32 = number(60, 1..=1_000_000),
        /// Maximum number of addresses remembered for this; those without a request for longest are forgotten first.
        addresses_max: usize = number(100_000, 1..=10_000_000),
        /// Peers whose X-Forwarded-For is trusted for the client's address, as ADDRESS/BITS or an address: list your own proxies
        /// here, or all their clients count as one, also in [key_cache.unknown].
        trusted_proxies: Vec<IpNet> = networks(),
        /// As in [gateway].
        proxy_protocol_from: Vec<IpNet> = networks(),
        /// The listener's certificates.
        tls: TlsConfig = table(),
    }
}
