//! The baseline: the least that can be called a Pingora proxy, in a process of its own.

use std::net::{SocketAddr, TcpListener};

use async_trait::async_trait;
use clap::Parser;
use pingora::{
    listeners::{L4BufferSettings, ListenerConfig},
    prelude::{HttpPeer, Result, Server, Session},
    proxy::{ProxyHttp, http_proxy_service},
    server::configuration::ServerConf,
};

/// The first argument that makes this executable the bare proxy.
pub(crate) const COMMAND: &str = "bare-proxy";

/// Idle connections to the provider, for the bare proxy and weir alike: more than any phase has open at once.
pub(crate) const POOL_SIZE: usize = 2048;

/// The arguments behind [`COMMAND`].
#[derive(Parser)]
pub(crate) struct BareArgs {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    upstream: SocketAddr,
}

struct Bare {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) -> Self::CTX {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut Self::CTX) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}

/// Serves until it is killed. Prints where it listens.
pub(crate) fn run(args: &BareArgs) -> ! {
    // Pingora does not tell which port it got, so a free one is found for it.
    let free = TcpListener::bind(args.listen).and_then(|listener| listener.local_addr());
    let address = free.expect("bare-proxy: --listen can be bound");
    let conf = ServerConf {
        threads: 1,
        // As weir with one thread has it.
        work_stealing: false,
        upstream_keepalive_pool_size: POOL_SIZE,
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(
        &server.configuration,
        Bare {
            upstream: args.upstream,
        },
    );
    // As weir does: a buffer of 64 KiB for each connection would make the comparison of memory one of buffers.
    let buffers = L4BufferSettings::default().read(0);
    service.add_listener(ListenerConfig::tcp(address.to_string()).l4_buffer(buffers));
    server.add_service(service);
    println!("{COMMAND} listening on http://{address}");
    server.run_forever()
}
