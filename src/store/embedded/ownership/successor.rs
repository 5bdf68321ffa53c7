//! The process that has taken the store over, as the one before it reaches it.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::call::Call;
use crate::store::StoreError;

/// The longest call or answer, in bytes: hundreds of steps, or all hours of the public record.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// How many calls may wait for their turn.
const CALLS_WAITING_MAX: usize = 1024;
/// How long a call may take, its turn included.
const CALL_WAIT: Duration = Duration::from_secs(5);

/// A call on its way, and who waits for the answer.
type Asked = (Vec<u8>, oneshot::Sender<Vec<u8>>);

/// The line to the successor. It ends when the last of its clones is dropped.
#[derive(Clone)]
pub(crate) struct Successor {
    calls: mpsc::Sender<Asked>,
}

impl Successor {
    /// On a stream that the successor answers. To be called on a runtime.
    pub(crate) fn on(stream: UnixStream) -> Self {
        let (calls, waiting) = mpsc::channel(CALLS_WAITING_MAX);
        tokio::spawn(carry(stream, waiting));
        Self { calls }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// What the successor's store says; [`StoreError::Unavailable`] where the successor is gone.
    pub(super) async fn ask<T: DeserializeOwned>(&self, call: &Call) -> Result<T, StoreError> {
        let gone = || StoreError::Unavailable("the process that has taken the store over does not answer".to_owned());
        let garbled = |error: serde_json::Error| StoreError::Corrupt(error.to_string());
        let text = serde_json::to_vec(call).map_err(garbled)?;
        let (to, answer) = oneshot::channel();
        let asked = async {
            self.calls.send((text, to)).await.ok()?;
            answer.await.ok()
        };
        let answer = timeout(CALL_WAIT, asked).await.ok().flatten().ok_or_else(gone)?;
        serde_json::from_slice::<Result<T, StoreError>>(&answer).map_err(garbled)?
    }
}

/// Carries calls and answers, one after the other. Ends with the stream: whoever asks later finds nobody.
async fn carry(stream: UnixStream, mut waiting: mpsc::Receiver<Asked>) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    while let Some((mut call, to)) = waiting.recv().await {
        call.push(b'\n');
        if write.write_all(&call).await.is_err() {
            return;
        }
        let Some(answer) = line(&mut read).await else { return };
        // Who has stopped waiting is not told.
        let _ = to.send(answer);
    }
}

/// One line without its end; `None` at the end of the stream.
pub(in crate::store::embedded) async fn line<R: AsyncBufReadExt + Unpin>(read: &mut R) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    read.take(LINE_BYTES_MAX).read_until(b'\n', &mut text).await.ok()?;
    (text.pop() == Some(b'\n')).then_some(text)
}
