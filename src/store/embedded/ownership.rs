//! The ownership of the embedded store's files. They belong to this process, or to the successor to which it has handed them
//! over.
//!
//! Keys and ledger each have an [`Ownership`], which contains their files. A call accesses the files through a guard that it
//! holds until its end. So the files are closed only when no call runs, and later calls wait until the new owner is decided. A
//! call that holds a guard must not take a second one: if a task that wants to lock the files is queued between the two, the call
//! and the task wait for each other forever.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc, oneshot},
    time::timeout,
};

use crate::{
    domain::{
        faults::stability::{Hour, NodeHourCounters},
        keys::{KeyId, secret::KeyDigest},
        ledger::{AdmitCall, NodeId, OperationId, Step, TopUp},
        wire::{provider_state::StateKey, session_hint::ServedBy},
    },
    store::StoreError,
};

/// The owner of the files `F`.
pub(super) enum FilesOwner<F> {
    /// This process owns the files.
    Here(Arc<F>),
    /// The process that has taken this one's place owns the files. It answers the calls that this process's last requests need.
    At(Successor),
    /// The files were closed and could not be opened again.
    Nobody,
}

/// The files `F` with their owner.
pub(super) struct Ownership<F>(RwLock<FilesOwner<F>>);

impl<F> FilesOwner<F> {
    /// Forwards a call to the successor, and returns its answer.
    ///
    /// # Errors
    /// The error of the successor's store; [`StoreError::Unavailable`] if the successor has ended, or if there is none.
    pub(super) async fn forward<T: DeserializeOwned>(&self, call: &SuccessorCall) -> Result<T, StoreError> {
        match self {
            Self::At(successor) => successor.call(call).await,
            Self::Here(_) | Self::Nobody => Err(not_owner_error()),
        }
    }

    fn files(&self) -> Option<&Arc<F>> {
        match self {
            Self::Here(files) => Some(files),
            Self::At(_) | Self::Nobody => None,
        }
    }
}

impl<F> Ownership<F> {
    /// Creates the ownership of files that this process has opened.
    pub(super) fn new(files: F) -> Self {
        Self(RwLock::new(FilesOwner::Here(Arc::new(files))))
    }

    /// Returns the owner, for a call that can also be forwarded to a successor.
    pub(super) async fn owner(&self) -> RwLockReadGuard<'_, FilesOwner<F>> {
        self.0.read().await
    }

    /// Returns the files, for a call that only their owner can answer.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if this process does not own the files.
    pub(super) async fn here(&self) -> Result<RwLockReadGuard<'_, Arc<F>>, StoreError> {
        RwLockReadGuard::try_map(self.0.read().await, FilesOwner::files).map_err(|_| not_owner_error())
    }

    /// Returns the files without waiting; `None` if this process does not own them, or if the owner is being decided.
    pub(super) fn here_now(&self) -> Option<RwLockReadGuard<'_, Arc<F>>> {
        RwLockReadGuard::try_map(self.0.try_read().ok()?, FilesOwner::files).ok()
    }

    /// Waits until no call runs, and returns a guard. Later calls wait until the guard is dropped.
    pub(super) async fn lock(&self) -> RwLockWriteGuard<'_, FilesOwner<F>> {
        self.0.write().await
    }
}

/// Returns the error of a call that only the owner of the files can answer.
pub(super) fn not_owner_error() -> StoreError {
    StoreError::Unavailable(
        "another weir process has taken over this store: run the command again, and that process answers it".to_owned(),
    )
}

/// A call to the successor. Each is named after a method of the traits in [`crate::store`]. A process that is stopping needs no
/// other calls: it accepts nothing new from operators, and an embedded ledger grants no leases.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::store::embedded) enum SuccessorCall {
    Find(KeyDigest),
    Touch(Vec<(KeyId, i64)>),
    ChangesSince(u64),
    Recall(Vec<StateKey>),
    Remember(Vec<(StateKey, ServedBy)>, i64),
    Admit(Box<AdmitCall>),
    TopUp(Box<TopUp>),
    Apply(NodeId, String, Vec<Step>, u64),
    Watermark(NodeId, String),
    Renew(NodeId, Vec<String>),
    Release(NodeId, String),
    Operation(String, OperationId),
    Tell(NodeId, Vec<NodeHourCounters>),
    Buckets(Hour, Hour),
}

/// Maximum length of a call or an answer, in bytes. That is enough for hundreds of steps, or for all hours of the stability
/// record.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of calls that wait to be sent.
const CALLS_WAITING_MAX: usize = 1024;
/// The timeout of a call, including the wait until it is sent.
const CALL_WAIT: Duration = Duration::from_secs(5);

/// A call to be sent, with the channel for its answer.
type PendingCall = (Vec<u8>, oneshot::Sender<Vec<u8>>);

/// The connection to the successor process. It is closed when its last clone is dropped.
#[derive(Clone)]
pub(crate) struct Successor {
    calls: mpsc::Sender<PendingCall>,
}

impl Successor {
    /// Creates the connection from a stream on which the successor answers. Must be called on a runtime.
    pub(crate) fn new(stream: UnixStream) -> Self {
        let (calls, waiting) = mpsc::channel(CALLS_WAITING_MAX);
        tokio::spawn(carry(stream, waiting));
        Self { calls }
    }

    /// Sends a call and waits for its answer.
    ///
    /// # Errors
    /// The error of the successor's store; [`StoreError::Unavailable`] if the successor has ended.
    async fn call<T: DeserializeOwned>(&self, call: &SuccessorCall) -> Result<T, StoreError> {
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

/// Sends calls and receives their answers, one after another. Ends when the stream is closed; then later calls fail.
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
        // The send fails if the caller has stopped waiting.
        let _ = to.send(answer);
    }
}

/// Reads one line, without its line feed; returns `None` at the end of the stream.
pub(in crate::store::embedded) async fn read_line<R: AsyncBufReadExt + Unpin>(read: &mut R) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    read.take(LINE_BYTES_MAX).read_until(b'\n', &mut text).await.ok()?;
    (text.pop() == Some(b'\n')).then_some(text)
}
