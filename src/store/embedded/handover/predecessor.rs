//! Answers the process that has handed its store over, until its last request is settled.

use std::sync::Arc;

use serde::Serialize;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::UnixStream,
};

use super::EmbeddedFiles;
use crate::store::{
    KeyStore, StoreError,
    embedded::ownership::{call::Call, successor::line},
    ledger::LedgerStore,
    sessions::SessionStore,
    stability::StabilityStore,
};

impl EmbeddedFiles {
    /// Answers the predecessor at the other end. Returns when it has ended.
    pub(crate) async fn serve_predecessor(self: Arc<Self>, stream: UnixStream) {
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        while let Some(call) = line(&mut read).await {
            let mut answer = self.answer(&call).await;
            answer.push(b'\n');
            if write.write_all(&answer).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, call: &[u8]) -> Vec<u8> {
        let call = match serde_json::from_slice::<Call>(call) {
            Ok(call) => call,
            Err(error) => {
                tracing::error!(%error, "a call of the process before this one is not understood");
                let said =
                    StoreError::Unavailable("the process that has taken the store over knows no such call".to_owned());
                return text(&Err::<(), _>(said));
            }
        };
        match call {
            Call::Find(digest) => text(&self.keys.find(&digest).await),
            Call::Touch(used) => text(&self.keys.touch(&used).await),
            Call::ChangesSince(version) => text(&self.keys.changes_since(version).await),
            Call::Recall(states) => text(&self.keys.recall(&states).await),
            Call::Remember(served, now) => text(&self.keys.remember(&served, now).await),
            Call::Admit(ask) => text(&self.ledger.admit(&ask).await),
            Call::TopUp(ask) => text(&self.ledger.top_up(&ask).await),
            Call::Apply(node, account, steps, upto) => text(&self.ledger.apply(&node, &account, &steps, upto).await),
            Call::Watermark(node, account) => text(&self.ledger.watermark(&node, &account).await),
            Call::Renew(node, accounts) => text(&self.ledger.renew(&node, &accounts).await),
            Call::Release(node, account) => text(&self.ledger.release(&node, &account).await),
            Call::Operation(account, id) => text(&self.ledger.operation(&account, &id).await),
            Call::Tell(node, shares) => text(&self.ledger.tell(&node, &shares).await),
            Call::Buckets(first, last) => text(&self.ledger.buckets(first, last).await),
        }
    }
}

/// An answer as JSON, which has no line feeds.
fn text<T: Serialize>(answer: &Result<T, StoreError>) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_else(|error| {
        tracing::error!(%error, "an answer to the process before this one cannot be written");
        b"null".to_vec()
    })
}
