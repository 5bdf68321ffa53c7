//! The settings of the listeners for clients (`[gateway]`), for readers of the stability record (`[stability]`), for the admin
//! API (`[admin]`), and for metrics and health checks (`[ops]`). Also the settings of connections to providers (`[upstream]`,
//! `[retry]`) and of Responses over WebSocket (`[sockets]`).

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;

use crate::{
    config::{address, limits::BodiesConfig, networks, path},
    domain::{
        catalogue::{SecretRef, secret},
        faults::MinimumSpeed,
        keys::secret::KeyPrefix,
        settings::{Section, flag, flat, millis, number, seconds, settings, table, tables, text, within},
    },
};

const DAY_SECONDS: u64 = 86_400;
/// The largest number of threads that weir chooses by default. Each thread has its own connections to providers. If a thread gets
/// few requests, its connections become idle and are closed.
const THREADS_BY_DEFAULT_MAX: usize = 4;
/// Pingora's own maximum size of a header block, in bytes.
const HEADER_BYTES_CEILING: usize = 1_048_575;
/// Pingora's own maximum number of header fields.
const HEADER_COUNT_CEILING: usize = 256;

settings! {
    /// The section `[gateway]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct GatewayConfig {
        /// The address for clients, IP:PORT. With port 0, the system chooses a free port, which is logged.
        listen: SocketAddr = address().or("127.0.0.1:8080").restart(),
        /// The number of threads that serve requests. A thread serves each connection that it accepts until the connection
        /// closes. Each thread has its own connections to providers. 0: one thread per core, but at most 4; four threads serve
        /// tens of thousands of requests per second. With more threads and few requests, a thread less often has an open
        /// connection to the provider.
        threads: usize = number(0, 0..=1024).map(or_one_per_core).restart(),
        /// The prefix of every service key: 1 to 16 characters of a-z and 0-9. Changing it invalidates all existing keys.
        key_prefix: KeyPrefix = text()
            .then(|text| KeyPrefix::new(&text).map_err(|error| error.to_string()))
            .or("weir")
            .restart(),
        /// Maximum nesting depth of a request body. A request with a deeper body gets 400.
        json_depth_max: usize = number(256, 1..=1024),
        /// Maximum number of references to provider state (items, files, containers and the like) in one request; a request with
        /// more gets 400. For each reference, weir checks that the state belongs to the account.
        references_max: usize = number(1024, 1..=65_536),
        /// Whether weir adds the tag `session=ID` to a request if the agent sends its session id in a header such as
        /// x-claude-code-session-id. Like the tags in x-weir-tag, this tag is in the request's row, and `weir log query --tag`
        /// finds it. Unlike those tags, it has no daily sums.
        session_tag: bool = flag(false),
        /// Limits of request bodies.
        bodies: BodiesConfig = flat(),
        /// Maximum size of all header fields of a request together, in bytes. A request with larger header fields gets 431.
        header_bytes_max: usize = number(65_536, 1024..=HEADER_BYTES_CEILING),
        /// Maximum number of header fields of a request. A request with more gets 431.
        header_count_max: usize = number(100, 8..=HEADER_COUNT_CEILING),
        /// How long an idle client connection stays open.
        keepalive("keepalive_seconds"): Duration = seconds(75, 1..=DAY_SECONDS),
        /// Maximum time that weir waits for a client to read the next bytes of an answer. After that, the client counts as
        /// disconnected.
        write("write_seconds"): Duration = seconds(60, 1..=DAY_SECONDS),
        /// The time for which running requests can continue after SIGTERM. After that, weir ends each remaining answer with an
        /// error of its protocol, within some seconds.
        drain("drain_seconds"): Duration = seconds(600, 0..=DAY_SECONDS).restart(),
        /// Maximum number of concurrent token-count requests of one key; further ones get 429. The limits on generation do not
        /// apply to token counts, because agents send them in bursts.
        count_tokens_concurrency: usize = number(64, 1..=65_536),
        /// The addresses of load balancers, each as ADDRESS/BITS or ADDRESS. These load balancers send a PROXY protocol header
        /// (version 1 or 2) with the client's address. Each connection from one of them must begin with such a header; other
        /// connections must not.
        proxy_protocol_from: Vec<IpNet> = networks().restart(),
        /// TLS of the gateway's listener, and a listener without TLS that redirects to it.
        tls: GatewayTlsConfig = table(),
    }
}

