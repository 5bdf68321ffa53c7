//! A Pingora server with weir and a service of its own: `plugin PINGORA.yaml WEIR.toml LISTEN`.

use std::{error::Error, io};

use async_trait::async_trait;
use http::{HeaderValue, Response, StatusCode, header};
use pingora::{
    apps::http_app::ServeHttp,
    protocols::http::ServerSession,
    server::{RunArgs, Server, configuration::Opt},
    services::listening::Service,
};
use weir::{Node, Services};

/// The log filter. Messages of some libraries are off, because they quote what clients and providers send. weir logs the same
/// events without quoting.
const SHOWN: &str = "info,pingora_proxy=off,pingora_load_balancing=off,pingora_core::apps=off,rustls=off";

/// The server's own service, which greets and shows weir's metrics.
struct Greeting {
    weir: Node,
}

#[async_trait]
impl ServeHttp for Greeting {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let (status, text) = match session.req_header().uri.path() {
            "/" => (StatusCode::OK, "hello\n".to_owned()),
            "/weir/metrics" => (StatusCode::OK, self.weir.metrics()),
            _ => (StatusCode::NOT_FOUND, "not found\n".to_owned()),
        };
        let length = HeaderValue::from(text.len());
        let mut response = Response::new(text.into_bytes());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, length);
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        response
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(pingora), Some(weir), Some(listen)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: plugin PINGORA.yaml WEIR.toml LISTEN".into());
    };
    // The process owns the log. weir emits events of `tracing`, and Pingora emits records of `log`. This writes both.
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_env_filter(SHOWN)
        .init();

    let mut server = Server::new(Opt {
        conf: Some(pingora),
        ..Opt::default()
    })?;
    server.bootstrap();
    let weir = Services::from_file(weir)?.add_to(&mut server)?;

    let mut greeting = Service::new("greeting".to_owned(), Greeting { weir: weir.clone() });
    greeting.add_tcp(&listen);
    // Without work stealing, each thread has a runtime, and Pingora can run the loop that accepts connections in another runtime
    // than the socket's. If the socket's runtime ends first, which can happen after SIGINT, the loop never ends.
    greeting.threads = Some(1);
    server.add_service(greeting);

    // Pingora handles the signals: after SIGTERM, it ends weir and the service when the grace period is over.
    server.run(RunArgs::default());
    weir.finish();
    Ok(())
}
