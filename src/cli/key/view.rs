//! Prints a key in a form for users.

use std::{fmt::Display, io::Write};

use crate::{
    api::{
        keys::{KeyDetails, PeriodSpend},
        values::Percents,
    },
    cli::args::DEFAULT,
    domain::ledger::QuotaReset,
};

/// The text for no quota.
const UNLIMITED: &str = "unlimited";

/// Formats the quota of a key and its period as a short text.
pub(super) fn quota(key: &KeyDetails) -> String {
    match (key.quota_usd, key.reset) {
        (None, _) => UNLIMITED.to_owned(),
        (Some(quota), QuotaReset::None) => quota.to_string(),
        (Some(quota), reset) => format!("{quota} {}", reset.as_str()),
    }
}

/// Formats the amounts that a key has spent in the current periods, in USD.
fn spent_in_words(spent: &PeriodSpend) -> String {
    format!(
        "{} USD today, {} USD this week, {} USD this month, {} USD in all",
        spent.day_usd, spent.week_usd, spent.month_usd, spent.all_usd
    )
}

/// Formats a value, or returns `none` if there is no value.
fn or(value: Option<impl Display>, none: &str) -> String {
    value.map_or_else(|| none.to_owned(), |value| value.to_string())
}

/// Prints a key with one line for each property. The secret of a new key comes last, with a warning.
pub(super) fn print(key: &KeyDetails, out: &mut impl Write) -> std::io::Result<()> {
    let mut line = |name: &str, value: &dyn Display| writeln!(out, "{name:<14} {value}");
    line("id", &key.id)?;
    line("version", &key.version)?;
    line("name", &key.name)?;
    line("account", &key.account)?;
    line("state", &key.state.as_str())?;
    line("created_at", &or(key.created_at, "unknown"))?;
    line("expires_at", &or(key.expires_at, "never"))?;
    if let Some(at) = key.revoked_at {
        line("revoked_at", &at)?;
    }
    line("last_used", &or(key.last_used, "never"))?;
    line("models", &or(key.models.as_ref().map(|names| names.join(",")), "all"))?;
    line("hint", &key.hint)?;
    let former = key.former.as_ref();
    let former = former.map(|former| format!("ends in {}, works until {}", former.hint, or(former.until, "unknown")));
    line("former", &or(former, "none"))?;
    line("quota_usd", &or(key.quota_usd, UNLIMITED))?;
    line("reset", &key.reset.as_str())?;
    line("resets_at", &or(key.resets_at, "never"))?;
    line("spent_usd", &or(key.spent_usd, "unknown"))?;
    line("spent", &or(key.spent.as_ref().map(spent_in_words), "unknown"))?;
    line("held_usd", &or(key.held_usd, "unknown"))?;
    line("running", &or(key.running, "unknown"))?;
    line("rpm", &or(key.rpm, "none"))?;
    line("tpm", &or(key.tpm, "none"))?;
    line("concurrency", &or(key.concurrency, "none"))?;
    line("on_exhausted", &key.on_exhausted.as_str())?;
    line("finish_factor", &or(key.finish_factor, "none"))?;
    line(
        "notify_percent",
        &or(key.notify_percent.map(Percents::to_text), DEFAULT),
    )?;
    if let Some(text) = &key.key {
        line("key", &text.expose())?;
        writeln!(
            out,
            "\nKeep the key now: it is not shown again, and weir stores only its SHA-256."
        )?;
    }
    Ok(())
}
