//! What Redis was asked.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
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

impl Drop for Commands {
    fn drop(&mut self) {
        self.reading.abort();
    }
}
