//! Names with two address families of which one does not answer.

use std::time::Instant;

use tokio::net::{TcpListener, TcpSocket};

use super::*;
use crate::{
    domain::rules::{Origin, WeightedOrigin},
    edges::resolver::{HostLookup, Resolver, ResolverSettings},
    providers::pools::Probing,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A name with these addresses.
struct Name(Vec<SocketAddr>);

#[async_trait]
impl HostLookup for Name {
    async fn lookup(&self, _host: &str, _port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(self.0.clone())
    }
}

/// The places of a provider whose name has these addresses.
async fn places(addresses: &[SocketAddr]) -> Arc<ProviderBackends> {
    let settings = ResolverSettings {
        refresh: Duration::from_secs(600),
        timeout: PATIENCE,
    };
    let hosts = vec![("two.example".to_owned(), 80)];
    let resolver = Arc::new(Resolver::with_lookup(
        hosts,
        settings,
        Box::new(Name(addresses.to_vec())),
    ));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let resolving = tokio::spawn(Arc::clone(&resolver).run(stopped));
    resolver.first_pass().await;
    stop.send_replace(true);
    resolving.await.expect("no panic");
    let origin = WeightedOrigin::only(Origin::parse("http://two.example").expect("a place"));
    let places = Arc::new(ProviderBackends::new(&[origin], resolver));
    places.update().await;
    places
}

/// Where a request of this moment is connected to.
async fn connect(places: &Arc<ProviderBackends>, now: Instant) -> (SocketAddr, Result<SocketAddr>) {
    let (place, _) = places.pick(&[], Probing::Allowed, now).expect("a place");
    let first = place.first;
    let connector = Connector::new(PATIENCE, place, Arc::clone(places), Drain::default());
    let race = tokio::time::timeout(PATIENCE, connector.race(first)).await;
    let connected = race.or_err(ErrorType::ConnectTimedout, "connecting");
    let connected = connected.and_then(|done| done.or_err(ErrorType::ConnectRefused, "connecting"));
    (first, connected.map(|stream| stream.peer_addr().expect("connected")))
}

async fn listening(address: &str) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(address).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// An address where nobody listens.
async fn refusing(address: &str) -> SocketAddr {
    listening(address).await.1
}

/// An address that answers nothing: its queue of connections is full, and the kernel drops what comes then.
async fn silent() -> (TcpListener, Vec<TcpStream>, SocketAddr) {
    let socket = TcpSocket::new_v6().expect("a socket");
    socket.bind("[::1]:0".parse().expect("an address")).expect("a port");
    let listener = socket.listen(1).expect("listening");
    let address = listener.local_addr().expect("an address");
    let mut queued = Vec::new();
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(address)).await {
        queued.push(stream.expect("queued"));
    }
    (listener, queued, address)
}

#[tokio::test]
async fn an_address_that_refuses_is_made_good_for_by_the_other_family_at_once() {
    let dead = refusing("[::1]:0").await;
    let (_listener, alive) = listening("127.0.0.1:0").await;
    let places = places(&[dead, alive]).await;
    let now = clock::instant();
    let (first, connected) = connect(&places, now).await;
    assert_eq!((first, connected.expect("connected")), (dead, alive));
    // From then on nobody asks there first, until it is time to look again.
    let (first, connected) = connect(&places, now).await;
    assert_eq!((first, connected.expect("connected")), (alive, alive));
    let (first, _) = connect(&places, clock::instant() + Duration::from_secs(3_600)).await;
    assert_eq!(first, dead);
}

#[tokio::test]
async fn an_address_that_is_silent_does_not_keep_the_other_family_waiting() {
    let (_full, _queued, mute) = silent().await;
    let (_listener, alive) = listening("127.0.0.1:0").await;
    let places = places(&[mute, alive]).await;
    let (first, connected) = connect(&places, clock::instant()).await;
    assert_eq!((first, connected.expect("connected")), (mute, alive));
    assert_eq!(
        places
            .pick(&[], Probing::Allowed, clock::instant())
            .expect("a place")
            .0
            .first,
        alive
    );
}

#[tokio::test]
async fn the_preferred_family_is_taken_while_it_answers_and_again_when_only_it_does() {
    let (_six, at_six) = listening("[::1]:0").await;
    let (four, at_four) = listening("127.0.0.1:0").await;
    let places = places(&[at_six, at_four]).await;
    let now = clock::instant();
    let (_, connected) = connect(&places, now).await;
    assert_eq!(connected.expect("connected"), at_six);
    let (place, _) = places.pick(&[], Probing::Allowed, now).expect("a place");
    places.on_family_answered(&place, at_four, now);
    let (_, connected) = connect(&places, now).await;
    assert_eq!(connected.expect("connected"), at_four);
    drop(four);
    let (first, connected) = connect(&places, now).await;
    assert_eq!((first, connected.expect("connected")), (at_four, at_six));
    assert_eq!(
        places.pick(&[], Probing::Allowed, now).expect("a place").0.first,
        at_six
    );
}

#[tokio::test]
async fn where_neither_answers_it_is_said_and_one_family_is_enough() {
    let (six, four) = (refusing("[::1]:0").await, refusing("127.0.0.1:0").await);
    let (_, connected) = connect(&places(&[six, four]).await, clock::instant()).await;
    assert!(connected.is_err());
    let (_listener, alone) = listening("127.0.0.1:0").await;
    let (_, connected) = connect(&places(&[alone]).await, clock::instant()).await;
    assert_eq!(connected.expect("connected"), alone);
}
