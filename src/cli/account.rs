//! `weir account`: manages accounts, their balances and their limits.

use std::io::Write;

use clap::{Args, Subcommand};

use super::admin_client::{AdminClient, AdminClientError, ClientArgs, ClientReply, write_json};
use crate::cli::{DEFAULT, IdArgs, IfVersion, NotifyArgs, OrNone, RateArgs, one_of, or_none, something_to_change};
use crate::{
    api::{
        accounts::{
            AccountDetails, AccountFacts, AdjustAccount, ChangedAccount, CreateAccount, CreditAccount, ListAccounts,
            ResumeAccount, ShowAccount, SuspendAccount, UpdateAccount,
        },
        values::{AccountId, AdjustmentReason, Percents, Usd},
    },
    domain::ledger::{AccountTermsChange, OperationId, ProviderState},
};

/// The number of accounts per call of the admin API.
const PAGE: u64 = 500;

/// The subcommands of `weir account`.
#[derive(Clone, Debug, Subcommand)]
pub enum AccountCommand {
    /// Create an account. Without a balance, all its requests are refused
    Create(AccountCreateArgs),
    /// Add money to an account
    Credit(CreditArgs),
    /// Correct an account's balance, up or down
    Adjust(AdjustArgs),
    /// Change an account's limits
    Update(AccountUpdateArgs),
    /// Suspend an account: weir refuses further requests of its keys. Running requests continue
    Suspend(StateArgs),
    /// Resume a suspended account: weir serves requests of its keys again
    Resume(StateArgs),
    /// List the accounts
    List(ClientArgs),
    /// Show one account
    Show(OneAccountArgs),
}

