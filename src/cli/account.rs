//! `weir account`: accounts, their balances and limits.

use std::io::Write;

use clap::{Args, Subcommand};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::{
    admin_client::{AdminClient, AdminClientError, ClientArgs},
    limits::{DEFAULT, NOTIFY, NotifyArgs, RateArgs, listed, put_or_null, something_to_change},
    named::{IfVersion, Named},
};
use crate::domain::ledger::OperationId;

/// Accounts asked for at once.
const PAGE: usize = 500;

/// What to do with accounts.
#[derive(Clone, Debug, Subcommand)]
pub enum AccountCommand {
    /// Create an account; without a balance nothing is served
    Create(CreateArgs),
    /// Add money to an account
    Credit(CreditArgs),
    /// Correct an account's balance, up or down
    Adjust(AdjustArgs),
    /// Change an account's limits
    Update(UpdateArgs),
    /// Serve nothing more to an account's keys; what runs goes on
    Suspend(StateArgs),
    /// Serve an account's keys again
    Resume(StateArgs),
    /// List the accounts
    List(ClientArgs),
    /// Show one account
    Show(OneArgs),
}

/// `weir account create`
#[derive(Args, Clone, Debug)]
pub struct CreateArgs {
    /// The account's name: letters, digits, `_`, and behind the first character `.` or `-`
    #[arg(long)]
    pub id: String,
    /// What it begins with
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    pub balance_usd: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub once: OnceArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub limits: LimitArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// By what a change of a balance is known again.
#[derive(Args, Clone, Debug, Default)]
pub struct OnceArgs {
    /// Counts once for this id, however often the command is run; an account remembers the last 1000 [default: a new one]
    #[arg(long, value_name = "ID")]
    pub operation_id: Option<OperationId>,
}

impl OnceArgs {
    /// The id that was given or a new one, put among the fields.
    fn put(&self, fields: &mut Map<String, Value>) -> OperationId {
        let given = self.operation_id.clone();
        let id = given.unwrap_or_else(|| OperationId::generate(&mut rand::rng()));
        fields.insert("operation_id".to_owned(), json!(id.as_str()));
        id
    }
}

/// The limits of an account.
#[derive(Args, Clone, Debug)]
pub struct LimitArgs {
    /// At or below this balance it is said to be low, or none
    #[arg(long, value_name = "D|none", allow_negative_numbers = true)]
    pub low_balance_usd: Option<String>,
    /// What its requests may name at a provider (responses, files, containers): what the account has made, or any
    #[arg(long, value_name = "own|any")]
    pub provider_state: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub notify: NotifyArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub rates: RateArgs,
}

/// `weir account credit`
#[derive(Args, Clone, Debug)]
pub struct CreditArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub named: Named,
    /// How much, as a decimal number
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    pub usd: String,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub once: OnceArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// `weir account adjust`
#[derive(Args, Clone, Debug)]
pub struct AdjustArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub named: Named,
    /// By how much, as a decimal number; negative takes money away
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    pub usd: String,
    /// Why, for the audit record
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub once: OnceArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// `weir account update`
#[derive(Args, Clone, Debug)]
pub struct UpdateArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub named: Named,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub limits: LimitArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub condition: IfVersion,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// `weir account suspend` and `weir account resume`
#[derive(Args, Clone, Debug)]
pub struct StateArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub named: Named,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub condition: IfVersion,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// A command on one account.
#[derive(Args, Clone, Debug)]
pub struct OneArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub named: Named,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

impl AccountCommand {
    /// The arguments that say which weir is meant and how to print.
    pub fn client(&self) -> &ClientArgs {
        match self {
            Self::Create(args) => &args.client,
            Self::Credit(args) => &args.client,
            Self::Adjust(args) => &args.client,
            Self::Update(args) => &args.client,
            Self::Suspend(args) | Self::Resume(args) => &args.client,
            Self::Show(args) => &args.client,
            Self::List(client) => client,
        }
    }
}

impl LimitArgs {
    fn put(&self, fields: &mut Map<String, Value>) {
        put_or_null(fields, "low_balance_usd", self.low_balance_usd.as_deref(), "none");
        if let Some(state) = &self.provider_state {
            fields.insert("provider_state".to_owned(), json!(state));
        }
        self.notify.put(fields);
        self.rates.put(fields);
    }
}

/// Runs the command against the admin API and prints the result.
pub(crate) async fn run(
    command: &AccountCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let mut fields = Map::new();
    let (mut once, mut condition) = (None, None);
    let (method, path) = match command {
        AccountCommand::List(args) => return list(args.json, client, out).await,
        AccountCommand::Create(args) => {
            fields.insert("id".to_owned(), json!(args.id));
            if let Some(balance) = &args.balance_usd {
                fields.insert("balance_usd".to_owned(), json!(balance));
            }
            args.limits.put(&mut fields);
            once = Some(args.once.put(&mut fields));
            (Method::POST, "/v1/accounts".to_owned())
        }
        AccountCommand::Credit(args) => {
            fields.insert("usd".to_owned(), json!(args.usd));
            once = Some(args.once.put(&mut fields));
            (Method::POST, path(args.named.id(), "/credit"))
        }
        AccountCommand::Adjust(args) => {
            fields.insert("usd".to_owned(), json!(args.usd));
            fields.insert("reason".to_owned(), json!(args.reason));
            once = Some(args.once.put(&mut fields));
            (Method::POST, path(args.named.id(), "/adjust"))
        }
        AccountCommand::Update(args) => {
            args.limits.put(&mut fields);
            something_to_change(&fields)?;
            condition = args.condition.if_version;
            (Method::PATCH, path(args.named.id(), ""))
        }
        AccountCommand::Suspend(args) => {
            condition = args.condition.if_version;
            (Method::POST, path(args.named.id(), "/suspend"))
        }
        AccountCommand::Resume(args) => {
            condition = args.condition.if_version;
            (Method::POST, path(args.named.id(), "/resume"))
        }
        AccountCommand::Show(args) => (Method::GET, path(args.named.id(), "")),
    };
    let body = Value::Object(fields);
    let body = (method != Method::GET).then_some(&body);
    let answer = match once {
        Some(id) => client.call_twice(method, &path, body, id.as_str()).await?,
        None => client.call_if(condition, method, &path, body).await?,
    };
    if command.client().json {
        writeln!(out, "{answer}")?;
    } else {
        print(&answer, out)?;
    }
    Ok(())
}

async fn list(json: bool, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    if !json {
        writeln!(
            out,
            "{:<20}  {:<9}  {:<14}  {:>16}  {:>16}  {:>16}  RUNNING",
            "ACCOUNT", "STATE", "PROVIDER STATE", "BALANCE USD", "HELD USD", "SPENT USD"
        )?;
    }
    let mut after = String::new();
    loop {
        let page = client
            .call(Method::GET, &format!("/v1/accounts?limit={PAGE}{after}"), None)
            .await?;
        for account in page.get("accounts").and_then(Value::as_array).into_iter().flatten() {
            if json {
                writeln!(out, "{account}")?;
                continue;
            }
            let text = |field: &str| account.get(field).and_then(Value::as_str).unwrap_or_default();
            let running = account.get("running").and_then(Value::as_u64).unwrap_or_default();
            writeln!(
                out,
                "{:<20}  {:<9}  {:<14}  {:>16}  {:>16}  {:>16}  {running}",
                text("id"),
                text("state"),
                text("provider_state"),
                text("balance_usd"),
                text("held_usd"),
                text("spent_usd"),
            )?;
        }
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = format!("&after={}", utf8_percent_encode(next, NON_ALPHANUMERIC)),
            None => return Ok(()),
        }
    }
}

fn path(id: &str, action: &str) -> String {
    format!("/v1/accounts/{}{action}", utf8_percent_encode(id, NON_ALPHANUMERIC))
}

/// `field: value` lines, amounts in USD only; a change that does not hold yet says so.
fn print(answer: &Value, out: &mut impl Write) -> std::io::Result<()> {
    let fields = answer.as_object().into_iter().flatten();
    for (field, value) in fields.filter(|(field, _)| !field.ends_with("_nano_usd") && *field != "applied") {
        let shown = match value {
            Value::Null if field == NOTIFY => DEFAULT.to_owned(),
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(list) => listed(list),
            other => other.to_string(),
        };
        writeln!(out, "{field:<16} {shown}")?;
    }
    if answer.get("applied") == Some(&Value::Bool(false)) {
        writeln!(
            out,
            "\nThe change is recorded and will hold as soon as the store answers. Do not make it again."
        )?;
    }
    Ok(())
}
