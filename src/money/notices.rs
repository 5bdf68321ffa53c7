//! Sends notices before a quota or balance runs out. A task takes the notices from the ledger, logs each notice, sends it to the
//! webhook, and then lets the ledger delete it.
//!
//! A notice is sent at least once. A notice stays in the ledger if it cannot be sent, if its delivery is not confirmed, or if the
//! node that sends it ends. After a pause, any node can take the notice again. Each process that takes a notice logs it once, so
//! every notice is logged at least once.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{StreamExt, future::join_all, stream};
use http::{Request, Uri, header};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, watch};

use crate::{
    domain::{
        keys::{
            KeyId,
            secret::{Secret, WebhookSigner},
            terms::Thresholds,
        },
        ledger::account::notices::{Notice, NoticeId},
        money::NanoUsd,
    },
    edges::{
        clock,
        web_client::{WebClient, WebError, WebLimits},
    },
    store::{
        KeyStore, StoreError,
        ledger::{LIST_ACCOUNTS_MAX, LedgerStore},
    },
};

/// The minimum interval between two calls to the ledger for one account's notices, however often the account is charged.
const PAUSE: Duration = Duration::from_secs(1);
/// The interval at which the notices of all accounts are queried. The query finds the notices of nodes that have ended and are
/// never restarted.
const ROUND: Duration = Duration::from_secs(600);
/// The pause after a query that failed.
const ROUND_AGAIN: Duration = Duration::from_secs(10);
/// Maximum number of accounts whose notices are queried at the same time.
const AT_ONCE: usize = 8;
/// Maximum number of charged accounts that are stored. The same maximum applies to the accounts that are to be queried again
/// later. Further accounts are found in the next round.
const REMEMBERED_MAX: usize = 10_000;
/// Maximum number of ids of logged notices that are stored. Beyond that, a notice may be logged twice.
const LOGGED_MAX: usize = 10_000;

/// The accounts that were charged since their notices were last queried.
#[derive(Debug, Default)]
pub(crate) struct ChargedAccounts {
    names: Mutex<BTreeSet<String>>,
    woken: Notify,
}

impl ChargedAccounts {
    /// Records that an account was charged, so that its notices are queried.
    pub(crate) fn record(&self, account: &str) {
        let mut names = self.names.lock();
        if names.len() < REMEMBERED_MAX && !names.contains(account) {
            names.insert(account.to_owned());
            drop(names);
            self.woken.notify_one();
        }
    }
}

/// The thresholds at which notices are sent, and their receiver.
#[derive(Debug)]
pub(crate) struct NoticeSettings {
    /// The quota thresholds of a key if neither the key nor its account has thresholds.
    pub quota_percent: Thresholds,
    /// The receiver of notices; `None` if they are only logged.
    pub webhook: Option<Webhook>,
    /// The pause after the first failed attempt. It must be longer than the timeout of an attempt.
    pub retry: Duration,
}

/// The background task that sends notices.
pub(crate) struct Notifier {
    ledger: Arc<dyn LedgerStore>,
    keys: Arc<dyn KeyStore>,
    charged: Arc<ChargedAccounts>,
    settings: NoticeSettings,
    /// The ids of notices that this process has logged and the ledger has not deleted yet.
    logged: Mutex<BTreeSet<String>>,
}

impl Notifier {
    pub(crate) fn new(
        ledger: Arc<dyn LedgerStore>,
        keys: Arc<dyn KeyStore>,
        charged: Arc<ChargedAccounts>,
        settings: NoticeSettings,
    ) -> Self {
        Self {
            ledger,
            keys,
            charged,
            settings,
            logged: Mutex::default(),
        }
    }

