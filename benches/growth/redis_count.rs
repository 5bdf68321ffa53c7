//! What Redis was asked, and what it says of itself.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    task::JoinHandle,
};

/// Counts the commands that Redis gets, as its own MONITOR shows them, until it is dropped.
pub(crate) struct Commands {
    counts: Arc<Counts>,
    reading: JoinHandle<()>,
}

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    of_scripts: AtomicU64,
}

impl Commands {
    /// Begins to count.
    pub(crate) async fn count(redis: SocketAddr) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("redis: {error}");
        let mut stream = TcpStream::connect(redis).await.map_err(failed)?;
        stream.write_all(b"MONITOR\r\n").await.map_err(failed)?;
        let mut lines = BufReader::new(stream).split(b'\n');
        // It says OK first.
        lines.next_segment().await.map_err(failed)?;
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        let reading = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_segment().await {
                // `+TIME [DATABASE WHO] "COMMAND" ...`, where WHO is an address, or `lua` for a command of a script.
                let who = line.split(|byte| *byte == b']').next().unwrap_or_default();
                let count = if who.ends_with(b" lua") {
                    &counted.of_scripts
                } else {
                    &counted.sent
                };
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self { counts, reading })
    }

    /// How many commands came from clients, and how many more their scripts ran.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.counts.sent), count(&self.counts.of_scripts))
    }
}

/// The memory that Redis uses for data, in bytes.
pub(crate) async fn used_memory(redis: SocketAddr) -> Result<f64, String> {
    let told = ask(redis, "INFO memory").await?;
    let line = told.lines().find_map(|line| line.strip_prefix("used_memory:"));
    let bytes = line.and_then(|bytes| bytes.trim_end().parse().ok());
    bytes.ok_or_else(|| format!("redis does not say how much memory it uses: {told}"))
}

/// Whether Redis has a list of rows of the consumption log.
pub(crate) async fn has_rows(redis: SocketAddr) -> Result<bool, String> {
    Ok(!ask(redis, "KEYS *:log:*").await?.starts_with("*0"))
}

/// What Redis answers to a command, as it sends it.
async fn ask(redis: SocketAddr, command: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("redis: {error}");
    let mut stream = TcpStream::connect(redis).await.map_err(failed)?;
    let words = format!("{command}\r\nQUIT\r\n");
    stream.write_all(words.as_bytes()).await.map_err(failed)?;
    let mut told = String::new();
    stream.read_to_string(&mut told).await.map_err(failed)?;
    Ok(told)
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.reading.abort();
    }
}
