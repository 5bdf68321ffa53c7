//! Side services as Pingora would run them, on free ports.

use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;

use super::*;

const WAIT_MAX: Duration = Duration::from_secs(10);

struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    ready: watch::Receiver<bool>,
}

fn start(mut service: SideService, fds: &ListenFds) -> Running {
    let (stop, shutdown) = watch::channel(false);
    let (ready_sender, ready) = watch::channel(false);
    let fds = Some(Arc::clone(fds));
    let task = tokio::spawn(async move {
        let ready = ServiceReadyNotifier::new(ready_sender);
        service.start_service(fds, shutdown, 1, ready).await;
    });
    Running { stop, task, ready }
}

impl Running {
    async fn stop(self) {
        self.stop.send_replace(true);
        within(self.task).await.expect("no panic");
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_MAX, future).await.expect("in time")
}

fn table() -> ListenFds {
    Arc::new(Fds::new().into())
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn hello() -> Router {
    Router::new().route("/hello", get(async || "world"))
}

async fn bound(watch: &mut watch::Receiver<BoundAddress>) -> BoundAddress {
    within(watch.wait_for(|bound| *bound != BoundAddress::Waiting))
        .await
        .expect("a sender")
        .clone()
}

async fn tcp(watch: &mut watch::Receiver<BoundAddress>) -> SocketAddr {
    match bound(watch).await {
        BoundAddress::Tcp(address) => address,
        other => panic!("{other:?}"),
    }
}

async fn ask(address: SocketAddr) -> String {
    let mut client = within(TcpStream::connect(address)).await.expect("connects");
    let request = b"GET /hello HTTP/1.1\r\nhost: weir\r\nconnection: close\r\n\r\n";
    within(client.write_all(request)).await.expect("sent");
    let mut answer = String::new();
    within(client.read_to_string(&mut answer)).await.expect("answered");
    answer
}

#[tokio::test]
async fn http_is_served_on_a_free_port_that_is_told_and_can_be_handed_over() {
    let fds = table();
    let (service, mut watch) = SideService::http("ops", any_port(), hello());
    let mut running = start(service, &fds);
    let address = tcp(&mut watch).await;
    assert_ne!(address.port(), 0);
    within(running.ready.wait_for(|ready| *ready)).await.expect("ready");
    let answer = ask(address).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("world"),
        "{answer}"
    );
    assert!(
        fds.lock().get(&address.to_string()).is_some(),
        "an upgrade finds the socket"
    );
    running.stop().await;
    assert!(TcpStream::connect(address).await.is_err(), "closed after the stop");
}

#[tokio::test]
async fn a_socket_of_the_process_before_is_taken_over() {
    let before = TcpListener::bind(any_port()).expect("bound");
    before.set_nonblocking(true).expect("set");
    let address = before.local_addr().expect("an address");
    let fds = table();
    fds.lock().add(address.to_string(), before.into_raw_fd());
    let (service, mut watch) = SideService::http("ops", address, hello());
    let running = start(service, &fds);
    assert_eq!(tcp(&mut watch).await, address);
    assert!(ask(address).await.ends_with("world"));
    running.stop().await;
}

#[tokio::test]
async fn an_address_in_use_is_said_and_not_waited_for() {
    let taken = TcpListener::bind(any_port()).expect("bound");
    let address = taken.local_addr().expect("an address");
    let (service, mut watch) = SideService::http("ops", address, hello());
    let running = start(service, &table());
    match bound(&mut watch).await {
        BoundAddress::Failed(reason) => assert!(reason.starts_with(&address.to_string()), "{reason}"),
        other => panic!("{other:?}"),
    }
    within(running.task).await.expect("no panic");
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_up_the_stop() {
    let (service, mut watch) = SideService::http("ops", any_port(), hello());
    let running = start(service, &table());
    let address = tcp(&mut watch).await;
    let mut client = within(TcpStream::connect(address)).await.expect("connects");
    within(client.write_all(b"GET /hello HTTP/1.1\r\nhost: weir\r\n\r\n"))
        .await
        .expect("sent");
    let mut first = [0; 1];
    within(client.read_exact(&mut first)).await.expect("answered");
    running.stop().await;
    let mut rest = Vec::new();
    within(client.read_to_end(&mut rest)).await.expect("closed in order");
    assert!(rest.ends_with(b"world"));
}

async fn over_app(app: HttpApp) -> (Arc<HttpApp>, SocketAddr, watch::Sender<bool>) {
    let app = Arc::new(app);
    let (stop, shutdown) = watch::channel(false);
    let listener = tokio::net::TcpListener::bind(any_port()).await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let served = Arc::clone(&app);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (app, shutdown) = (Arc::clone(&served), shutdown.clone());
            let stream: pingora::protocols::l4::stream::Stream = stream.into();
            tokio::spawn(async move { app.process_new(Box::new(stream), &shutdown).await });
        }
    });
    (app, address, stop)
}

fn app(router: Router, connections_max: usize, waits: ClientWaits) -> HttpApp {
    HttpApp {
        router,
        slots: ConnectionSlots::new(connections_max),
        waits,
    }
}

const PATIENT: ClientWaits = ClientWaits {
    head: WAIT_MAX,
    answer: WAIT_MAX,
};

async fn connected(address: SocketAddr, sent: &[u8]) -> TcpStream {
    let mut client = within(TcpStream::connect(address)).await.expect("connects");
    within(client.write_all(sent)).await.expect("sent");
    client
}

/// What is read until the end.
async fn rest(client: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    // A connection that ends with bytes of its client unread may be reset.
    let _ended = within(client.read_to_end(&mut rest)).await;
    rest
}