    /// Runs until `stopped` becomes true. Notices that are being sent at that moment may be sent again.
    pub(crate) async fn run(self, mut stopped: watch::Receiver<bool>) {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = self.run_rounds() => {}
        }
    }

    async fn run_rounds(&self) {
        let mut waiting: BTreeMap<String, Instant> = BTreeMap::new();
        let mut round = clock::instant();
        loop {
            if round <= clock::instant() {
                let rest = self.round(&mut waiting).await;
                round = clock::instant() + rest;
            }
            let now = clock::instant();
            let mut names = std::mem::take(&mut *self.charged.names.lock());
            let due = waiting
                .iter()
                .filter(|(_, due)| **due <= now)
                .map(|(name, _)| name.clone());
            names.extend(due.collect::<Vec<_>>());
            waiting.retain(|_, due| *due > now);
            self.notify_accounts(names, &mut waiting).await;
            tokio::time::sleep(PAUSE).await;
            let next = waiting.values().min().map_or(round, |due| round.min(*due));
            tokio::select! {
                () = self.charged.woken.notified() => {}
                () = tokio::time::sleep(next.saturating_duration_since(clock::instant())) => {}
            }
        }
    }

    /// Queries the notices of all accounts once. Returns the pause until the next round.
    async fn round(&self, waiting: &mut BTreeMap<String, Instant>) -> Duration {
        let mut after: Option<String> = None;
        loop {
            let page = match self.ledger.accounts(after.as_deref(), LIST_ACCOUNTS_MAX).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::debug!(%error, "cannot read the list of accounts from the store; weir queries the notices of the accounts later");
                    return ROUND_AGAIN;
                }
            };
            let names: BTreeSet<String> = page.into_iter().map(|account| account.id).collect();
            let Some(last) = names.last().cloned() else {
                return ROUND;
            };
            after = Some(last);
            self.notify_accounts(names, waiting).await;
        }
    }

    /// Sends the due notices of these accounts. Records in `waiting` when each account is to be queried again.
    async fn notify_accounts(&self, names: BTreeSet<String>, waiting: &mut BTreeMap<String, Instant>) {
        let asked = stream::iter(names).map(|name| async move {
            let rest = self.notify_account(&name).await.unwrap_or_else(|error| {
                tracing::debug!(account = name, %error, "cannot read the account's notices from the store");
                Some(ROUND_AGAIN)
            });
            (name, rest)
        });
        let mut answers = asked.buffer_unordered(AT_ONCE);
        while let Some((name, rest)) = answers.next().await {
            if let Some(rest) = rest
                && waiting.len() < REMEMBERED_MAX
            {
                waiting.insert(name, clock::instant() + rest);
            }
        }
    }

    /// Sends the due notices of one account. Returns the time until the account's next notice is due, or `None` if the account
    /// has no further notices.
    async fn notify_account(&self, account: &str) -> Result<Option<Duration>, StoreError> {
        let pause_ms = i64::try_from(self.settings.retry.as_millis()).unwrap_or(i64::MAX >> 16);
        let taken = self.ledger.take_notices(account, pause_ms).await?;
        if taken.lost > 0 {
            let lost = taken.lost;
            tracing::warn!(
                account,
                lost,
                "notices were dropped, because too many notices of the account could not be sent: check the webhook"
            );
        }
        let sent = taken.notices.iter().map(|notice| self.send(account, notice));
        let sent = join_all(sent).await;
        let told = taken.notices.iter().zip(sent).filter(|(_, is_told)| *is_told);
        let told: Vec<NoticeId> = told.map(|(notice, _)| notice.id.clone()).collect();
        if !told.is_empty() {
            self.ledger.acknowledge_notices(account, &told).await?;
            let mut said = self.logged.lock();
            for of in &told {
                said.remove(&id(account, of));
            }
        }
        let rest = taken.next_in_ms.and_then(|rest| u64::try_from(rest).ok());
        Ok(rest.map(Duration::from_millis))
    }

    /// Whether to send a notice at this threshold. The key's own list of thresholds decides. If the key has no list, the
    /// account's list decides. If the account has none either, the configuration's list decides. If the store cannot be read, the
    /// notice is sent, because an unwanted notice is better than a missing one.
    async fn should_notify(&self, account: &str, key: &KeyId, percent: u8) -> bool {
        let of_key = match self.keys.by_id(key).await {
            Ok(view) => view.and_then(|view| view.record.terms.notify),
            Err(_) => return true,
        };
        let chosen = match (of_key, self.ledger.account(account).await) {
            (Some(chosen), _) => Some(chosen),
            (None, Ok(view)) => view.and_then(|view| view.record.terms.notify),
            (None, Err(_)) => return true,
        };
        chosen.unwrap_or(self.settings.quota_percent).contains(percent)
    }

    /// Records the notice as logged. Returns true if this process had not logged it before.
    fn mark_logged(&self, id: &str) -> bool {
        let mut said = self.logged.lock();
        if said.len() >= LOGGED_MAX {
            said.clear();
        }
        said.insert(id.to_owned())
    }

    /// Sends one notice. Returns whether the ledger may delete it.
    async fn send(&self, account: &str, notice: &Notice) -> bool {
        if let NoticeId::Quota { percent, key, .. } = &notice.id
            && !self.should_notify(account, key, *percent).await
        {
            return true;
        }
        let id = id(account, &notice.id);
        // `tries` does not show whether the notice was logged, because the process that took it before may have ended without
        // logging it.
        if self.mark_logged(&id) {
            log_notice(account, notice);
        }
        let Some(webhook) = &self.settings.webhook else {
            return true;
        };
        let body = body(account, notice);
        match webhook.post(&id, body).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(account, id, tries = notice.tries, %error, "cannot send a notice; weir will try again later");
                false
            }
        }
    }
}

/// Writes a notice to the log.
fn log_notice(account: &str, notice: &Notice) {
    let usd = |amount: NanoUsd| amount.to_string();
    let (reached, limit) = (usd(notice.reached), usd(notice.limit));
    match &notice.id {
        NoticeId::Quota {
            percent, period, key, ..
        } => {
            let (key, period) = (key.as_str(), period.to_string());
            tracing::warn!(
                account,
                key,
                period,
                percent,
                spent_usd = reached,
                quota_usd = limit,
                "a key has spent a configured percentage of its quota"
            );
        }
        NoticeId::Balance { .. } => {
            tracing::warn!(
                account,
                balance_usd = reached,
                low_balance_usd = limit,
                "the balance of an account has become low"
            );
        }
    }
}

