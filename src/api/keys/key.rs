//! Keys as answers show them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::values::{Moment, Percents, Usd},
    domain::{
        keys::{
            key::{KeyId, KeyRecord, KeyState, KeyView},
            secret::ServiceKey,
        },
        ledger::{KeySpend, OnExhausted, Reset, period::resets_at},
        money::NanoUsd,
        version::Version,
    },
};

/// Some keys.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Keys {
    /// The keys, by their ids.
    pub(crate) keys: Vec<Key>,
    /// The last one that was looked at, where there may be others behind it.
    pub(crate) next: Option<KeyId>,
}

/// A key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Key {
    /// Its id.
    pub(crate) id: KeyId,
    /// The version of all that can be changed of it.
    pub(crate) version: Version,
    /// What its owner calls it.
    pub(crate) name: String,
    /// The account that pays.
    pub(crate) account: String,
    /// Whether it is withdrawn.
    pub(crate) state: KeyStanding,
    /// When it was made.
    pub(crate) created_at: Option<Moment>,
    /// When it ends; null: never.
    pub(crate) expires_at: Option<Moment>,
    /// When it was withdrawn.
    pub(crate) revoked_at: Option<Moment>,
    /// When it was last used; null: never.
    pub(crate) last_used: Option<Moment>,
    /// The models that it may request; null: all.
    pub(crate) models: Option<Vec<String>>,
    /// The end of its text.
    pub(crate) hint: String,
    /// The text before the present one, while it works.
    pub(crate) former: Option<FormerText>,
    /// What it may spend per period; null: unlimited.
    pub(crate) quota_usd: Option<Usd>,
    /// The same in nano-USD.
    pub(crate) quota_nano_usd: Option<NanoUsd>,
    /// When the quota begins anew.
    pub(crate) reset: Reset,
    /// The next time that it does.
    pub(crate) resets_at: Option<Moment>,
    /// What it has spent in the period of its quota; null: the store does not tell.
    pub(crate) spent_usd: Option<Usd>,
    /// The same in nano-USD.
    pub(crate) spent_nano_usd: Option<NanoUsd>,
    /// What it has spent in each period.
    pub(crate) spent: Option<PeriodSpend>,
    /// The holds of its running requests.
    pub(crate) held_usd: Option<Usd>,
    /// The same in nano-USD.
    pub(crate) held_nano_usd: Option<NanoUsd>,
    /// Running requests.
    pub(crate) running: Option<u64>,
    /// Requests per minute; null: no limit.
    pub(crate) rpm: Option<u64>,
    /// Tokens per minute, input and output; null: no limit.
    pub(crate) tpm: Option<u64>,
    /// Requests running at one time; null: no limit.
    pub(crate) concurrency: Option<u64>,
    /// What becomes of a running answer when the quota is used up.
    pub(crate) on_exhausted: OnExhausted,
    /// How many times the quota an answer that may finish can cost; null: no bound.
    pub(crate) finish_factor: Option<u32>,
    /// At which parts of the quota somebody is told; null: as the account says, or else the configuration.
    pub(crate) notify_percent: Option<Percents>,
    /// Its text, where it was made just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<KeyText>,
}

/// Whether a key is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyStanding {
    /// It is not.
    Active,
    /// It is.
    Revoked,
}

impl KeyStanding {
    /// The name, as in JSON.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Revoked => "revoked",
        }
    }
}

/// The text of a key that was made just now. It shows in JSON and nowhere else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct KeyText(String);

impl KeyText {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for KeyText {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("KeyText(..)")
    }
}

/// The text before the present one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FormerText {
    /// Its end.
    pub(crate) hint: String,
    /// Until then it works.
    pub(crate) until: Option<Moment>,
}

/// What a key has spent in the periods of now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub(crate) struct PeriodSpend {
    pub(crate) day_usd: Usd,
    pub(crate) day_nano_usd: NanoUsd,
    pub(crate) week_usd: Usd,
    pub(crate) week_nano_usd: NanoUsd,
    pub(crate) month_usd: Usd,
    pub(crate) month_nano_usd: NanoUsd,
    pub(crate) all_usd: Usd,
    pub(crate) all_nano_usd: NanoUsd,
}

impl From<&KeySpend> for PeriodSpend {
    fn from(spend: &KeySpend) -> Self {
        let KeySpend {
            all, day, week, month, ..
        } = *spend;
        Self {
            day_usd: Usd(day),
            day_nano_usd: day,
            week_usd: Usd(week),
            week_nano_usd: week,
            month_usd: Usd(month),
            month_nano_usd: month,
            all_usd: Usd(all),
            all_nano_usd: all,
        }
    }
}

impl Key {
    /// A key with what it has spent, if the store tells it, at a time in milliseconds since the Unix epoch.
    pub(crate) fn of(view: &KeyView, spend: Option<&KeySpend>, now_ms: i64) -> Self {
        let KeyView { record, last_used, .. } = view;
        let terms = &record.terms;
        let spent = spend.map(|spend| match terms.reset {
            Reset::None => spend.all,
            Reset::Daily => spend.day,
            Reset::Weekly => spend.week,
            Reset::Monthly => spend.month,
        });
        let held = spend.map(|spend| spend.held);
        let (state, revoked_at) = match record.state {
            KeyState::Active => (KeyStanding::Active, None),
            KeyState::Revoked { at } => (KeyStanding::Revoked, Some(at)),
        };
        let time = |seconds: Option<i64>| seconds.and_then(Moment::of_seconds);
        Self {
            id: record.id.clone(),
            version: view.version(),
            name: record.name.clone(),
            account: record.account.to_string(),
            state,
            created_at: Moment::of_seconds(record.created_at),
            expires_at: time(record.expires_at),
            revoked_at: time(revoked_at),
            last_used: time(*last_used),
            models: record.models.clone(),
            hint: record.hint.clone(),
            former: FormerText::of(record, now_ms.div_euclid(1000)),
            quota_usd: terms.quota.map(Usd),
            quota_nano_usd: terms.quota,
            reset: terms.reset,
            resets_at: time(resets_at(terms.reset, now_ms)),
            spent_usd: spent.map(Usd),
            spent_nano_usd: spent,
            spent: spend.map(PeriodSpend::from),
            held_usd: held.map(Usd),
            held_nano_usd: held,
            running: spend.map(|spend| spend.running),
            rpm: terms.rates.rpm,
            tpm: terms.rates.tpm,
            concurrency: terms.rates.concurrency,
            on_exhausted: terms.on_exhausted,
            finish_factor: terms.finish_factor.get(),
            notify_percent: terms.notify.map(Percents),
            key: None,
        }
    }

    /// The same with its text, which was made just now.
    pub(crate) fn with_text(self, text: &ServiceKey) -> Self {
        let key = Some(KeyText(text.as_str().to_owned()));
        Self { key, ..self }
    }
}

impl FormerText {
    fn of(record: &KeyRecord, now: i64) -> Option<Self> {
        let former = record.former.as_ref().filter(|former| former.is_good(now))?;
        Some(Self {
            hint: former.hint.clone(),
            until: Moment::of_seconds(former.until),
        })
    }
}

/// A key that is not there any more.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DeletedKey {
    /// The key.
    pub(crate) id: KeyId,
    /// True.
    pub(crate) deleted: bool,
}