impl GatewayConfig {
    /// Returns the minimum speed at which a client must read its answer.
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
    /// The section `[upstream]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct UpstreamConfig {
        /// Timeout for opening a connection to a provider over IPv4 or IPv6, including the TLS handshake.
        connect("connect_ms"): Duration = millis(3000, 1..=600_000),
        /// Timeout for the first byte of a streamed answer.
        first_byte("first_byte_seconds"): Duration = seconds(120, 1..=UPSTREAM_SECONDS_MAX),
        /// Timeout for the first byte of a non-streaming answer, which the provider generates completely before it sends
        /// anything.
        first_byte_unary("first_byte_unary_seconds"): Duration = seconds(600, 1..=UPSTREAM_SECONDS_MAX),
        /// Maximum time for which weir withholds the head of a successful answer while it waits for the first event of a stream,
        /// or for the body of a non-streaming answer. If the provider breaks off or sends an error in this time, weir can try the
        /// next provider, because the client has received nothing yet.
        head_wait("head_wait_seconds"): Duration = seconds(5, 1..=60),
        /// Timeout for the body of an error answer. If the body does not arrive in time, the client gets the status without the
        /// body.
        error_body("error_body_seconds"): Duration = seconds(5, 1..=60),
        /// Maximum time that weir waits for the next bytes of an answer.
        idle("idle_seconds"): Duration = seconds(300, 1..=UPSTREAM_SECONDS_MAX),
        /// Maximum duration of a request at the provider.
        total("total_seconds"): Duration = seconds(3600, 1..=UPSTREAM_SECONDS_MAX),
        /// How long an unused connection to a provider stays open. Set a shorter time than the provider's own limit.
        pool_idle("pool_idle_seconds"): Duration = seconds(50, 1..=UPSTREAM_SECONDS_MAX),
        /// Maximum number of unused connections to providers that stay open. The number is divided equally among the threads
        /// ([gateway] threads).
        pool_size: usize = number(256, 1..=65_536).restart(),
        /// Maximum number of times that weir retries a failed connection attempt. For a retry, weir uses another address of the
        /// provider if there is one.
        connect_retries: usize = number(1, 0..=10),
        /// Whether to use HTTP/2 with providers that offer it in the TLS handshake. A connection still carries one request at a
        /// time, so that a timeout or a broken connection ends only that request. At most 256 KiB of an answer are buffered for
        /// a slow client. HTTP/1.1 costs less: use HTTP/2 only for networks or providers that require it.
        http2: bool = flag(false),
        /// A PEM file of CA certificates that are trusted in addition to those of the platform.
        ca_file: Option<PathBuf> = path().optional("ca.pem").restart(),
        /// How often the host names of the providers are resolved. If a name cannot be resolved, its previous addresses stay in
        /// use.
        resolve("resolve_seconds"): Duration = seconds(30, 1..=UPSTREAM_SECONDS_MAX).restart(),
        /// Timeout for resolving a provider's name.
        resolve_timeout("resolve_timeout_ms"): Duration = millis(2000, 1..=60_000).restart(),
        /// Maximum number of detached answers: answers that weir reads to their end although the client has disconnected, to
        /// learn their usage ([on_client_gone] of the provider's file). Beyond it, weir ends the provider's answer when its
        /// client disconnects, and bills the usage known by then.
        client_gone_finish_max: usize = number(256, 0..=1_000_000).restart(),
        /// Maximum time that a detached answer can take after its client has disconnected. The time limits above also apply to
        /// it.
        client_gone_finish("client_gone_finish_seconds"): Duration = seconds(600, 1..=UPSTREAM_SECONDS_MAX),
    }
}

settings! {
    /// The section `[retry]`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct RetryConfig {
        /// Whether weir sends a request to the next provider after the first one has not answered in time (first_byte_seconds,
        /// first_byte_unary_seconds), or has closed the connection before an answer. The first provider may have done the work
        /// and bill you for it; the client is charged once, for the answer that it gets. If false, such a request fails (504 or
        /// 502), and later requests avoid the provider.
        after_timeout: bool = flag(false),
    }
}

settings! {
    /// The certificates of a listener, in order of preference. A listener without certificates does not use TLS.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct TlsConfig {
        /// With a certificate, the listener uses TLS 1.2 and 1.3, with HTTP/2 or HTTP/1.1; without one it does not use TLS. Give
        /// several certificates for several names, or for one name with keys of different kinds (ECDSA, RSA, Ed25519). A client
        /// gets the first certificate that is valid for the requested name and that the client can verify. If no certificate is
        /// valid for that name, the client gets the first one in the list. Several listeners can use the same files. weir reloads
        /// the files when they change. If the new files cannot be used, the old certificates stay in use, as with the rest of the
        /// configuration. `weir check` prints the names and the expiry of each certificate.
        certificates("certificate"): Vec<CertificateConfig> = tables().restart_by(|certificates| certificates.is_empty()),
    }
}

