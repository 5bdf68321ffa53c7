//! Accounts: their balances, and the forms that change them.

use http::Method;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::{
    console::{
        answer::Answer,
        desk::{Desk, below},
        fields::{Fields, query},
        forms::{Field, is_changed},
        frame::Page,
        limits, view,
    },
    side::admin::local::Refused,
};

/// Accounts on one page.
const PAGE: usize = 50;

pub(super) async fn list(desk: &Desk<'_>) -> Result<Page, Refused> {
    let after = desk.query.text("after");
    let path = format!(
        "/v1/accounts{}",
        query(&[("limit", &PAGE.to_string()), ("after", after)])
    );
    let answer = desk.read(&path).await?;
    let accounts = view::list(&answer, "accounts");
    let next = view::text(&answer, "next");
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

fn table(accounts: &[Value]) -> Markup {
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
                        @let id = view::text(account, "id");
                        tr {
                            th scope="row" { a href=(below("/accounts", id)) { (view::name(id)) } }
                            td { (state(account)) }
                            td class="figure" { (view::usd(account, "balance_usd", "")) }
                            td class="figure" { (view::usd(account, "held_usd", "")) }
                            td class="figure" { (view::usd(account, "spent_usd", "")) }
                            td class="figure" { (view::number(account, "running", "0")) }
                        }
                    }
                }
            }
        }
    }
}

fn state(account: &Value) -> Markup {
    let (colour, word) = match view::signum(account, "balance_nano_usd") {
        _ if view::text(account, "state") == "suspended" => ("u", "Suspended"),
        -1 => ("u", "Overdrawn"),
        0 => ("u", "No balance"),
        _ if view::is(account, "balance_is_low") => ("d", "Low"),
        _ => ("o", "Active"),
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

pub(super) async fn create(desk: &Desk<'_>, form: &Fields) -> Result<Answer, Refused> {
    let id = form.text("id");
    let mut body = json!({ "id": id, "operation_id": form.text("operation") });
    if let (Some(balance), Value::Object(fields)) = (form.given("balance_usd"), &mut body) {
        fields.insert("balance_usd".to_owned(), json!(balance));
    }
    desk.change(Method::POST, "/v1/accounts", &body).await?;
    Ok(Answer::see(&below("/accounts", id)))
}

pub(super) async fn one(desk: &Desk<'_>, id: &str) -> Result<Page, Refused> {
    let account = desk.read(&below("/v1/accounts", id)).await?;
    let id = view::text(&account, "id");
    let at = |verb: &str| below(&below("/accounts", id), verb);
    let is_suspended = view::text(&account, "state") == "suspended";
    let content = html! {
        p class="state" { (state(&account)) " created " (view::time(&account, "created_at", "at an unknown time")) " UTC" }
        dl class="figures" {
            div class="card" { dt { "Balance" } dd { (view::usd(&account, "balance_usd", "")) } }
            div class="card" { dt { "Held" } dd { (view::usd(&account, "held_usd", "")) } }
            div class="card" { dt { "Spent so far" } dd { (view::usd(&account, "spent_usd", "")) } }
            div class="card" { dt { "Running" } dd { (view::number(&account, "running", "0")) } }
        }
        p class="pages" {
            a href={ "/keys" (query(&[("account", id)])) } { "Its keys" } " "
            a href={ "/usage" (query(&[("account", id)])) } { "Its use" } " "
            a href={ "/log" (query(&[("account", id)])) } { "Its log" }
        }
        div class="cards" {
            section class="card" { h2 { "Credit" } (credit(desk, &at("credit"))) }
            section class="card" { h2 { "Adjust" } (adjust(desk, &at("adjust"))) }
            section class="card" { h2 { "Limits" } (limits_form(desk, &at("limits"), &account)) }
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

fn limits_form(desk: &Desk<'_>, action: &str, account: &Value) -> Markup {
    let low = view::plain(account, "low_balance_usd");
    let content = html! {
        (limits::rates(&desk.forms, action, account))
        (desk.forms.input(action, &Field::text("low_balance_usd", "Balance that counts as low, USD", &low, "None")))
        (limits::notify(&desk.forms, action, account, "As the configuration says"))
        button { "Change the limits" }
    };
    desk.forms.form(action, "fields", &content)
}

pub(super) async fn change(desk: &Desk<'_>, id: &str, verb: &str, form: &Fields) -> Result<Answer, Refused> {
    let path = below("/v1/accounts", id);
    let operation = form.text("operation");
    let usd = form.text("usd");
    match verb {
        "credit" => {
            let body = json!({ "usd": usd, "operation_id": operation });
            desk.change(Method::POST, &below(&path, verb), &body).await?;
        }
        "adjust" => {
            let body = json!({ "usd": usd, "operation_id": operation, "reason": form.text("reason") });
            desk.change(Method::POST, &below(&path, verb), &body).await?;
        }
        "limits" => {
            let mut body = Map::new();
            limits::changed_rates(form, &mut body)?;
            limits::changed_notify(form, &mut body);
            if is_changed(form, "low_balance_usd") {
                body.insert("low_balance_usd".to_owned(), json!(form.given("low_balance_usd")));
            }
            desk.change(Method::PATCH, &path, &Value::Object(body)).await?;
        }
        other => {
            desk.change(Method::POST, &below(&path, other), &json!({})).await?;
        }
    }
    Ok(Answer::see(&below("/accounts", id)))
}
