//! `weir key`: manages the keys of accounts.

use std::{fmt::Display, io::Write};

use clap::{Args, Subcommand};

use crate::{
    api::{
        keys::{
            self, CreateKey, DeleteKey, EndOverlap, KeyDetails, ListKeys, PeriodSpend, RevokeKey, RotateKey, ShowKey,
            UpdateKey,
        },
        values::{AccountId, KeyName, ModelNames, Moment, Percents, Seed, Usd},
    },
    cli::{
        DEFAULT, IdArgs, IfVersion, OrNone, OverlapArg, QuotaArgs, RateArgs,
        admin_client::{AdminClient, AdminClientError, ClientArgs, ClientReply},
        or, something_to_change,
    },
    domain::{
        keys::{KeyId, change::KeyUpdate},
        ledger::{OperationId, QuotaReset},
    },
};

/// The number of keys per call of the admin API.
const PAGE: u64 = 500;

/// The subcommands of `weir key`.
#[derive(Clone, Debug, Subcommand)]
pub enum KeyCommand {
    /// Create a key and print its secret, which is shown only once
    Create(KeyCreateArgs),
    /// List the keys
    List(ListArgs),
    /// Show one key
    Show(OneKeyArgs),
    /// Change a key
    Update(KeyUpdateArgs),
    /// Give a key a new secret. The old secret remains valid for a day, or for the time in --overlap
    Rotate(RotateArgs),
    /// Invalidate the old secret of a rotated key now
    EndOverlap(ChangeArgs),
    /// Revoke a key permanently, but keep its record
    Revoke(ChangeArgs),
    /// Delete a key and its record
    Delete(ChangeArgs),
}

