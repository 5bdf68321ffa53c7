//! The ledger's scripts. Each begins with what it needs of the shared parts.

use super::script::{RedisScript, script_table};

/// A script made of these parts.
macro_rules! alone {
    ($($file:literal)*) => {
        RedisScript::new(concat!($(include_str!(concat!("ledger/", $file))),*))
    };
}

/// The same after the part with which most scripts begin.
macro_rules! script {
    ($($file:literal)*) => {
        alone!("prelude.lua" $($file)*)
    };
}

script_table! { LedgerScripts,
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
    summed: script!("summed.lua"),
    put_sums: script!("put_sums.lua"),
    enter: alone!("enter.lua"),
    names: alone!("names.lua"),
    kept: script!("period.lua" "operations.lua" "kept.lua"),
    put_back: script!("operations.lua" "put_back.lua"),
    put_rows: script!("put_rows.lua"),
    restored: script!("restored.lua"),
    log_days: script!("log_days.lua"),
    remove: script!("remove.lua"),
}
