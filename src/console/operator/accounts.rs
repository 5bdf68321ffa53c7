//! The console's pages of accounts: their balances, and the forms that change them.

use std::cmp::Ordering;

use jiff::{ToSpan, civil::Date, tz::TimeZone};
use maud::{Markup, html};

use crate::{
    api::{
        AdminError,
        accounts::{
            AccountDetails, AccountFacts, AccountState, AdjustAccount, CreateAccount, CreditAccount, ListAccounts,
            ResumeAccount, ShowAccount, SuspendAccount, UpdateAccount,
        },
        usage::{CostsByDay, ShowUsage},
        values::{AccountId, Moment},
    },
    console::{
        PageContext, below,
        forms::{InputField, changed_value, parse_field},
        key_page,
        layout::{self, HtmlPage, PageResponse},
        request::{FormFields, to_query},
        usage_table,
    },
    domain::{
        ledger::{OperationId, reports::SplitBy},
        money::NanoUsd,
    },
};

/// The number of days from which the current rate of spending is computed.
const WEEK: i64 = 7;
/// The maximum number of days ahead for which the end of a balance is predicted.
const YEAR: i64 = 365;
/// The number of accounts on one page.
const PAGE: u64 = 50;

pub(super) async fn list(context: &PageContext<'_>) -> Result<HtmlPage, AdminError> {
    let after = context.query.text("after");
    let page = ListAccounts {
        after: context.query.non_empty("after").map(str::to_owned),
        limit: Some(PAGE),
    };
    let answer = context.fetch(page).await?;
    let (accounts, next) = (&answer.accounts, answer.next.as_deref().unwrap_or_default());
    let content = html! {
        @if accounts.is_empty() { p class="card" { "There are no accounts" @if !after.is_empty() { " after this one" } "." } }
        @else { (table(accounts)) }
        @if !next.is_empty() { p class="pages" { a href={ "/accounts" (to_query(&[("after", next)])) } { "More accounts" } } }
        section class="card" aria-labelledby="create" {
            h2 id="create" { "New account" }
            (create_form(context))
        }
    };
    Ok(HtmlPage {
        title: "Accounts".to_owned(),
        content,
    })
}

fn table(accounts: &[AccountDetails]) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Accounts" {
            table class="list" {
                thead { tr {
                    th scope="col" { "Account" } th scope="col" { "State" }
                    th scope="col" class="figure" { "Balance" } th scope="col" class="figure" { "Held" }
                    th scope="col" class="figure" { "Spent" } th scope="col" class="figure" { "Running" }
                } }
                tbody {
                    @for account in accounts {
                        @let (id, facts) = (&account.id, &account.facts);
                        tr {
                            th scope="row" { a href=(below("/accounts", id)) { (layout::name(id)) } }
                            td { (state(facts)) }
                            td class="figure" { (layout::money(Some(facts.balance_usd), "")) }
                            td class="figure" { (layout::money(Some(facts.held_usd), "")) }
                            td class="figure" { (layout::money(Some(facts.spent_usd), "")) }
                            td class="figure" { (layout::thousands(facts.running)) }
                        }
                    }
                }
            }
        }
    }
}

fn state(account: &AccountFacts) -> Markup {
    let (colour, word) = match account.balance_nano_usd.cmp(&NanoUsd::ZERO) {
        _ if account.state == AccountState::Suspended => ("u", "Suspended"),
        Ordering::Less => ("u", "Overdrawn"),
        Ordering::Equal => ("u", "No balance"),
        Ordering::Greater if account.balance_is_low => ("d", "Low"),
        Ordering::Greater => ("o", "Active"),
    };
    html! { span class={ "pill " (colour) } { (word) } }
}

fn create_form(context: &PageContext<'_>) -> Markup {
    let action = "/accounts";
    let balance = InputField::text("balance_usd", "Balance in USD", "", "0");
    let content = html! {
        (context.forms.input(action, &InputField::required("id", "Name")))
        (context.forms.input(action, &balance))
        button { "Create the account" }
    };
    context.forms.form(action, "fields", &content)
}

pub(super) async fn create(context: &PageContext<'_>, form: &FormFields) -> Result<PageResponse, AdminError> {
    let account = CreateAccount {
        balance_usd: form
            .non_empty("balance_usd")
            .map(|_| parse_field(form, "balance_usd"))
            .transpose()?,
        operation_id: OperationId::parse(form.text("operation")),
        ..CreateAccount::new(parse_field(form, "id")?)
    };
    let made = context.change(account).await?;
    Ok(PageResponse::redirect(&below("/accounts", &made.id)))
}