/// The arguments of `weir key create`.
#[derive(Args, Clone, Debug)]
pub struct KeyCreateArgs {
    /// The account that pays for the key's requests
    #[arg(long)]
    pub(crate) account: AccountId,
    /// The key's name, for display
    #[arg(long)]
    pub(crate) name: KeyName,
    /// When the key expires: an RFC 3339 time, a date (its first moment in UTC), or never
    #[arg(long, value_name = "TIME|never", default_value = "never", value_parser = or_never)]
    pub(crate) expires: OrNone<Moment>,
    /// The models that the key may use, separated by commas, or all
    #[arg(long, value_name = "LIST|all", default_value = "all", value_parser = or_all)]
    pub(crate) models: OrNone<ModelNames>,
    /// An id of this command. Several commands with the same id create only one key. A repeated command fails, and its error
    /// message contains the id of the existing key
    #[arg(long, value_name = "ID")]
    pub(crate) operation_id: Option<OperationId>,
    /// Print only the secret, for example for `WEIR_KEY=$(weir key create ...)`
    #[arg(long, conflicts_with = "json")]
    pub only_key: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub quota: QuotaArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub rates: RateArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// The arguments of `weir key list`.
#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    /// List only keys of this account
    #[arg(long)]
    pub(crate) account: Option<AccountId>,
    /// List only keys with this text in their name, account or hint (the last characters of the secret), or with this id
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// List only keys used since this time: an RFC 3339 time, or a date (its first moment in UTC)
    #[arg(long, value_name = "TIME")]
    pub(crate) used_since: Option<Moment>,
    /// List only keys that were created before this time and were not used at this time or later
    #[arg(long, value_name = "TIME")]
    pub(crate) unused_since: Option<Moment>,
    /// List only keys whose time of expiry is before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) expires_before: Option<Moment>,
    /// List only keys that have spent at least this many USD in the current quota period
    #[arg(long, value_name = "D")]
    pub(crate) spent_usd: Option<Usd>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

impl ListArgs {
    /// Returns the call for the first page of the selected keys.
    fn first_page(&self) -> ListKeys {
        ListKeys {
            account: self.account.clone(),
            after: None,
            limit: Some(PAGE),
            search: self.search.clone(),
            used_since: self.used_since,
            unused_since: self.unused_since,
            expires_before: self.expires_before,
            spent_usd: self.spent_usd,
        }
    }
}

/// The arguments of a command that reads one key.
#[derive(Args, Clone, Debug)]
pub struct OneKeyArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub(crate) named: IdArgs<KeyId>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// The arguments of a command that changes one key.
#[derive(Args, Clone, Debug)]
pub struct ChangeArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub(crate) named: IdArgs<KeyId>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub from: IfVersion,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// The arguments of `weir key rotate`.
#[derive(Args, Clone, Debug)]
pub struct RotateArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub(crate) named: IdArgs<KeyId>,
    /// How long the old secret remains valid, such as 30m, 24h or 7d; at most 30d. With 0, it becomes invalid at once [default:
    /// 24h]
    #[arg(long, value_name = "DURATION", value_parser = OverlapArg::parse)]
    pub overlap: Option<OverlapArg>,
    /// Print only the new secret, for example for `WEIR_KEY=$(weir key rotate ...)`
    #[arg(long, conflicts_with = "json")]
    pub only_key: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub from: IfVersion,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// The arguments of `weir key update`.
#[derive(Args, Clone, Debug)]
pub struct KeyUpdateArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub(crate) named: IdArgs<KeyId>,
    /// The key's new name
    #[arg(long)]
    pub(crate) name: Option<KeyName>,
    /// When the key expires: an RFC 3339 time, a date (its first moment in UTC), or never
    #[arg(long, value_name = "TIME|never", value_parser = or_never)]
    pub(crate) expires: Option<OrNone<Moment>>,
    /// The models that the key may use, separated by commas, or all
    #[arg(long, value_name = "LIST|all", value_parser = or_all)]
    pub(crate) models: Option<OrNone<ModelNames>>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub quota: QuotaArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub rates: RateArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub from: IfVersion,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

impl KeyCommand {
    /// Returns the options for calling a running weir.
    pub fn client(&self) -> &ClientArgs {
        match self {
            Self::Create(args) => &args.client,
            Self::List(args) => &args.client,
            Self::Rotate(args) => &args.client,
            Self::Show(args) => &args.client,
            Self::EndOverlap(args) | Self::Revoke(args) | Self::Delete(args) => &args.client,
            Self::Update(args) => &args.client,
        }
    }