settings! {
    /// A certificate and its private key.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct CertificateConfig {
        /// A PEM file with the certificate, followed by the intermediate certificates up to its CA's root certificate.
        chain: PathBuf = path().example("tls/weir.example.com.pem"),
        /// The certificate's private key: PEM, not encrypted.
        key: SecretRef = secret().example("file:tls/weir.example.com.key"),
    }
}

settings! {
    /// The section `[gateway.tls]`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct GatewayTlsConfig {
        /// The address, IP:PORT, of a listener without TLS that redirects every request to the listener with TLS (308). If not
        /// set, there is no such listener.
        redirect_listen: Option<SocketAddr> = address().optional("127.0.0.1:8082").restart(),
        /// The certificates of the gateway's listener.
        tls: TlsConfig = flat(),
    } checked by redirects_somewhere
}

settings! {
    /// The section `[admin.tls]`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct AdminTlsConfig {
        /// A PEM file with the CA certificates that verify clients' certificates. A client with a certificate from one of these
        /// CAs has full control: use a dedicated CA.
        client_ca_file: Option<PathBuf> = path().optional("tls/operators-ca.pem"),
        /// The certificates of the admin API's listener.
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
    /// The section `[stability]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct StabilityConfig {
        /// The address of the public stability service, IP:PORT. The service consists of the page /status, the API
        /// /web/v1/model-stability/summary, and the description of this API at /web/v1/openapi.json. The service needs no
        /// authentication, and does not reveal the number of requests. The gateway's port serves the same paths.
        listen: SocketAddr = address().or("127.0.0.1:8081"),
        /// How often the stability record is read from the store, and how long a response may be cached.
        refresh("refresh_seconds"): Duration = seconds(5, 1..=60),
        /// Maximum number of connections to this listener. When it is reached, weir closes connections without a request in
        /// favour of new ones. weir lowers this number if the process is not allowed to open that many files.
        connections_max: usize = number(256, 1..=1_000_000),
        /// Maximum number of requests per minute from one IP address (IPv6: one /64); further ones get 429.
        requests_per_minute: u32 = number(120, 1..=1_000_000),
        /// Maximum number of requests that one address can send at once after a pause.
        burst: u32 = number(60, 1..=1_000_000),
        /// Maximum number of IP addresses whose requests are counted. Beyond it, weir drops the count of the address that has
        /// sent no request for the longest time.
        addresses_max: usize = number(100_000, 1..=10_000_000),
        /// The addresses of trusted proxies, each as ADDRESS/BITS or ADDRESS. If one of them sends a request, weir reads the
        /// client's address from the header X-Forwarded-For. List your own proxies here; otherwise all their clients count as one
        /// address, in this section and in all other limits per IP address.
        trusted_proxies: Vec<IpNet> = networks(),
        /// Like proxy_protocol_from in [gateway], for this listener.
        proxy_protocol_from: Vec<IpNet> = networks(),
        /// The certificates of the stability service's listener.
        tls: TlsConfig = table(),
    }
}

/// The kernel's maximum length of a unix socket's path, in bytes, without the terminating zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

settings! {
    /// The section `[admin]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct AdminConfig {
        /// The path of the admin API's unix socket. The absolute path has at most 107 bytes. The socket is created with mode
        /// 0660, its folder with mode 0750.
        socket: PathBuf = path()
            .then(|path| match path.as_os_str().len() {
                0..=SOCKET_PATH_BYTES_MAX => Ok(path),
                bytes => Err(format!("the path has {bytes} bytes, but a socket's path can have at most {SOCKET_PATH_BYTES_MAX}")),
            })
            .or("/run/weir/admin.sock")
            .trying_out("./weir-data/admin.sock")
            .restart(),
        /// The append-only audit log: one JSON line for each change.
        audit: PathBuf = path().or("/var/lib/weir/audit.jsonl").trying_out("./weir-data/audit.jsonl").restart(),
        /// The address of the admin API over TCP, IP:PORT. It always uses TLS, and accepts only clients with a certificate of a
        /// CA in client_ca_file. Off by default. weir's own subcommands use the socket.
        listen: Option<SocketAddr> = address().optional("127.0.0.1:9465").restart(),
        /// TLS of the admin API over TCP.
        tls: AdminTlsConfig = table(),
    } checked by proves_clients
}

settings! {
    /// The section `[ops]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct OpsConfig {
        /// The address of /metrics, /livez and /readyz, IP:PORT. It has no authentication: use loopback or a private network.
        listen: SocketAddr = address().or("127.0.0.1:9464"),
    }
}

