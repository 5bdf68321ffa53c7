//! The ledger's scripts. Each begins with what it needs of the shared parts.

use super::loaded::Loaded;

macro_rules! script {
    ($($file:literal)*) => {
        Loaded::new(concat!(include_str!("ledger/prelude.lua"), $(include_str!(concat!("ledger/", $file))),*))
    };
}

pub(super) struct LedgerScripts {
    pub(super) admit: Loaded,
    pub(super) top_up: Loaded,
    pub(super) lease: Loaded,
    pub(super) apply: Loaded,
    pub(super) set_terms: Loaded,
    pub(super) watermark: Loaded,
    pub(super) renew: Loaded,
    pub(super) release: Loaded,
    pub(super) account: Loaded,
    pub(super) key_spend: Loaded,
    pub(super) spent: Loaded,
    pub(super) operation: Loaded,
    pub(super) take_notices: Loaded,
    pub(super) told: Loaded,
    pub(super) rows: Loaded,
    pub(super) sums: Loaded,
    pub(super) resum: Loaded,
    pub(super) enter: Loaded,
    pub(super) names: Loaded,
    pub(super) kept: Loaded,
    pub(super) put_back: Loaded,
    pub(super) put_rows: Loaded,
    pub(super) restored: Loaded,
    pub(super) log_days: Loaded,
    pub(super) trim: Loaded,
    pub(super) put_trimmed: Loaded,
    pub(super) turn: Loaded,
}

impl LedgerScripts {
    pub(super) fn new() -> Self {
        Self {
            admit: script!("period.lua" "holds.lua" "mirror.lua" "standing.lua" "buckets.lua" "paces.lua" "recalls.lua" "admit.lua"),
            top_up: script!("period.lua" "holds.lua" "mirror.lua" "standing.lua" "buckets.lua" "paces.lua" "recalls.lua" "top_up.lua"),
            lease: script!("period.lua" "holds.lua" "mirror.lua" "standing.lua" "buckets.lua" "paces.lua" "hash.lua" "leases.lua" "lease.lua"),
            apply: script!("period.lua" "holds.lua" "mirror.lua" "buckets.lua" "operations.lua" "hash.lua" "leases.lua" "daily_sums.lua" "notices.lua" "settling.lua" "together.lua" "apply.lua"),
            set_terms: script!("hash.lua" "set_terms.lua"),
            watermark: script!("watermark.lua"),
            renew: script!("holds.lua" "renew.lua"),
            release: script!("holds.lua" "release.lua"),
            account: script!("period.lua" "holds.lua" "account.lua"),
            key_spend: script!("period.lua" "holds.lua" "key_spend.lua"),
            spent: script!("spent.lua"),
            operation: script!("operations.lua" "operation.lua"),
            take_notices: script!("notices.lua" "take_notices.lua"),
            told: script!("told.lua"),
            rows: script!("rows.lua"),
            sums: script!("sums.lua"),
            resum: script!("resum.lua"),
            enter: Loaded::new(include_str!("ledger/enter.lua")),
            names: Loaded::new(include_str!("ledger/names.lua")),
            kept: script!("period.lua" "operations.lua" "kept.lua"),
            put_back: script!("operations.lua" "put_back.lua"),
            put_rows: script!("hash.lua" "daily_sums.lua" "put_rows.lua"),
            restored: script!("restored.lua"),
            log_days: script!("log_days.lua"),
            trim: script!("trim.lua"),
            put_trimmed: script!("hash.lua" "daily_sums.lua" "put_trimmed.lua"),
            turn: Loaded::new(include_str!("ledger/turn.lua")),
        }
    }

    pub(super) fn all(&self) -> [&Loaded; 27] {
        let Self {
            admit,
            top_up,
            lease,
            apply,
            set_terms,
            watermark,
            renew,
            release,
            account,
            key_spend,
            spent,
            operation,
            take_notices,
            told,
            rows,
            sums,
            resum,
            enter,
            names,
            kept,
            put_back,
            put_rows,
            restored,
            log_days,
            trim,
            put_trimmed,
            turn,
        } = self;
        [
            admit,
            top_up,
            lease,
            apply,
            set_terms,
            watermark,
            renew,
            release,
            account,
            key_spend,
            spent,
            operation,
            take_notices,
            told,
            rows,
            sums,
            resum,
            enter,
            names,
            kept,
            put_back,
            put_rows,
            restored,
            log_days,
            trim,
            put_trimmed,
            turn,
        ]
    }
}
