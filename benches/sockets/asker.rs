//! A client with one connection that asks for one turn after the other, by POST or over a socket, and checks each answer.

use std::time::Duration;

use memchr::memmem;

use crate::{
    driver::{Connection, Expect},
    gateway::Gateway,
    host::Host,
    socket::{Socket, SocketAnswer},
};

/// How the turns of a client reach weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Road {
    /// By POST on a connection that is kept.
    Post,
    /// Over a socket.
    Socket,
}

impl Road {
    pub(crate) const ALL: [Self; 2] = [Self::Post, Self::Socket];

    /// Both, in another order with each round.
    pub(crate) fn in_order(round: usize) -> [Self; 2] {
        match round % 2 {
            0 => Self::ALL,
            _ => [Self::Socket, Self::Post],
        }
    }

    /// The position of its values.
    pub(crate) fn place(self) -> usize {
        match self {
            Self::Post => 0,
            Self::Socket => 1,
        }
    }

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Socket => "socket",
        }
    }
}

/// The end of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    /// It was answered; the time from the first byte sent to the first event received.
    Served(Duration),
    /// It was refused with this status.
    Refused(u16),
}

enum Client {
    Post(Connection),
    Socket(Box<Socket>),
}

/// The connection of a client.
pub(crate) struct Asker {
    client: Client,
    /// The events and the bytes of an answer; `None` before the first.
    pattern: Option<(usize, usize)>,
}

impl Asker {
    /// Connects to a gateway.
    pub(crate) async fn open(road: Road, gateway: &Gateway) -> Result<Self, String> {
        let (address, key) = (gateway.proxy.address, gateway.proxy.key.as_str());
        let client = match road {
            Road::Post => Client::Post(Connection::new(address)),
            Road::Socket => Client::Socket(Box::new(Socket::open(address, key, None).await?)),
        };
        Ok(Self { client, pattern: None })
    }

    /// A client on a socket that is open.
    pub(crate) fn over(socket: Socket) -> Self {
        Self {
            client: Client::Socket(Box::new(socket)),
            pattern: None,
        }
    }

    /// Asks for the first answer on this connection, and checks that it has all events of the host.
    pub(crate) async fn learn(&mut self, request: &[u8], host: &Host) -> Result<(), String> {
        self.pattern = None;
        match self.ask(request, &mut || {}).await? {
            Asked::Refused(status) => return Err(format!("refused with {status}")),
            Asked::Served(_) => {}
        }
        let events = self.pattern.map(|(events, _)| events);
        match events == Some(host.events()) {
            true => Ok(()),
            false => Err(format!("{events:?} events of {} came", host.events())),
        }
    }

    /// Asks for a turn and reads its answer, which must be like the one before. Calls `began` when the first of it comes.
    pub(crate) async fn ask(&mut self, request: &[u8], began: &mut (impl FnMut() + Send)) -> Result<Asked, String> {
        let (first_event, events, bytes) = match &mut self.client {
            Client::Socket(socket) => match socket.ask(request, began).await? {
                SocketAnswer::Refused(status) => return Ok(Asked::Refused(status)),
                SocketAnswer::Complete {
                    first_event,
                    events,
                    bytes,
                } => (first_event, events, bytes),
            },
            Client::Post(connection) => {
                let watched = connection.watch(request, Expect::Anything, &mut |_| began()).await;
                match watched {
                    Ok(answer) => {
                        // Only the first is counted, so that a POST costs the client no more than a turn of a socket.
                        let events = self.pattern.map_or_else(
                            || memmem::find_iter(&answer.body, b"event: ").count(),
                            |(events, _)| events,
                        );
                        (answer.first_byte, events, answer.body.len())
                    }
                    Err(bad) => return refused(bad),
                }
            }
        };
        match *self.pattern.get_or_insert((events, bytes)) == (events, bytes) {
            true => Ok(Asked::Served(first_event)),
            false => Err(format!(
                "an answer of {events} events and {bytes} bytes behind others of {:?}",
                self.pattern
            )),
        }
    }
}

/// The refusal of a POST, which its connection reports in words.
fn refused(bad: String) -> Result<Asked, String> {
    let status = bad
        .strip_prefix("status ")
        .and_then(|said| said.get(..3)?.parse::<u16>().ok());
    status.map(Asked::Refused).ok_or(bad)
}