/// The settings of the admin API over TCP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminTcpConfig<'c> {
    /// The address to listen on. With port 0, the system chooses a free port.
    pub listen: SocketAddr,
    /// The listener's certificates; never empty.
    pub tls: &'c TlsConfig,
    /// A PEM file with the CA certificates that verify clients' certificates.
    pub client_ca_file: &'c PathBuf,
}

impl AdminConfig {
    /// Returns the settings of the admin API over TCP; `None` if it is off.
    pub(crate) fn tcp(&self) -> Option<AdminTcpConfig<'_>> {
        Some(AdminTcpConfig {
            listen: self.listen?,
            tls: &self.tls.tls,
            client_ca_file: self.tls.client_ca_file.as_ref()?,
        })
    }
}

/// Checks that the admin API over TCP uses TLS and accepts only clients with a certificate, because these clients have full
/// control over money.
fn proves_clients(read: AdminConfig, from: &Section<'_>) -> AdminConfig {
    let (certificate, authority) = ("tls.certificate", "tls.client_ca_file");
    match (read.listen, read.tls.tls.is_on(), &read.tls.client_ca_file) {
        (None, false, None) | (Some(_), true, Some(_)) => {}
        (None, ..) => from.report_fault(
            "tls",
            &["listen"],
            "has no effect without a listener: set [admin] listen, or remove this setting",
        ),
        (Some(_), false, _) => {
            from.report_fault("listen", &[certificate], "needs TLS: add an [[admin.tls.certificate]]");
        }
        (Some(_), true, None) => {
            let message = "needs client certificates: set [admin.tls] client_ca_file to the certificate of the CA that signs them";
            from.report_fault("listen", &[authority], message);
        }
    }
    read
}

/// The largest memory limit that can be configured, in bytes.
const STATE_BYTES_CEILING: u64 = 1 << 40;
/// The default memory limit for one key is the memory limit for all conversations, divided by this number.
const KEY_SHARE_DIVISOR: u64 = 4;

settings! {
    /// The section `[sockets]`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct SocketsConfig {
        /// Whether clients can open a WebSocket at /v1/responses. If false, they get 426 and continue with POST.
        enabled: bool = flag(true),
        /// Maximum number of sockets of one key on this node; further handshakes get 426. A socket also counts as a connection
        /// ([connections]).
        per_key_max: usize = number(64, 1..=65_536),
        /// Maximum number of requests that run on one socket at one time, each in a lane of its own (`stream_id`). Further ones
        /// wait.
        running_max: usize = number(4, 1..=16),
        /// How often weir pings the client of a socket. If the client sends nothing until the next ping is due, weir disconnects
        /// it.
        ping("ping_seconds"): Duration = seconds(30, 1..=600),
        /// How long a socket stays open without a request.
        idle("idle_seconds"): Duration = seconds(1800, 1..=86_400),
        /// Maximum age of a socket. weir closes each socket at a random time in the last twelfth of this age. If requests are
        /// running on the socket at that time, weir closes it after they have ended.
        lifetime("lifetime_seconds"): Duration = seconds(3600, 1..=86_400),
        /// Maximum number of WebSockets that weir opens to providers for one client's socket. weir opens them only to providers
        /// whose file says `websocket = true`. 0: weir sends all requests by POST.
        provider_lines_max: usize = number(4, 0..=16),
        /// How long a WebSocket to a provider stays open without a request.
        provider_idle("provider_idle_seconds"): Duration = seconds(300, 1..=86_400),
        /// Maximum memory for the conversations that clients continue on sockets (`store: false`), in bytes. Beyond it, weir
        /// drops the conversation that was not used for the longest time, and its client must send it again.
        state_bytes_max: u64 = number(256 << 20, 0..=STATE_BYTES_CEILING).restart(),
        /// Maximum memory for the conversations of one key, in bytes. If not set: a quarter of state_bytes_max.
        state_key_bytes: Option<u64> = within(0..=STATE_BYTES_CEILING).optional(64 << 20).restart(),
    } checked by state_fits
}

impl SocketsConfig {
    /// Returns the memory limit for the conversations of one key, in bytes; at most `state_bytes_max`.
    pub(crate) fn state_key_bytes_max(&self) -> u64 {
        self.state_key_bytes.unwrap_or(self.state_bytes_max / KEY_SHARE_DIVISOR)
    }
}

fn state_fits(read: SocketsConfig, from: &Section<'_>) -> SocketsConfig {
    let all = read.state_bytes_max;
    if read.state_key_bytes.is_some_and(|bytes| bytes > all) {
        let message = format_args!("larger than the limit for all conversations: give at most state_bytes_max ({all})");
        from.report_fault("state_key_bytes", &["state_bytes_max"], message);
    }
    read
}
