//! Keys: found among many, and changed one by one.

use http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::{key_form, made_key};
use crate::{
    console::{
        answer::Answer,
        desk::{Desk, below},
        fields::{Fields, query},
        frame::Page,
        key_view::{facts, state},
        rotation, view,
    },
    side::admin::local::Refused,
};

/// Keys on one page.
const PAGE: usize = 50;

pub(super) async fn list(desk: &Desk<'_>) -> Result<Page, Refused> {
    let wanted = |name: &str| desk.query.text(name);
    let (search, account, after) = (wanted("search"), wanted("account"), wanted("after"));
    let limit = PAGE.to_string();
    let asked = query(&[
        ("limit", &limit),
        ("search", search),
        ("account", account),
        ("after", after),
    ]);
    let answer = desk.read(&format!("/v1/keys{asked}")).await?;
    let keys = view::list(&answer, "keys");
    let next = view::text(&answer, "next");
    let content = html! {
        p class="pages" { a class="button" href={ "/keys/new" (query(&[("account", account)])) } { "New key" } }
        form method="get" action="/keys" class="filter" role="search" {
            label { span { "Name, id, account or hint" } input type="search" name="search" value=(search); }
            label { span { "Account" } input type="text" name="account" value=(account); }
            button { "Find" }
        }
        @if keys.is_empty() { p class="card" { "No keys" @if !(search.is_empty() && account.is_empty()) { " like this" } "." } }
        @else { (table(keys)) }
        @if !next.is_empty() {
            @let further = query(&[("search", search), ("account", account), ("after", next)]);
            p class="pages" { a href={ "/keys" (further) } { "More keys" } }
        }
    };
    Ok(Page {
        title: "Keys".to_owned(),
        content,
    })
}

fn table(keys: &[Value]) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Keys" {
            table class="list" {
                thead { tr {
                    th scope="col" { "Name" } th scope="col" { "Account" } th scope="col" { "Ends in" } th scope="col" { "State" }
                    th scope="col" class="figure" { "Spent" } th scope="col" class="figure" { "Quota" }
                    th scope="col" { "Expires" } th scope="col" { "Last used" }
                } }
                tbody {
                    @for key in keys {
                        tr {
                            th scope="row" { a href=(below("/keys", view::text(key, "id"))) { (view::name(view::text(key, "name"))) } }
                            td { (view::name(view::text(key, "account"))) }
                            td { code { (view::text(key, "hint")) } }
                            td { (state(key)) }
                            td class="figure" { (view::usd(key, "spent_usd", "unknown")) }
                            td class="figure" { (view::usd(key, "quota_usd", "Unlimited")) }
                            td { (view::time(key, "expires_at", "never")) }
                            td { (view::time(key, "last_used", "never")) }
                        }
                    }
                }
            }
        }
    }
}

pub(super) async fn one(desk: &Desk<'_>, id: &str) -> Result<Page, Refused> {
    let key = desk.read(&below("/v1/keys", id)).await?;
    let id = view::text(&key, "id");
    let at = |verb: &str| below(&below("/keys", id), verb);
    let is_active = view::text(&key, "state") == "active";
    let log = query(&[("account", view::text(&key, "account")), ("key", id)]);
    let content = html! {
        @if !is_active { (desk.forms.refusal()) }
        (facts(&key))
        p class="pages" {
            a href=(below("/accounts", view::text(&key, "account"))) { "Its account" } " "
            a href={ "/usage" (query(&[("key", id)])) } { "Its use" } " " a href={ "/log" (log) } { "Its log" }
        }
        div class="cards" {
            @if is_active {
                section class="card" { h2 { "Change" } (key_form::change(desk, &at("update"), &key)) }
                section class="card" {
                    h2 { "Rotate" }
                    (rotation::form(&desk.forms, &at("rotate"), &at("end-overlap"), &key))
                }
                section class="card" {
                    h2 { "Revoke" }
                    p { "The key stops working within a second, for good. It stays listed." }
                    (desk.forms.button(&at("revoke"), "Revoke the key", "danger"))
                }
            }
            section class="card" {
                h2 { "Delete" }
                p { "The key stops working and is listed no more. Its rows in the log stay." }
                (desk.forms.button(&at("delete"), "Delete the key", "danger"))
            }
        }
    };
    Ok(Page {
        title: view::text(&key, "name").to_owned(),
        content,
    })
}

pub(super) async fn rotate(desk: &Desk<'_>, id: &str, form: &Fields) -> Result<Page, Refused> {
    let path = below(&below("/v1/keys", id), "rotate");
    let key = desk.change(Method::POST, &path, &rotation::body(form)).await?;
    Ok(made_key::page(desk, &key, "The key has a new text"))
}

pub(super) async fn change(desk: &Desk<'_>, id: &str, verb: &str, form: &Fields) -> Result<Answer, Refused> {
    let path = below("/v1/keys", id);
    match verb {
        "update" => {
            let body = key_form::changes(form)?;
            desk.change(Method::PATCH, &path, &Value::Object(body)).await?;
        }
        "delete" => {
            desk.change(Method::DELETE, &path, &json!({})).await?;
            return Ok(Answer::see("/keys"));
        }
        other => {
            desk.change(Method::POST, &below(&path, other), &json!({})).await?;
        }
    }
    Ok(Answer::see(&below("/keys", id)))
}
