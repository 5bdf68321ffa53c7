//! `weir key`: the life of service keys.

use std::io::Write;

use clap::{Args, Subcommand};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use self::view::{key_of, print, quota};
use super::{
    admin_client::{AdminClient, AdminClientError, ClientArgs},
    limits::{QuotaArgs, RateArgs, put_or_null, something_to_change},
    named::{IfVersion, Named},
    overlap::Overlap,
};
use crate::domain::ledger::OperationId;

mod view;

/// Keys asked for at once.
const PAGE: usize = 500;

/// What to do with keys.
#[derive(Clone, Debug, Subcommand)]
pub enum KeyCommand {
    /// Create a key; it is shown this once
    Create(CreateArgs),
    /// List the keys
    List(ListArgs),
    /// Show one key
    Show(OneArgs),
    /// Change a key
    Update(UpdateArgs),
    /// Give a key a new text; the old one works on for a day, or as long as you say
    Rotate(RotateArgs),
    /// End the old text of a rotated key now
    EndOverlap(ChangeArgs),
    /// Withdraw a key for good, keeping its record
    Revoke(ChangeArgs),
    /// Delete a key and its record
    Delete(ChangeArgs),
}

/// `weir key create`
#[derive(Args, Clone, Debug)]
pub struct CreateArgs {
    /// The account that pays
    #[arg(long)]
    pub account: String,
    /// What its owner calls it
    #[arg(long)]
    pub name: String,
    /// When it ends: an RFC 3339 time, a date for its first moment in UTC, or never
    #[arg(long, value_name = "TIME|never", default_value = "never")]
    pub expires: String,
    /// The models it may use, separated by commas, or all
    #[arg(long, value_name = "LIST|all", default_value = "all")]
    pub models: String,
    /// Makes one key for this id, however often the command is run: the second time, it says which key that was
    #[arg(long, value_name = "ID")]
    pub operation_id: Option<OperationId>,
    /// Print the key and nothing else, as `WEIR_KEY=$(weir key create ...)` wants it
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

/// `weir key list`
#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    /// Only the keys of this account
    #[arg(long)]
    pub account: Option<String>,
    /// Only those with this in their name, account or hint, or with this id
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// Only those used since then: an RFC 3339 time, or a date for its first moment in UTC
    #[arg(long, value_name = "TIME")]
    pub used_since: Option<String>,
    /// Only those that are older than that time and were not used since
    #[arg(long, value_name = "TIME")]
    pub unused_since: Option<String>,
    /// Only those that end before that time, or have ended
    #[arg(long, value_name = "TIME")]
    pub expires_before: Option<String>,
    /// Only those that have spent as much in the period of their quota
    #[arg(long, value_name = "D")]
    pub spent_usd: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

impl ListArgs {
    /// What was given, as the end of a query.
    fn filter(&self) -> String {
        let given = [
            ("account", &self.account),
            ("search", &self.search),
            ("used_since", &self.used_since),
            ("unused_since", &self.unused_since),
            ("expires_before", &self.expires_before),
            ("spent_usd", &self.spent_usd),
        ];
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let pairs = given.iter().filter_map(|(name, text)| Some((name, text.as_deref()?)));
        pairs.map(|(name, text)| format!("&{name}={}", encoded(text))).collect()
    }
}

/// A command on one key.
#[derive(Args, Clone, Debug)]
pub struct OneArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub named: Named,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// A command that changes one key.
#[derive(Args, Clone, Debug)]
pub struct ChangeArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub named: Named,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub from: IfVersion,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// `weir key rotate`
#[derive(Args, Clone, Debug)]
pub struct RotateArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub named: Named,
    /// For how long the old text works on, such as 24h, 30m or 7d; 24h unless set, at most 30d, 0 ends it at once
    #[arg(long, value_name = "DURATION", value_parser = Overlap::parse)]
    pub overlap: Option<Overlap>,
    /// Print the new key and nothing else, as `WEIR_KEY=$(weir key rotate ...)` wants it
    #[arg(long, conflicts_with = "json")]
    pub only_key: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub from: IfVersion,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// `weir key update`
#[derive(Args, Clone, Debug)]
pub struct UpdateArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub named: Named,
    /// Another account
    #[arg(long)]
    pub account: Option<String>,
    /// Another name
    #[arg(long)]
    pub name: Option<String>,
    /// When it ends: an RFC 3339 time, a date for its first moment in UTC, or never
    #[arg(long, value_name = "TIME|never")]
    pub expires: Option<String>,
    /// The models it may use, separated by commas, or all
    #[arg(long, value_name = "LIST|all")]
    pub models: Option<String>,
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
    /// The arguments that say which weir is meant and how to print.
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

/// Runs the command against the admin API and prints the result.
pub(crate) async fn run(
    command: &KeyCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let json = command.client().json;
    let answer = match command {
        KeyCommand::List(args) => return list(args, client, out).await,
        KeyCommand::Create(args) => {
            let mut body = fields(
                Some(&args.account),
                Some(&args.name),
                Some(&args.expires),
                Some(&args.models),
            );
            args.quota.put(&mut body);
            args.rates.put(&mut body);
            if let Some(id) = &args.operation_id {
                body.insert("operation_id".to_owned(), json!(id.as_str()));
            }
            client
                .call(Method::POST, "/v1/keys", Some(&Value::Object(body)))
                .await?
        }
        KeyCommand::Update(args) => {
            let mut body = fields(
                args.account.as_deref(),
                args.name.as_deref(),
                args.expires.as_deref(),
                args.models.as_deref(),
            );
            args.quota.put(&mut body);
            args.rates.put(&mut body);
            something_to_change(body.is_empty())?;
            let call = (Method::PATCH, "", Some(Value::Object(body)));
            change(client, &args.named, &args.from, call).await?
        }
        KeyCommand::Show(args) => client.call(Method::GET, &path(args.named.id(), ""), None).await?,
        KeyCommand::Rotate(args) => {
            let overlap = args.overlap;
            let body = overlap.map(|Overlap(seconds)| json!({ "overlap_seconds": seconds }));
            change(client, &args.named, &args.from, (Method::POST, "/rotate", body)).await?
        }
        KeyCommand::EndOverlap(args) => {
            change(client, &args.named, &args.from, (Method::POST, "/end-overlap", None)).await?
        }
        KeyCommand::Revoke(args) => change(client, &args.named, &args.from, (Method::POST, "/revoke", None)).await?,
        KeyCommand::Delete(args) => change(client, &args.named, &args.from, (Method::DELETE, "", None)).await?,
    };
    if json {
        writeln!(out, "{answer}")?;
    } else if let (true, Some(key)) = (command.prints_only_the_key(), key_of(&answer)) {
        writeln!(out, "{key}")?;
    } else {
        print(&answer, out)?;
    }
    Ok(())
}

/// A change of one key: method, action and body.
async fn change(
    client: &AdminClient,
    key: &Named,
    from: &IfVersion,
    (method, action, body): (Method, &str, Option<Value>),
) -> Result<Value, AdminClientError> {
    let path = path(key.id(), action);
    client.call_if(from.if_version, method, &path, body.as_ref()).await
}

async fn list(args: &ListArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let filter = args.filter();
    let mut after = String::new();
    if !args.client.json {
        writeln!(
            out,
            "{:<20}  {:<8}  {:<20}  {:<24}  {:<20}  {:<20}  {:<16}  {:<16}  {:<20}  LAST USED",
            "ID", "STATE", "ACCOUNT", "NAME", "EXPIRES", "QUOTA USD", "SPENT USD", "HELD USD", "RESETS"
        )?;
    }
    loop {
        let page = client
            .call(Method::GET, &format!("/v1/keys?limit={PAGE}{filter}{after}"), None)
            .await?;
        for key in page.get("keys").and_then(Value::as_array).into_iter().flatten() {
            if args.client.json {
                writeln!(out, "{key}")?;
            } else {
                let text = |field: &str, absent: &'static str| {
                    key.get(field).and_then(Value::as_str).unwrap_or(absent).to_owned()
                };
                writeln!(
                    out,
                    "{:<20}  {:<8}  {:<20}  {:<24}  {:<20}  {:<20}  {:<16}  {:<16}  {:<20}  {}",
                    text("id", ""),
                    text("state", ""),
                    text("account", ""),
                    text("name", ""),
                    text("expires_at", "never"),
                    quota(key),
                    text("spent_usd", "unknown"),
                    text("held_usd", "unknown"),
                    text("resets_at", "never"),
                    text("last_used", "never"),
                )?;
            }
        }
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(()),
        }
    }
}

fn path(id: &str, action: &str) -> String {
    format!("/v1/keys/{}{action}", utf8_percent_encode(id, NON_ALPHANUMERIC))
}

/// The body of a create or update: only what was given. `never` and `all` are null.
fn fields(
    account: Option<&str>,
    name: Option<&str>,
    expires: Option<&str>,
    models: Option<&str>,
) -> Map<String, Value> {
    let mut fields = Map::new();
    if let Some(account) = account {
        fields.insert("account".to_owned(), json!(account));
    }
    if let Some(name) = name {
        fields.insert("name".to_owned(), json!(name));
    }
    put_or_null(&mut fields, "expires_at", expires, "never");
    if let Some(models) = models {
        let names = || models.split(',').map(str::trim).collect::<Vec<_>>();
        fields.insert(
            "models".to_owned(),
            if models == "all" { Value::Null } else { json!(names()) },
        );
    }
    fields
}
