//! Accounts: their balances, and the forms that change them.

use std::cmp::Ordering;

use jiff::{ToSpan, civil::Date, tz::TimeZone};
use maud::{Markup, html};

use crate::{
    api::{
        accounts::{
            Account, AccountFacts, AccountState, AdjustAccount, CreateAccount, CreditAccount, ListAccounts,
            ResumeAccount, ShowAccount, SuspendAccount, UpdateAccount,
        },
        error::AdminError,
        names::AccountId,
        usage::{CostsByDay, ShowUsage},
        values::Moment,
    },
    console::{
        answer::Answer,
        desk::{Desk, below},
        fields::{Fields, query},
        forms::{Field, changed, read},
        frame::Page,
        limits, usage_chart, view,
    },
    domain::{
        ledger::{OperationId, usage_report::SplitBy},
        money::NanoUsd,
    },
};

/// The days by which the present rate is told.
const WEEK: i64 = 7;
/// The days beyond which no end is told.
const YEAR: i64 = 365;
/// Accounts on one page.
const PAGE: u64 = 50;

pub(super) async fn list(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let after = desk.query.text("after");
    let page = ListAccounts {
        after: desk.query.given("after").map(str::to_owned),
        limit: Some(PAGE),
    };
    let answer = desk.look(page).await?;
    let (accounts, next) = (&answer.accounts, answer.next.as_deref().unwrap_or_default());
    let content = html! {
        @if accounts.is_empty() { p class="card" { "There are no accounts" @if !after.is_empty() { " behind this one" } "." } }
        @else { (table(accounts)) }
        @if !next.is_empty() { p class="pages" { a href={ "/accounts" (query(&[("after", next)])) } { "More accounts" } } }
        section class="card" aria-labelledby="create" {
            h2 id="create" { "New account" }
            (create_form(desk))
        }
    };
    Ok(Page {
        title: "Accounts".to_owned(),
        content,
    })
}