/// A notice's id is made from this number of bytes of a digest.
const ID_BYTES: usize = 16;

/// Returns the id of a notice, which is the same at each attempt and from each node.
fn id(account: &str, of: &NoticeId) -> String {
    let digest = Sha256::digest(format!("{account}\n{}", of.store_name()));
    digest.iter().take(ID_BYTES).fold("msg_".to_owned(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}

/// Returns the JSON body of the request that sends a notice.
fn body(account: &str, notice: &Notice) -> String {
    let at = Timestamp::from_millisecond(notice.at_ms).map_or(Value::Null, |at| json!(format!("{at:.3}")));
    let (reached, limit) = (notice.reached.to_string(), notice.limit.to_string());
    let (kind, data) = match &notice.id {
        NoticeId::Quota {
            percent, period, key, ..
        } => (
            "quota.reached",
            json!({
                "account": account, "key": key.as_str(), "percent": percent, "period": period,
                "spent_usd": reached, "quota_usd": limit,
            }),
        ),
        NoticeId::Balance { .. } => (
            "balance.low",
            json!({ "account": account, "balance_usd": reached, "low_balance_usd": limit }),
        ),
    };
    json!({ "type": kind, "timestamp": at, "data": data }).to_string()
}

/// Maximum size of the receiver's response, in bytes. Its body is not used.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The webhook that receives notices.
pub(crate) struct Webhook {
    url: Uri,
    signer: WebhookSigner,
    client: WebClient,
}

/// The reason why the receiver did not accept a notice. The message never contains text from the receiver.
#[derive(Debug, thiserror::Error)]
enum WebhookError {
    /// The receiver did not respond in time.
    #[error("the receiver did not respond within {0:?}")]
    Late(Duration),
    /// The receiver is unreachable, or the connection broke.
    #[error("cannot reach the receiver: {0}")]
    Away(String),
    /// The receiver responded with a status other than 2xx.
    #[error("the receiver responded with status {0}")]
    Refused(u16),
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The path is not printed, because it may contain a secret.
        out.debug_struct("Webhook")
            .field("host", &self.url.host())
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// Creates a webhook for the receiver at `url`, an `http://` or `https://` URL with a host. An attempt takes at most
    /// `timeout`.
    ///
    /// # Errors
    /// The secret cannot be used for signing, or the platform has no CA certificates.
    pub(crate) fn new(url: Uri, secret: &Secret, timeout: Duration) -> Result<Self, String> {
        let limits = WebLimits {
            connect: timeout,
            total: Some(timeout),
            answer_bytes_max: ANSWER_BYTES_MAX,
            idle_max: 0,
        };
        Ok(Self {
            url,
            signer: WebhookSigner::new(secret)?,
            client: WebClient::new(None, limits).map_err(|error| error.to_string())?,
        })
    }

    /// Checks that a secret can be used for signing.
    ///
    /// # Errors
    /// Returns a description of the fault. The description does not contain the secret.
    pub(crate) fn check(secret: &Secret) -> Result<(), String> {
        WebhookSigner::new(secret).map(drop)
    }

    /// Sends a message to the receiver. The receiver accepts the message only with a 2xx response. Redirects are not followed.
    async fn post(&self, id: &str, body: String) -> Result<(), WebhookError> {
        let body = Bytes::from(body);
        let mut request = Request::post(self.url.clone()).header(header::CONTENT_TYPE, "application/json");
        for (name, value) in self.signer.headers(id, clock::unix_seconds(), &body) {
            request = request.header(name, value);
        }
        let request = request
            .body(body)
            .map_err(|error| WebhookError::Away(error.to_string()))?;
        match self.client.send(request).await {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(WebhookError::Refused(answer.status().as_u16())),
            Err(WebError::Late(limit)) => Err(WebhookError::Late(limit)),
            Err(away) => Err(WebhookError::Away(away.to_string())),
        }
    }
}

#[cfg(test)]
mod message_tests {
    use super::*;
    use crate::domain::{keys::KeyId, money::NanoUsd};

    #[test]
    fn a_message_says_what_was_reached_and_has_the_same_id_each_time() {
        let of = NoticeId::Quota {
            percent: 80,
            period: "m202611".parse().unwrap(),
            quota: NanoUsd::from_nanos(5_000_000_000),
            key: KeyId::parse("key_0000000000000001").unwrap(),
        };
        let notice = Notice {
            id: of.clone(),
            reached: NanoUsd::from_nanos(4_100_000_000),
            limit: NanoUsd::from_nanos(5_000_000_000),
            at_ms: 1_795_262_400_000,
            tries: 3,
        };
        assert_eq!(
            body("acme", &notice),
            r#"{"type":"quota.reached","timestamp":"2026-11-21T12:00:00.000Z","data":{"account":"acme","key":"key_0000000000000001","percent":80,"period":"m202611","spent_usd":"4.10","quota_usd":"5.00"}}"#
        );
        assert_eq!(id("acme", &of).len(), "msg_".len() + 2 * ID_BYTES);
        assert_eq!(id("acme", &of), id("acme", &of));
        assert_ne!(id("acme", &of), id("beta", &of));
    }
}
