//! The way to a server, on which whatever can go wrong goes wrong as a test says.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::watch};

use crate::edges::web_client::WebClient;

/// What happens to one request.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// It is answered on the way, with this status and code.
    Refused(u16, &'static str),
    /// It arrives, and the connection is cut before its answer.
    AnswerLost,
    /// It arrives, and its answer waits until the test lets it go.
    AnswerLate(watch::Receiver<bool>),
    /// It waits until the test lets it go, even if nobody is there for the answer any more.
    Late(watch::Receiver<bool>),
}

/// A way in front of a server.
pub(super) struct Way {
    pub(super) port: u16,
    state: Arc<State>,
}

struct State {
    server: u16,
    client: WebClient,
    faults: Mutex<VecDeque<(Method, Fault)>>,
    asked: Mutex<Vec<(Method, String)>>,
    knows_no_condition: AtomicBool,
}

impl Way {
    pub(super) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            server,
            client: super::client(),
            faults: Mutex::default(),
            asked: Mutex::default(),
            knows_no_condition: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| Arc::clone(&state).pass(request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { port, state }
    }

    /// The next request of this kind gets that; several in the order in which they are told.
    pub(super) fn next(&self, method: Method, fault: Fault) {
        self.state.faults.lock().push_back((method, fault));
    }

    /// The server knows no conditional puts from now on.
    pub(super) fn knows_no_condition(&self) {
        self.state.knows_no_condition.store(true, Ordering::Relaxed);
    }

    /// What was asked since this was asked last, without the query.
    pub(super) fn asked(&self) -> Vec<(Method, String)> {
        std::mem::take(&mut self.state.asked.lock())
    }

    /// Whether all that was told to happen has begun to.
    pub(super) fn is_clear(&self) -> bool {
        self.state.faults.lock().is_empty()
    }
}

impl State {
    fn fault(&self, request: &Request<Incoming>) -> Option<Fault> {
        if self.knows_no_condition.load(Ordering::Relaxed) && request.headers().contains_key(header::IF_NONE_MATCH) {
            return Some(Fault::Refused(501, "NotImplemented"));
        }
        let mut faults = self.faults.lock();
        let next = faults.iter().position(|(method, _)| method == request.method())?;
        faults.remove(next).map(|(_, fault)| fault)
    }

    async fn pass(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let asked = (request.method().clone(), request.uri().path().to_owned());
        self.asked.lock().push(asked);
        let fault = self.fault(&request);
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        if let Some(Fault::Refused(status, code)) = fault {
            let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
            return Ok(Response::builder()
                .status(StatusCode::from_u16(status).unwrap())
                .body(Full::new(body.into()))
                .unwrap());
        }
        let (state, waits) = (Arc::clone(&self), fault.clone());
        // It goes on without whoever has asked.
        let passed = tokio::spawn(async move {
            if let Some(Fault::Late(mut let_go)) = waits {
                let_go.wait_for(|gone| *gone).await.unwrap();
            }
            state.forward(&head, body).await
        });
        let answer = passed.await.map_err(std::io::Error::other)?;
        match fault {
            Some(Fault::AnswerLost) => Err(std::io::Error::other("cut")),
            Some(Fault::AnswerLate(mut let_go)) => {
                let _ = let_go.wait_for(|gone| *gone).await;
                Ok(answer)
            }
            Some(Fault::Late(_) | Fault::Refused(..)) | None => Ok(answer),
        }
    }

    async fn forward(&self, head: &http::request::Parts, body: Bytes) -> Response<Full<Bytes>> {
        let path = head.uri.path_and_query().unwrap().as_str();
        let mut request = Request::builder()
            .method(head.method.clone())
            .uri(format!("http://127.0.0.1:{}{path}", self.server));
        for (name, value) in &head.headers {
            if name != header::HOST {
                request = request.header(name, value);
            }
        }
        let answer = self.client.send(request.body(body).unwrap()).await;
        let (mut head, body) = answer.unwrap().into_parts();
        head.headers.remove(header::CONNECTION);
        Response::from_parts(head, Full::new(body))
    }
}
