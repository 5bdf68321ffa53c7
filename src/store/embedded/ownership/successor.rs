//! The process that has taken over the store, as its predecessor reaches it.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::call::SuccessorCall;
use crate::store::StoreError;

/// The maximum length of a call or an answer, in bytes: hundreds of steps, or all hours of the public record.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// The maximum number of calls that wait for their turn.
const CALLS_WAITING_MAX: usize = 1024;
/// The timeout of a call, including the wait for its turn.
const CALL_WAIT: Duration = Duration::from_secs(5);

/// A call on its way, with the channel for its answer.
type PendingCall = (Vec<u8>, oneshot::Sender<Vec<u8>>);

/// The connection to the successor process. It ends when the last of its clones is dropped.
#[derive(Clone)]
pub(crate) struct Successor {
    calls: mpsc::Sender<PendingCall>,
}

impl Successor {
    /// Uses a stream on which the successor answers. Must be called on a runtime.
    pub(crate) fn new(stream: UnixStream) -> Self {
        let (calls, waiting) = mpsc::channel(CALLS_WAITING_MAX);
        tokio::spawn(carry(stream, waiting));
        Self { calls }
    }

    /// Makes a call, and waits for the answer.
    ///
    /// # Errors
    /// The error of the successor's store; [`StoreError::Unavailable`] if the successor is gone.
    pub(super) async fn call<T: DeserializeOwned>(&self, call: &SuccessorCall) -> Result<T, StoreError> {
        let gone = || StoreError::Unavailable("the process that has taken over the store does not answer".to_owned());
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

/// Carries calls and answers, one after another. Ends with the stream; later calls fail.
async fn carry(stream: UnixStream, mut waiting: mpsc::Receiver<PendingCall>) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    while let Some((mut call, to)) = waiting.recv().await {
        call.push(b'\n');
        if write.write_all(&call).await.is_err() {
            return;
        }
        let Some(answer) = read_line(&mut read).await else {
            return;
        };
        // The caller may have stopped waiting.
        let _ = to.send(answer);
    }
}

/// One line without its line feed; `None` at the end of the stream.
pub(in crate::store::embedded) async fn read_line<R: AsyncBufReadExt + Unpin>(read: &mut R) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    read.take(LINE_BYTES_MAX).read_until(b'\n', &mut text).await.ok()?;
    (text.pop() == Some(b'\n')).then_some(text)
}