pub(super) async fn show(context: &PageContext<'_>, id: &str) -> Result<HtmlPage, AdminError> {
    let account = context.fetch(ShowAccount { id: read_id(id)? }).await?;
    let (id, facts) = (account.id.as_str(), &account.facts);
    let used = ShowUsage {
        account: Some(read_id(id)?),
        by: Some(SplitBy::Model),
        ..ShowUsage::default()
    };
    let used = context.fetch(used).await?;
    let at = |verb: &str| below(&below("/accounts", id), verb);
    let is_suspended = facts.state == AccountState::Suspended;
    let content = html! {
        p class="state" { (state(facts)) " created " (layout::timestamp(facts.created_at, "at an unknown time")) " UTC" }
        dl class="figures" {
            div class="card" { dt { "Balance" } dd { (layout::money(Some(facts.balance_usd), "")) } }
            div class="card" { dt { "Held" } dd { (layout::money(Some(facts.held_usd), "")) } }
            div class="card" { dt { "Spent so far" } dd { (layout::money(Some(facts.spent_usd), "")) } }
            div class="card" { dt { "Running" } dd { (layout::thousands(facts.running)) } }
        }
        p class="pages" {
            a href={ "/keys" (to_query(&[("account", id)])) } { "Its keys" } " "
            a href={ "/usage" (to_query(&[("account", id)])) } { "Its use" } " "
            a href={ "/log" (to_query(&[("account", id)])) } { "Its log" }
        }
        h2 { "Spent in the last 30 days" }
        @if let Some(end) = BalanceEnd::predict(facts, &used.costs) { p class="lead" { (end.sentence()) } }
        (usage_table::usage_chart(&used, true))
        div class="cards" {
            section class="card" { h2 { "Credit" } (credit(context, &at("credit"))) }
            section class="card" { h2 { "Adjust" } (adjust(context, &at("adjust"))) }
            section class="card" { h2 { "Limits" } (limits_form(context, &at("limits"), facts)) }
            section class="card" {
                h2 { @if is_suspended { "Resume" } @else { "Suspend" } }
                @if is_suspended {
                    p { "Requests of its keys are refused now." }
                    (context.forms.button(&at("resume"), "Resume the account", ""))
                } @else {
                    p { "No further requests of its keys are admitted; running ones continue." }
                    (context.forms.button(&at("suspend"), "Suspend the account", "danger"))
                }
            }
        }
    };
    Ok(HtmlPage {
        title: id.to_owned(),
        content,
    })
}

/// A prediction of when a balance runs out. It assumes that the account continues to spend at the rate of its last seven days. If
/// the account is newer, it assumes the rate since the account was created.
#[derive(Debug, PartialEq, Eq)]
struct BalanceEnd {
    a_day: NanoUsd,
    /// The number of days until the balance runs out, and the date on which it runs out. `None` if this date is more than a year
    /// away.
    at: Option<(i64, Date)>,
}

impl BalanceEnd {
    /// Predicts from an account's daily costs when the account's balance runs out. `None` if no balance is left or nothing was
    /// spent.
    fn predict(account: &AccountFacts, used: &CostsByDay) -> Option<Self> {
        let today = used.until.0.yesterday().ok()?;
        let age = account.created_at.map_or(WEEK, |Moment(created)| {
            let created = created.to_zoned(TimeZone::UTC).date();
            created
                .until(today)
                .map_or(WEEK, |age| i64::from(age.get_days()).saturating_add(1))
        });
        let days = age.clamp(1, WEEK);
        let days_taken = usize::try_from(days).unwrap_or(usize::MAX);
        let costs = used
            .daily
            .iter()
            .flat_map(|line| line.cost_nano_usd.iter().rev().take(days_taken));
        let spent = costs.map(|cost| i128::from(cost.nanos())).sum::<i128>();
        let balance = i128::from(account.balance_nano_usd.nanos());
        if spent <= 0 || balance <= 0 {
            return None;
        }
        let left = i64::try_from(balance * i128::from(days) / spent).unwrap_or(i64::MAX);
        let at = (left <= YEAR).then(|| today.checked_add(left.days()).ok()).flatten();
        Some(Self {
            a_day: NanoUsd::from_nanos(i64::try_from(spent / i128::from(days)).unwrap_or(i64::MAX)),
            at: at.map(|date| (left, date)),
        })
    }

    fn sentence(&self) -> String {
        let rate = format!("At the current rate, ${} a day, the balance", self.a_day);
        match self.at {
            Some((0, _)) => format!("{rate} runs out today."),
            Some((1, date)) => format!("{rate} runs out tomorrow, {date}."),
            Some((days, date)) => format!("{rate} runs out on {date}, in {days} days."),
            None => format!("{rate} lasts for more than a year."),
        }
    }
}

fn credit(context: &PageContext<'_>, action: &str) -> Markup {
    let content = html! {
        (context.forms.input(action, &InputField::required("usd", "Amount in USD")))
        button { "Add to the balance" }
    };
    context.forms.form(action, "fields", &content)
}