/// The arguments of `weir account create`.
#[derive(Args, Clone, Debug)]
pub struct AccountCreateArgs {
    /// The account's id. It consists of letters, digits and `_`. The characters `.` and `-` are also allowed, but not at the
    /// beginning
    #[arg(long)]
    pub(crate) id: AccountId,
    /// The account's opening balance in USD
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    pub(crate) balance_usd: Option<Usd>,
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

/// The option with which a change of a balance takes effect only once, even if the command is repeated.
#[derive(Args, Clone, Debug, Default)]
pub struct OnceArgs {
    /// An id of this change. If several commands have the same id, only the first takes effect, so a command whose result is
    /// unknown can be repeated. weir remembers the last 1000 ids of an account [default: a new id]
    #[arg(long, value_name = "ID")]
    pub(crate) operation_id: Option<OperationId>,
}

impl OnceArgs {
    /// Returns the operation id from the option, or a new random one.
    fn id(&self) -> OperationId {
        let given = self.operation_id.clone();
        given.unwrap_or_else(|| OperationId::generate(&mut rand::rng()))
    }
}

/// The options for the limits of an account.
#[derive(Args, Clone, Debug)]
pub struct LimitArgs {
    /// The threshold in USD for a low balance, or none. weir reports a balance at or below this amount as low
    #[arg(long, value_name = "D|none", allow_negative_numbers = true, value_parser = or_none::<Usd>)]
    pub(crate) low_balance_usd: Option<OrNone<Usd>>,
    /// Which objects at providers (responses, files, containers) the account's requests may refer to: only objects that the
    /// account has created (own), or any object (any)
    #[arg(long, value_name = "own|any", value_parser = one_of::<ProviderState>(&["own", "any"]))]
    pub(crate) provider_state: Option<ProviderState>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub notify: NotifyArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub rates: RateArgs,
}

/// The arguments of `weir account credit`.
#[derive(Args, Clone, Debug)]
pub struct CreditArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub(crate) named: IdArgs<AccountId>,
    /// The amount in USD, as a decimal number
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    pub(crate) usd: Usd,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub once: OnceArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// The arguments of `weir account adjust`.
#[derive(Args, Clone, Debug)]
pub struct AdjustArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub(crate) named: IdArgs<AccountId>,
    /// The amount in USD, as a decimal number; a negative amount lowers the balance
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    pub(crate) usd: Usd,
    /// The reason, which is written to the audit record
    #[arg(long)]
    pub(crate) reason: AdjustmentReason,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub once: OnceArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// The arguments of `weir account update`.
#[derive(Args, Clone, Debug)]
pub struct AccountUpdateArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub(crate) named: IdArgs<AccountId>,
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

/// The arguments of `weir account suspend` and `weir account resume`.
#[derive(Args, Clone, Debug)]
pub struct StateArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub(crate) named: IdArgs<AccountId>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub condition: IfVersion,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// The arguments of a command that reads one account.
#[derive(Args, Clone, Debug)]
pub struct OneAccountArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub(crate) named: IdArgs<AccountId>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

impl AccountCommand {
    /// Returns the options for calling a running weir.
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

/// Calls the admin API and prints the result.
pub(crate) async fn run(
    command: &AccountCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let reply = match command {
        AccountCommand::List(args) => return list(args.json, client, out).await,
        AccountCommand::Show(args) => {
            let id = args.named.id_or_error()?;
            let reply = client.request(&ShowAccount { id }).await?;
            if args.client.json {
                writeln!(out, "{}", reply.text)?;
            } else {
                let AccountDetails { id, facts } = reply.read()?;
                print(&id, Some(&facts), out)?;
            }
            return Ok(());
        }
        AccountCommand::Create(args) => create(args, client).await?,
        AccountCommand::Credit(args) => {
            let operation = args.once.id();
            let credit = CreditAccount {
                id: args.named.id_or_error()?,
                usd: args.usd,
                operation_id: Some(operation.clone()),
            };
            client.request_once(&credit, &operation).await?
        }
        AccountCommand::Adjust(args) => {
            let operation = args.once.id();
            let adjustment = AdjustAccount {
                id: args.named.id_or_error()?,
                usd: args.usd,
                reason: args.reason.clone(),
                operation_id: Some(operation.clone()),
            };
            client.request_once(&adjustment, &operation).await?
        }
        AccountCommand::Update(args) => update(args, client).await?,
        AccountCommand::Suspend(args) => {
            let id = args.named.id_or_error()?;
            client
                .request_if(args.condition.if_version, &SuspendAccount { id })
                .await?
        }
        AccountCommand::Resume(args) => {
            let id = args.named.id_or_error()?;
            client
                .request_if(args.condition.if_version, &ResumeAccount { id })
                .await?
        }
    };
    if command.client().json {
        writeln!(out, "{}", reply.text)?;
        return Ok(());
    }
    let changed = reply.read()?;
    print(&changed.id, changed.facts.as_ref(), out)?;
    if let Some(operation) = &changed.operation_id {
        line(out, "operation_id", operation)?;
        line(out, "repeated", changed.repeated.unwrap_or_default())?;
    }
    if !changed.applied {
        writeln!(
            out,
            "\nThe change is recorded and takes effect as soon as the store answers. Do not run the command again."
        )?;
    }
    Ok(())
}

async fn create(
    args: &AccountCreateArgs,
    client: &AdminClient,
) -> Result<ClientReply<ChangedAccount>, AdminClientError> {
    let operation = args.once.id();
    let LimitArgs {
        low_balance_usd,
        provider_state,
        notify,
        rates,
    } = &args.limits;
    let account = CreateAccount {
        balance_usd: args.balance_usd,
        operation_id: Some(operation.clone()),
        low_balance_usd: OrNone::nullable(*low_balance_usd),
        notify_percent: OrNone::nullable(notify.notify),
        provider_state: *provider_state,
        rpm: OrNone::nullable(rates.rpm),
        tpm: OrNone::nullable(rates.tpm),
        concurrency: OrNone::nullable(rates.concurrency),
        ..CreateAccount::new(args.id.clone())
    };
    client.request_once(&account, &operation).await
}

async fn update(
    args: &AccountUpdateArgs,
    client: &AdminClient,
) -> Result<ClientReply<ChangedAccount>, AdminClientError> {
    let LimitArgs {
        low_balance_usd,
        provider_state,
        notify,
        rates,
    } = &args.limits;
    let update = UpdateAccount {
        low_balance_usd: OrNone::nullable(*low_balance_usd),
        notify_percent: OrNone::nullable(notify.notify),
        provider_state: *provider_state,
        rpm: OrNone::nullable(rates.rpm),
        tpm: OrNone::nullable(rates.tpm),
        concurrency: OrNone::nullable(rates.concurrency),
        ..UpdateAccount::new(args.named.id_or_error()?)
    };
    something_to_change(update.terms() == AccountTermsChange::default())?;
    client.request_if(args.condition.if_version, &update).await
}

async fn list(json: bool, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let mut page = ListAccounts {
        after: None,
        limit: Some(PAGE),
    };
    let mut has_heading = json;
    loop {
        let answer = client.request(&page).await?.read()?;
        if !std::mem::replace(&mut has_heading, true) {
            writeln!(
                out,
                "{:<20}  {:<9}  {:<14}  {:>16}  {:>16}  {:>16}  RUNNING",
                "ACCOUNT", "STATE", "PROVIDER STATE", "BALANCE USD", "HELD USD", "SPENT USD"
            )?;
        }
        for account in &answer.accounts {
            if json {
                write_json(out, account)?;
                continue;
            }
            let facts = &account.facts;
            writeln!(
                out,
                "{:<20}  {:<9}  {:<14}  {:>16}  {:>16}  {:>16}  {}",
                account.id,
                facts.state.as_str(),
                facts.provider_state.as_str(),
                facts.balance_usd.to_string(),
                facts.held_usd.to_string(),
                facts.spent_usd.to_string(),
                facts.running,
            )?;
        }
        match answer.next {
            Some(next) => page.after = Some(next),
            None => return Ok(()),
        }
    }
}

fn line(out: &mut impl Write, name: &str, value: impl std::fmt::Display) -> std::io::Result<()> {
    writeln!(out, "{name:<16} {value}")
}

/// Prints an account, with one line for each property. Amounts are in USD.
fn print(id: &str, facts: Option<&AccountFacts>, out: &mut impl Write) -> std::io::Result<()> {
    line(out, "id", id)?;
    let Some(facts) = facts else { return Ok(()) };
    let limit = |limit: Option<u64>| limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
    line(out, "version", facts.version)?;
    line(out, "state", facts.state.as_str())?;
    line(out, "balance_usd", facts.balance_usd)?;
    line(out, "held_usd", facts.held_usd)?;
    line(out, "spent_usd", facts.spent_usd)?;
    line(out, "running", facts.running)?;
    line(
        out,
        "low_balance_usd",
        facts
            .low_balance_usd
            .map_or_else(|| "none".to_owned(), |low| low.to_string()),
    )?;
    line(out, "balance_is_low", facts.balance_is_low)?;
    line(
        out,
        "notify_percent",
        facts
            .notify_percent
            .map_or_else(|| DEFAULT.to_owned(), Percents::to_text),
    )?;
    line(out, "rpm", limit(facts.rpm))?;
    line(out, "tpm", limit(facts.tpm))?;
    line(out, "concurrency", limit(facts.concurrency))?;
    line(out, "provider_state", facts.provider_state.as_str())?;
    line(
        out,
        "created_at",
        facts.created_at.map_or_else(|| "none".to_owned(), |at| at.to_string()),
    )
}
