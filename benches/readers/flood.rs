//! Readers of the public record: so many requests per second on a few connections, from a thread of their own.

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

use crate::decoder::Decoder;

const CONNECTIONS: u32 = 8;

/// Whom the readers claim to be; weir believes this machine as a proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// Each request is of another address.
    Everywhere,
    /// All are of one.
    OneAddress,
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
    /// Asks the listener so often, evenly.
    pub(crate) fn start(listener: SocketAddr, per_second: u32, from: From) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            runtime.block_on(async {
                let mut tasks = JoinSet::new();
                for number in 0..CONNECTIONS {
                    tasks.spawn(read(listener, per_second, from, number, Arc::clone(&flag)));
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

async fn read(
    listener: SocketAddr,
    per_second: u32,
    from: From,
    number: u32,
    stop: Arc<AtomicBool>,
) -> Result<Heard, String> {
    let failed = |error: std::io::Error| format!("a reader: {error}");
    let mut stream = TcpStream::connect(listener).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let every = Duration::from_secs(1) * CONNECTIONS / per_second;
    let mut due = Instant::now() + every * number / CONNECTIONS;
    let mut heard = Heard::default();
    let mut buffer = vec![0; 64 * 1024];
    let mut turn = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep_until(due.into()).await;
        due += every;
        turn += 1;
        let reader = match from {
            From::Everywhere => format!("10.{number}.{}.{}", turn / 256 % 256, turn % 256),
            From::OneAddress => "10.9.9.9".to_owned(),
        };
        let request = format!(
            "GET /web/v1/model-stability/summary HTTP/1.1\r\nhost: gateway.test\r\naccept-encoding: gzip\r\n\
             x-forwarded-for: {reader}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.map_err(failed)?;
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