async fn until(mut holds: impl FnMut() -> bool) {
    within(async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_never_finishes_its_head_is_dropped() {
    let head = Duration::from_millis(20);
    let (_app, address, _stop) = over_app(app(hello(), 1, ClientWaits { head, ..PATIENT })).await;
    let mut client = connected(address, b"GET /hello HT").await;
    assert!(!rest(&mut client).await.starts_with(b"HTTP/1.1 200"));
}

/// Nothing, half a head, half a body, a request answered long ago: none of them keeps others out.
#[tokio::test]
async fn who_has_asked_for_nothing_gives_way_to_who_asks() {
    const MAX: usize = 3;
    let echo = Router::new()
        .route("/hello", get(async || "world"))
        .route("/echo", post(async |body: String| body));
    let (app, address, _stop) = over_app(app(echo, MAX, PATIENT)).await;
    for held in [
        &b""[..],
        b"GET /hello HTTP/1.1\r\nhost: w",
        b"POST /echo HTTP/1.1\r\nhost: weir\r\ncontent-length: 10\r\n\r\nhalf",
        b"POST /echo HTTP/1.1\r\nhost: weir\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let mut holding = Vec::new();
        for _ in 0..MAX + 2 {
            holding.push(connected(address, held).await);
        }
        for _ in 0..MAX + 2 {
            let answer = ask(address).await;
            assert!(answer.ends_with("world"), "{answer}");
        }
        for mut held in holding.drain(..MAX + 2 - MAX) {
            assert_eq!(rest(&mut held).await, b"", "the first have given way");
        }
    }
    let mut answered = connected(address, b"GET /hello HTTP/1.1\r\nhost: weir\r\n\r\n").await;
    let mut first = [0; 12];
    within(answered.read_exact(&mut first)).await.expect("answered");
    assert_eq!(&first, b"HTTP/1.1 200");
    let mut later = Vec::new();
    for _ in 0..MAX {
        later.push(connected(address, b"").await);
    }
    assert!(rest(&mut answered).await.ends_with(b"world"), "answered, then closed");
    drop(later);
    until(|| app.slots.taken() == 0).await;
}

#[tokio::test]
async fn who_is_being_answered_stays_and_the_slots_come_back() {
    let (let_go, held) = watch::channel(false);
    let router = hello().route(
        "/slow",
        get(move || {
            let mut held = held.clone();
            async move {
                wait_until_stopped(&mut held).await;
                "slow"
            }
        }),
    );
    let (app, address, _stop) = over_app(app(router, 2, PATIENT)).await;
    let mut working = Vec::new();
    for count in 1..=2 {
        working.push(
            connected(
                address,
                b"GET /slow HTTP/1.1\r\nhost: weir\r\nconnection: close\r\n\r\n",
            )
            .await,
        );
        until(|| app.slots.at_work() == count).await;
    }
    let mut third = within(TcpStream::connect(address)).await.expect("connects");
    assert_eq!(rest(&mut third).await, b"", "closed unanswered");
    let_go.send_replace(true);
    for mut client in working {
        assert!(rest(&mut client).await.ends_with(b"slow"));
    }
    until(|| app.slots.taken() == 0).await;
    assert!(ask(address).await.ends_with("world"));
}

const MORE_THAN_BUFFERS_HOLD: usize = 64 << 20;

fn much() -> Router {
    hello().route("/much", get(async || vec![b'x'; MORE_THAN_BUFFERS_HOLD]))
}

#[tokio::test]
async fn a_client_that_does_not_take_its_answer_loses_its_slot_in_time() {
    let answer = Duration::from_millis(50);
    let (app, address, _stop) = over_app(app(much(), 1, ClientWaits { answer, ..PATIENT })).await;
    let mut client = connected(address, b"GET /much HTTP/1.1\r\nhost: weir\r\n\r\n").await;
    let mut piece = [0; 1024];
    within(client.read_exact(&mut piece)).await.expect("the answer begins");
    // A little now and then does not help.
    within(async {
        while app.slots.taken() > 0 {
            let _ = client.read(&mut piece).await;
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_does_not_take_its_answer_gives_way_at_once_to_who_asks() {
    let (_app, address, _stop) = over_app(app(much(), 2, PATIENT)).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = connected(address, b"GET /much HTTP/1.1\r\nhost: weir\r\n\r\n").await;
        within(client.read_exact(&mut [0; 12]))
            .await
            .expect("the answer begins");
        held.push(client);
    }
    assert!(ask(address).await.ends_with("world"));
}

fn claims() -> watch::Receiver<connection::SocketClaim> {
    watch::channel(connection::SocketClaim::FromDeadProcess).1
}

#[tokio::test]
async fn a_unix_socket_is_given_to_its_server_and_removed_at_the_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("admin.sock");
    let serve = async |listener: UnixListener, mut shutdown: watch::Receiver<bool>| {
        let (mut client, _) = listener.accept().await.expect("a client");
        client.write_all(b"hello").await.expect("sent");
        drop(client);
        wait_until_stopped(&mut shutdown).await;
    };
    let (service, mut watch) = SideService::unix("admin", path.clone(), claims(), serve);
    let running = start(service, &table());
    assert_eq!(bound(&mut watch).await, BoundAddress::Unix(path.clone()));
    let mut client = within(UnixStream::connect(&path)).await.expect("connects");
    let mut text = String::new();
    within(client.read_to_string(&mut text)).await.expect("answered");
    assert_eq!(text, "hello");
    let (second, mut second_watch) = SideService::unix("admin", path.clone(), claims(), async |_, _| {});
    within(start(second, &table()).task).await.expect("no panic");
    assert!(matches!(bound(&mut second_watch).await, BoundAddress::Failed(_)));
    running.stop().await;
    assert!(!path.exists());
}
