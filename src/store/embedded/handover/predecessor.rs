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
    embedded::ownership::{call::SuccessorCall, successor::read_line},
    ledger::LedgerStore,
    sessions::SessionStore,
    stability::StabilityStore,
};

impl EmbeddedFiles {
    /// Answers the calls of the predecessor at the other end of `stream`. Returns when it has ended.
    pub(crate) async fn serve_predecessor(self: Arc<Self>, stream: UnixStream) {
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        while let Some(call) = read_line(&mut read).await {
            let mut answer = self.answer(&call).await;
            answer.push(b'\n');
            if write.write_all(&answer).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, call: &[u8]) -> Vec<u8> {
        let call = match serde_json::from_slice::<SuccessorCall>(call) {
            Ok(call) => call,
            Err(error) => {
                tracing::error!(%error, "cannot understand a call of the predecessor process");
                let said = StoreError::Unavailable(
                    "the process that has taken over the store does not know this call".to_owned(),
                );
                return encode_answer(&Err::<(), _>(said));
            }
        };
        match call {
            SuccessorCall::Find(digest) => encode_answer(&self.keys.find(&digest).await),
            SuccessorCall::Touch(used) => encode_answer(&self.keys.record_uses(&used).await),
            SuccessorCall::ChangesSince(version) => encode_answer(&self.keys.changes_since(version).await),
            SuccessorCall::Recall(states) => encode_answer(&self.keys.recall(&states).await),
            SuccessorCall::Remember(served, now) => encode_answer(&self.keys.remember(&served, now).await),
            SuccessorCall::Admit(ask) => encode_answer(&self.ledger.admit(&ask).await),
            SuccessorCall::TopUp(ask) => encode_answer(&self.ledger.top_up(&ask).await),
            SuccessorCall::Apply(node, account, steps, upto) => {
                encode_answer(&self.ledger.apply(&node, &account, &steps, upto).await)
            }
            SuccessorCall::Watermark(node, account) => encode_answer(&self.ledger.watermark(&node, &account).await),
            SuccessorCall::Renew(node, accounts) => encode_answer(&self.ledger.renew(&node, &accounts).await),
            SuccessorCall::Release(node, account) => encode_answer(&self.ledger.release(&node, &account).await),
            SuccessorCall::Operation(account, id) => encode_answer(&self.ledger.operation_amount(&account, &id).await),
            SuccessorCall::Tell(node, shares) => encode_answer(&self.ledger.put_shares(&node, &shares).await),
            SuccessorCall::Buckets(first, last) => encode_answer(&self.ledger.buckets(first, last).await),
        }
    }
}

/// An answer as JSON, which contains no line feeds.
fn encode_answer<T: Serialize>(answer: &Result<T, StoreError>) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_else(|error| {
        tracing::error!(%error, "cannot encode an answer to the predecessor process");
        b"null".to_vec()
    })
}