fn adjust(context: &PageContext<'_>, action: &str) -> Markup {
    let content = html! {
        (context.forms.input(action, &InputField::required("usd", "Amount in USD, negative to lower the balance")))
        (context.forms.input(action, &InputField::required("reason", "Reason, for the audit record")))
        button { "Adjust the balance" }
    };
    context.forms.form(action, "fields", &content)
}

fn limits_form(context: &PageContext<'_>, action: &str, account: &AccountFacts) -> Markup {
    let low = account.low_balance_usd.map(|low| low.to_string()).unwrap_or_default();
    let content = html! {
        input type="hidden" name="version" value=(account.version);
        (key_page::rate_inputs(&context.forms, action, [account.rpm, account.tpm, account.concurrency]))
        (context.forms.input(action, &InputField::text("low_balance_usd", "Balance that counts as low, USD", &low, "None")))
        (key_page::notice_input(&context.forms, action, account.notify_percent, "As configured"))
        button { "Change the limits" }
    };
    context.forms.form(action, "fields", &content)
}

fn read_id(text: &str) -> Result<AccountId, AdminError> {
    text.parse().map_err(|why: String| AdminError::of_field("account", why))
}

pub(super) async fn change(
    context: &PageContext<'_>,
    id: &str,
    verb: &str,
    form: &FormFields,
) -> Result<PageResponse, AdminError> {
    let account = read_id(id)?;
    let operation_id = OperationId::parse(form.text("operation"));
    match verb {
        "credit" => {
            let credit = CreditAccount {
                id: account,
                usd: parse_field(form, "usd")?,
                operation_id,
            };
            context.change(credit).await?;
        }
        "adjust" => {
            let adjustment = AdjustAccount {
                id: account,
                usd: parse_field(form, "usd")?,
                reason: parse_field(form, "reason")?,
                operation_id,
            };
            context.change(adjustment).await?;
        }
        "limits" => {
            let [rpm, tpm, concurrency] = key_page::changed_rates(form)?;
            let update = UpdateAccount {
                low_balance_usd: changed_value(form, "low_balance_usd")?,
                notify_percent: changed_value(form, "notify_percent")?,
                rpm,
                tpm,
                concurrency,
                ..UpdateAccount::new(account)
            };
            context.change_seen(form.non_empty("version"), update).await?;
        }
        "suspend" => drop(context.change(SuspendAccount { id: account }).await?),
        "resume" => drop(context.change(ResumeAccount { id: account }).await?),
        _ => return Err(AdminError::not_found("This page does not exist.")),
    }
    Ok(PageResponse::redirect(&below("/accounts", id)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::ledger::{AccountRecord, AccountView};

    fn account(balance: i64, created: &str) -> AccountFacts {
        let view = AccountView {
            id: "a".to_owned(),
            balance: NanoUsd::from_nanos(balance),
            record: AccountRecord::default(),
            spent: NanoUsd::ZERO,
            held: NanoUsd::ZERO,
            running: 0,
            paid_today: NanoUsd::ZERO,
            paid_this_month: NanoUsd::ZERO,
            created_at: created.parse::<Moment>().unwrap().seconds(),
        };
        AccountDetails::from(&view).facts
    }

    #[test]
    fn a_balance_ends_when_it_is_spent_at_the_rate_of_the_last_days() {
        let used = |daily: serde_json::Value| -> CostsByDay {
            let costs = json!({ "from": "2026-11-19", "until": "2026-11-27", "daily": daily });
            serde_json::from_value(costs).unwrap()
        };
        let spent = used(json!([
            { "name": "a", "cost_nano_usd": [900, 0, 0, 0, 0, 0, 0, 70] },
            { "name": null, "cost_nano_usd": [900, 0, 0, 0, 0, 0, 70, 0] },
        ]));
        let end =
            |balance, created: &str| BalanceEnd::predict(&account(balance, created), &spent).map(|end| end.sentence());
        let old = "2026-01-01T00:00:00Z";
        let sentence = |end: &str| Some(format!("At the current rate, $0.00000002 a day, the balance {end}"));
        assert_eq!(end(140, old), sentence("runs out on 2026-12-03, in 7 days."));
        assert_eq!(end(19, old), sentence("runs out today."));
        assert_eq!(end(39, old), sentence("runs out tomorrow, 2026-11-27."));
        assert_eq!(end(20 * 366, old), sentence("lasts for more than a year."));
        assert_eq!(end(0, old), None);
        // The account was created yesterday, and has spent 140 in two days.
        let young = end(140, "2026-11-25T10:00:00Z").unwrap();
        assert!(
            young.contains("$0.00000007 a day") && young.contains("in 2 days"),
            "{young}"
        );
        let nothing = used(json!([]));
        assert_eq!(BalanceEnd::predict(&account(5, old), &nothing), None);
    }
}