fn table(accounts: &[Account]) -> Markup {
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
                            th scope="row" { a href=(below("/accounts", id)) { (view::name(id)) } }
                            td { (state(facts)) }
                            td class="figure" { (view::money(Some(facts.balance_usd), "")) }
                            td class="figure" { (view::money(Some(facts.held_usd), "")) }
                            td class="figure" { (view::money(Some(facts.spent_usd), "")) }
                            td class="figure" { (view::thousands(facts.running)) }
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

fn create_form(desk: &Desk<'_>) -> Markup {
    let action = "/accounts";
    let balance = Field::text("balance_usd", "Balance in USD", "", "0");
    let content = html! {
        (desk.forms.input(action, &Field::needed("id", "Name")))
        (desk.forms.input(action, &balance))
        button { "Create the account" }
    };
    desk.forms.form(action, "fields", &content)
}

pub(super) async fn create(desk: &Desk<'_>, form: &Fields) -> Result<Answer, AdminError> {
    let account = CreateAccount {
        balance_usd: form
            .given("balance_usd")
            .map(|_| read(form, "balance_usd"))
            .transpose()?,
        operation_id: OperationId::parse(form.text("operation")),
        ..CreateAccount::new(read(form, "id")?)
    };
    let made = desk.ask(account).await?;
    Ok(Answer::see(&below("/accounts", &made.id)))
}

pub(super) async fn one(desk: &Desk<'_>, id: &str) -> Result<Page, AdminError> {
    let account = desk.look(ShowAccount { id: read_id(id)? }).await?;
    let (id, facts) = (account.id.as_str(), &account.facts);
    let used = ShowUsage {
        account: Some(read_id(id)?),
        by: Some(SplitBy::Model),
        ..ShowUsage::default()
    };
    let used = desk.look(used).await?;
    let at = |verb: &str| below(&below("/accounts", id), verb);
    let is_suspended = facts.state == AccountState::Suspended;
    let content = html! {
        p class="state" { (state(facts)) " created " (view::at(facts.created_at, "at an unknown time")) " UTC" }
        dl class="figures" {
            div class="card" { dt { "Balance" } dd { (view::money(Some(facts.balance_usd), "")) } }
            div class="card" { dt { "Held" } dd { (view::money(Some(facts.held_usd), "")) } }
            div class="card" { dt { "Spent so far" } dd { (view::money(Some(facts.spent_usd), "")) } }
            div class="card" { dt { "Running" } dd { (view::thousands(facts.running)) } }
        }
        p class="pages" {
            a href={ "/keys" (query(&[("account", id)])) } { "Its keys" } " "
            a href={ "/usage" (query(&[("account", id)])) } { "Its use" } " "
            a href={ "/log" (query(&[("account", id)])) } { "Its log" }
        }
        h2 { "Spent in the last 30 days" }
        @if let Some(end) = BalanceEnd::of(facts, &used.costs) { p class="lead" { (end.sentence()) } }
        (usage_chart::of_usage(&used, true))
        div class="cards" {
            section class="card" { h2 { "Credit" } (credit(desk, &at("credit"))) }
            section class="card" { h2 { "Adjust" } (adjust(desk, &at("adjust"))) }
            section class="card" { h2 { "Limits" } (limits_form(desk, &at("limits"), facts)) }
            section class="card" {
                h2 { @if is_suspended { "Resume" } @else { "Suspend" } }
                @if is_suspended {
                    p { "Requests of its keys are refused now." }
                    (desk.forms.button(&at("resume"), "Resume the account", ""))
                } @else {
                    p { "No request of its keys is admitted from then on; those that run go on." }
                    (desk.forms.button(&at("suspend"), "Suspend the account", "danger"))
                }
            }
        }
    };
    Ok(Page {
        title: id.to_owned(),
        content,
    })
}

/// When a balance ends, if as much is spent each day as in the last seven days, or since the account was made.
#[derive(Debug, PartialEq, Eq)]
struct BalanceEnd {
    a_day: NanoUsd,
    /// The days until then, and the date; `None`: later than in a year.
    at: Option<(i64, Date)>,
}

impl BalanceEnd {
    /// By an account and what it has used by the day. `None` if nothing is left, or nothing was spent.
    fn of(account: &AccountFacts, used: &CostsByDay) -> Option<Self> {
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
        let rate = format!("At the rate of the last days, ${} a day, the balance", self.a_day);
        match self.at {
            Some((0, _)) => format!("{rate} ends today."),
            Some((1, date)) => format!("{rate} ends tomorrow, {date}."),
            Some((days, date)) => format!("{rate} ends on {date}, in {days} days."),
            None => format!("{rate} lasts for more than a year."),
        }
    }
}

fn credit(desk: &Desk<'_>, action: &str) -> Markup {
    let content = html! {
        (desk.forms.input(action, &Field::needed("usd", "Amount in USD")))
        button { "Add to the balance" }
    };
    desk.forms.form(action, "fields", &content)
}

fn adjust(desk: &Desk<'_>, action: &str) -> Markup {
    let content = html! {
        (desk.forms.input(action, &Field::needed("usd", "Amount in USD, with - to take away")))
        (desk.forms.input(action, &Field::needed("reason", "Reason, for the audit record")))
        button { "Adjust the balance" }
    };
    desk.forms.form(action, "fields", &content)
}

fn limits_form(desk: &Desk<'_>, action: &str, account: &AccountFacts) -> Markup {
    let low = account.low_balance_usd.map(|low| low.to_string()).unwrap_or_default();
    let content = html! {
        input type="hidden" name="version" value=(account.version);
        (limits::rates(&desk.forms, action, [account.rpm, account.tpm, account.concurrency]))
        (desk.forms.input(action, &Field::text("low_balance_usd", "Balance that counts as low, USD", &low, "None")))
        (limits::notify(&desk.forms, action, account.notify_percent, "As the configuration says"))
        button { "Change the limits" }
    };
    desk.forms.form(action, "fields", &content)
}

fn read_id(text: &str) -> Result<AccountId, AdminError> {
    text.parse().map_err(|why: String| AdminError::of_field("account", why))
}

pub(super) async fn change(desk: &Desk<'_>, id: &str, verb: &str, form: &Fields) -> Result<Answer, AdminError> {
    let account = read_id(id)?;
    let operation_id = OperationId::parse(form.text("operation"));
    match verb {
        "credit" => {
            let credit = CreditAccount {
                id: account,
                usd: read(form, "usd")?,
                operation_id,
            };
            desk.ask(credit).await?;
        }
        "adjust" => {
            let adjustment = AdjustAccount {
                id: account,
                usd: read(form, "usd")?,
                reason: read(form, "reason")?,
                operation_id,
            };
            desk.ask(adjustment).await?;
        }
        "limits" => {
            let [rpm, tpm, concurrency] = limits::changed_rates(form)?;
            let update = UpdateAccount {
                low_balance_usd: changed(form, "low_balance_usd")?,
                notify_percent: changed(form, "notify_percent")?,
                rpm,
                tpm,
                concurrency,
                ..UpdateAccount::new(account)
            };
            desk.ask_seen(form.given("version"), update).await?;
        }
        "suspend" => drop(desk.ask(SuspendAccount { id: account }).await?),
        "resume" => drop(desk.ask(ResumeAccount { id: account }).await?),
        _ => return Err(AdminError::not_found("There is no such page.")),
    }
    Ok(Answer::see(&below("/accounts", id)))
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
        Account::from(&view).facts
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
        let end = |balance, created: &str| BalanceEnd::of(&account(balance, created), &spent).map(|end| end.sentence());
        let old = "2026-01-01T00:00:00Z";
        let sentence = |end: &str| {
            Some(format!(
                "At the rate of the last days, $0.00000002 a day, the balance {end}"
            ))
        };
        assert_eq!(end(140, old), sentence("ends on 2026-12-03, in 7 days."));
        assert_eq!(end(19, old), sentence("ends today."));
        assert_eq!(end(39, old), sentence("ends tomorrow, 2026-11-27."));
        assert_eq!(end(20 * 366, old), sentence("lasts for more than a year."));
        assert_eq!(end(0, old), None);
        // Made yesterday: 140 in two days.
        let young = end(140, "2026-11-25T10:00:00Z").unwrap();
        assert!(
            young.contains("$0.00000007 a day") && young.contains("in 2 days"),
            "{young}"
        );
        let nothing = used(json!([]));
        assert_eq!(BalanceEnd::of(&account(5, old), &nothing), None);
    }
}