    fn prints_only_the_key(&self) -> bool {
        match self {
            Self::Create(args) => args.only_key,
            Self::Rotate(args) => args.only_key,
            Self::List(_)
            | Self::Show(_)
            | Self::Update(_)
            | Self::EndOverlap(_)
            | Self::Revoke(_)
            | Self::Delete(_) => false,
        }
    }
}

fn or_never(text: &str) -> Result<OrNone<Moment>, String> {
    or("never", text)
}

fn or_all(text: &str) -> Result<OrNone<ModelNames>, String> {
    or("all", text)
}

/// Calls the admin API and prints the result.
pub(crate) async fn run(
    command: &KeyCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let reply = match command {
        KeyCommand::List(args) => return list(args, client, out).await,
        KeyCommand::Delete(args) => return delete(args, client, out).await,
        KeyCommand::Create(args) => {
            let key = creation(args);
            client.request_repeatable(None, &key).await?
        }
        KeyCommand::Update(args) => {
            let update = update(args)?;
            something_to_change(update.update() == KeyUpdate::default())?;
            client.request_if(args.from.if_version, &update).await?
        }
        KeyCommand::Show(args) => {
            client
                .request(&ShowKey {
                    id: args.named.id_or_error()?,
                })
                .await?
        }
        KeyCommand::Rotate(args) => {
            let rotation = RotateKey {
                id: args.named.id_or_error()?,
                overlap_seconds: args.overlap.map(|OverlapArg(seconds)| keys::OverlapSeconds(seconds)),
                seed: Some(Seed::generate(&mut rand::rng())),
            };
            client.request_repeatable(args.from.if_version, &rotation).await?
        }
        KeyCommand::EndOverlap(args) => {
            let id = args.named.id_or_error()?;
            client.request_if(args.from.if_version, &EndOverlap { id }).await?
        }
        KeyCommand::Revoke(args) => {
            let id = args.named.id_or_error()?;
            client.request_if(args.from.if_version, &RevokeKey { id }).await?
        }
    };
    print_reply(command, &reply, out)
}

fn print_reply(
    command: &KeyCommand,
    reply: &ClientReply<KeyDetails>,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    if command.client().json {
        writeln!(out, "{}", reply.text)?;
        return Ok(());
    }
    let key = reply.read()?;
    match &key.key {
        Some(text) if command.prints_only_the_key() => writeln!(out, "{}", text.expose())?,
        _ => print(&key, out)?,
    }
    Ok(())
}

fn creation(args: &KeyCreateArgs) -> CreateKey {
    let (quota, rates) = (&args.quota, &args.rates);
    let (OrNone(expires_at), OrNone(models)) = (args.expires, args.models.clone());
    CreateKey {
        expires_at,
        models,
        operation_id: Some(
            args.operation_id
                .clone()
                .unwrap_or_else(|| OperationId::generate(&mut rand::rng())),
        ),
        seed: Some(Seed::generate(&mut rand::rng())),
        quota_usd: OrNone::nullable(quota.quota_usd),
        reset: quota.reset,
        on_exhausted: quota.on_exhausted,
        finish_factor: OrNone::nullable(quota.finish_factor),
        notify_percent: OrNone::nullable(quota.notify.notify),
        rpm: OrNone::nullable(rates.rpm),
        tpm: OrNone::nullable(rates.tpm),
        concurrency: OrNone::nullable(rates.concurrency),
        ..CreateKey::new(args.account.clone(), args.name.clone())
    }
}

fn update(args: &KeyUpdateArgs) -> Result<UpdateKey, AdminClientError> {
    let (quota, rates) = (&args.quota, &args.rates);
    Ok(UpdateKey {
        name: args.name.clone(),
        expires_at: OrNone::nullable(args.expires),
        models: OrNone::nullable(args.models.clone()),
        quota_usd: OrNone::nullable(quota.quota_usd),
        reset: quota.reset,
        on_exhausted: quota.on_exhausted,
        finish_factor: OrNone::nullable(quota.finish_factor),
        notify_percent: OrNone::nullable(quota.notify.notify),
        rpm: OrNone::nullable(rates.rpm),
        tpm: OrNone::nullable(rates.tpm),
        concurrency: OrNone::nullable(rates.concurrency),
        ..UpdateKey::new(args.named.id_or_error()?)
    })
}

async fn delete(args: &ChangeArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let id = args.named.id_or_error()?;
    let reply = client.request_if(args.from.if_version, &DeleteKey { id }).await?;
    if args.client.json {
        writeln!(out, "{}", reply.text)?;
    } else {
        writeln!(out, "{:<14} {}\n{:<14} true", "id", reply.read()?.id, "deleted")?;
    }
    Ok(())
}

async fn list(args: &ListArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let mut page = args.first_page();
    let mut has_heading = args.client.json;
    loop {
        let answer = client.request(&page).await?.read()?;
        if !std::mem::replace(&mut has_heading, true) {
            writeln!(
                out,
                "{:<20}  {:<8}  {:<20}  {:<24}  {:<20}  {:<20}  {:<16}  {:<16}  {:<20}  LAST USED",
                "ID", "STATE", "ACCOUNT", "NAME", "EXPIRES", "QUOTA USD", "SPENT USD", "HELD USD", "RESETS"
            )?;
        }
        for key in &answer.keys {
            if args.client.json {
                writeln!(out, "{}", serde_json::to_string(key).map_err(std::io::Error::other)?)?;
                continue;
            }
            let time = |at: Option<Moment>| at.map_or_else(|| "never".to_owned(), |at| at.to_string());
            let usd = |amount: Option<Usd>| amount.map_or_else(|| "unknown".to_owned(), |amount| amount.to_string());
            writeln!(
                out,
                "{:<20}  {:<8}  {:<20}  {:<24}  {:<20}  {:<20}  {:<16}  {:<16}  {:<20}  {}",
                key.id.as_str(),
                key.state.as_str(),
                key.account,
                key.name,
                time(key.expires_at),
                quota(key),
                usd(key.spent_usd),
                usd(key.held_usd),
                time(key.resets_at),
                time(key.last_used),
            )?;
        }
        match answer.next {
            Some(next) => page.after = Some(next),
            None => return Ok(()),
        }
    }
}

/// The text that is printed for a key without a quota.
const UNLIMITED: &str = "unlimited";

/// Formats the quota of a key and its period as a short text.
fn quota(key: &KeyDetails) -> String {
    match (key.quota_usd, key.reset) {
        (None, _) => UNLIMITED.to_owned(),
        (Some(quota), QuotaReset::None) => quota.to_string(),
        (Some(quota), reset) => format!("{quota} {}", reset.as_str()),
    }
}

/// Formats the amounts that a key has spent in the current periods, in USD.
fn spent_in_words(spent: &PeriodSpend) -> String {
    format!(
        "{} USD today, {} USD this week, {} USD this month, {} USD in total",
        spent.day_usd, spent.week_usd, spent.month_usd, spent.all_usd
    )
}

/// Formats a value. Returns the string in the parameter `none` if there is no value.
fn or_word(value: Option<impl Display>, none: &str) -> String {
    value.map_or_else(|| none.to_owned(), |value| value.to_string())
}

/// Prints a key, with one line for each property. The secret of a new key comes last, with a warning.
fn print(key: &KeyDetails, out: &mut impl Write) -> std::io::Result<()> {
    let mut line = |name: &str, value: &dyn Display| writeln!(out, "{name:<14} {value}");
    line("id", &key.id)?;
    line("version", &key.version)?;
    line("name", &key.name)?;
    line("account", &key.account)?;
    line("state", &key.state.as_str())?;
    line("created_at", &or_word(key.created_at, "unknown"))?;
    line("expires_at", &or_word(key.expires_at, "never"))?;
    if let Some(at) = key.revoked_at {
        line("revoked_at", &at)?;
    }
    line("last_used", &or_word(key.last_used, "never"))?;
    line(
        "models",
        &or_word(key.models.as_ref().map(|names| names.join(",")), "all"),
    )?;
    line("hint", &key.hint)?;
    let former = key.former.as_ref();
    let former = former.map(|former| {
        format!(
            "the old secret, which ends in {}, works until {}",
            former.hint,
            or_word(former.until, "unknown")
        )
    });
    line("former", &or_word(former, "none"))?;
    line("quota_usd", &or_word(key.quota_usd, UNLIMITED))?;
    line("reset", &key.reset.as_str())?;
    line("resets_at", &or_word(key.resets_at, "never"))?;
    line("spent_usd", &or_word(key.spent_usd, "unknown"))?;
    line("spent", &or_word(key.spent.as_ref().map(spent_in_words), "unknown"))?;
    line("held_usd", &or_word(key.held_usd, "unknown"))?;
    line("running", &or_word(key.running, "unknown"))?;
    line("rpm", &or_word(key.rpm, "none"))?;
    line("tpm", &or_word(key.tpm, "none"))?;
    line("concurrency", &or_word(key.concurrency, "none"))?;
    line("on_exhausted", &key.on_exhausted.as_str())?;
    line("finish_factor", &or_word(key.finish_factor, "none"))?;
    line(
        "notify_percent",
        &or_word(key.notify_percent.map(Percents::to_text), DEFAULT),
    )?;
    if let Some(text) = &key.key {
        line("key", &text.expose())?;
        writeln!(
            out,
            "\nSave the key now: it is not shown again, because weir stores only its SHA-256."
        )?;
    }
    Ok(())
}
