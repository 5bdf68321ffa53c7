//! Readers of the public record, or people at the console: so many requests per second on a few connections, from a thread of
//! their own.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::{console::PAGES, decoder::Decoder, fleet::Proxy};

/// Readers of the public record are on so many connections.
const CONNECTIONS: u32 = 8;
/// People at the console, each on a connection of its own.
pub(crate) const PEOPLE: u32 = 100;

/// Whom the readers claim to be; weir believes this machine as a proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// Each request is of another address.
    Everywhere,
    /// All are of one.
    OneAddress,
    /// People with sessions look at the console.
    Console,
}

impl From {
    fn connections(self) -> u32 {
        match self {
            Self::Everywhere | Self::OneAddress => CONNECTIONS,
            Self::Console => PEOPLE,
        }
    }
}

/// What the readers were told.
#[derive(Clone, Copy, Default)]
pub(crate) struct Heard {
    /// 200.
    pub(crate) answered: u64,
    /// 429.
    pub(crate) refused: u64,
}

impl Heard {
    /// Both together.
    pub(crate) fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.refused += other.refused;
    }
}

/// Runs until it is ended.
pub(crate) struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Heard, String>>,
}

impl Flood {
    /// Asks so often, evenly. `people` are the cookies of those at the console, one for each connection.
    pub(crate) fn start(proxy: &Proxy, per_second: u32, from: From, people: &[String]) -> Self {
        let listener = match from {
            From::Console => proxy.console,
            From::Everywhere | From::OneAddress => proxy.stability,
        };
        let people = people.to_vec();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            runtime.block_on(async {
                let mut tasks = JoinSet::new();
                for (number, cookie) in (0..from.connections()).zip(people) {
                    let reader = Reader { from, number, cookie };
                    tasks.spawn(read(listener, per_second, reader, Arc::clone(&flag)));
                }
                let mut heard = Heard::default();
                for one in tasks.join_all().await {
                    heard.add(&one?);
                }
                Ok(heard)
            })
        });
        Self { stop, thread }
    }

    /// Stops and tells what came of it.
    pub(crate) async fn end(self) -> Result<Heard, String> {
        self.stop.store(true, Ordering::Relaxed);
        let joined = tokio::task::spawn_blocking(|| self.thread.join()).await;
        joined
            .map_err(|error| error.to_string())?
            .map_err(|_| "the readers panicked".to_owned())?
    }
}

/// Who asks on one connection.
struct Reader {
    from: From,
    number: u32,
    cookie: String,
}

impl Reader {
    fn request(&self, turn: u32) -> String {
        let number = self.number;
        let (path, more) = match self.from {
            From::Everywhere => {
                let address = format!("x-forwarded-for: 10.{number}.{}.{}", turn / 256 % 256, turn % 256);
                ("/web/v1/model-stability/summary", address)
            }
            From::OneAddress => (
                "/web/v1/model-stability/summary",
                "x-forwarded-for: 10.9.9.9".to_owned(),
            ),
            From::Console => {
                let page = PAGES[(turn + number) as usize % PAGES.len()];
                (page, format!("cookie: {}", self.cookie))
            }
        };
        format!("GET {path} HTTP/1.1\r\nhost: gateway.test\r\naccept-encoding: gzip\r\n{more}\r\n\r\n")
    }
}

async fn read(listener: SocketAddr, per_second: u32, reader: Reader, stop: Arc<AtomicBool>) -> Result<Heard, String> {
    let failed = |error: std::io::Error| format!("a reader: {error}");
    let mut stream = TcpStream::connect(listener).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let connections = reader.from.connections();
    let every = Duration::from_secs(1) * connections / per_second;
    let mut due = Instant::now() + every * reader.number / connections;
    let mut heard = Heard::default();
    let mut buffer = vec![0; 64 * 1024];
    let mut turn = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep_until(due.into()).await;
        due += every;
        turn += 1;
        stream
            .write_all(reader.request(turn).as_bytes())
            .await
            .map_err(failed)?;
        let mut decoder = Decoder::new();
        while !decoder.is_done() {
            let read = stream.read(&mut buffer).await.map_err(failed)?;
            if read == 0 {
                return Err("a reader: the connection was closed".to_owned());
            }
            decoder.push(&buffer[..read], &mut |_| Ok(()))?;
        }
        match decoder.status {
            200 => heard.answered += 1,
            429 => heard.refused += 1,
            status => return Err(format!("a reader: status {status}")),
        }
    }
    Ok(heard)
}
