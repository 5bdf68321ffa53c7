//! Keys: found among many, and changed one by one.

use maud::{Markup, html};
use serde_json::Map;

use super::{key_form, made_key};
use crate::{
    api::{
        error::AdminError,
        keys::{DeleteKey, EndOverlap, Key, KeyStanding, ListKeys, RevokeKey, ShowKey},
        wire,
    },
    console::{
        answer::Answer,
        desk::{Desk, below},
        fields::{Fields, query},
        frame::Page,
        key_view::{facts, state},
        rotation, view,
    },
    domain::keys::key::KeyId,
};

/// Keys on one page.
const PAGE: usize = 50;

/// What keys are found by: a field of [`ListKeys`], what people call it, and the kind of input.
const FILTERS: [(&str, &str, &str); 6] = [
    ("search", "Name, id, account or hint", "search"),
    ("account", "Account", "text"),
    ("used_since", "Used since (UTC)", "date"),
    ("unused_since", "Not used since", "date"),
    ("expires_before", "Expires before", "date"),
    ("spent_usd", "Has spent, USD", "text"),
];

pub(super) async fn list(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let filter = FILTERS.map(|(name, ..)| (name, desk.query.text(name)));
    let is_filtered = filter.iter().any(|(_, value)| !value.is_empty());
    let limit = PAGE.to_string();
    let asked = query(&[&filter[..], &[("limit", &limit), ("after", desk.query.text("after"))]].concat());
    let question = wire::read::<ListKeys>(Vec::new(), asked.trim_start_matches('?'), Map::new());
    let answer = match question {
        Ok(question) => desk.look(question).await,
        Err(wrong) => Err(wrong),
    };
    let found = match answer {
        Ok(answer) => {
            let (keys, next) = (&answer.keys, answer.next.as_ref().map_or("", KeyId::as_str));
            html! {
                @if !keys.is_empty() { (table(keys)) }
                @else {
                    p class="card" {
                        @if !next.is_empty() { "None among those looked through so far." }
                        @else { "No keys" @if is_filtered { " like this" } "." }
                    }
                }
                @if !next.is_empty() {
                    p class="pages" { a href={ "/keys" (query(&[&filter[..], &[("after", next)]].concat())) } { "More keys" } }
                }
            }
        }
        // What is wrong with a filter belongs beside it.
        Err(refused) => html! { p class="card refused" role="alert" { (refused) } },
    };
    let content = html! {
        p class="pages" { a class="button" href={ "/keys/new" (query(&[("account", desk.query.text("account"))])) } { "New key" } }
        form method="get" action="/keys" class="filter" role="search" {
            @for ((name, label, kind), (_, value)) in FILTERS.iter().zip(filter) {
                label { span { (label) } input type=(kind) name=(name) value=(value); }
            }
            button { "Find" }
        }
        (found)
    };
    Ok(Page {
        title: "Keys".to_owned(),
        content,
    })
}

fn table(keys: &[Key]) -> Markup {
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
                            th scope="row" { a href=(below("/keys", key.id.as_str())) { (view::name(&key.name)) } }
                            td { (view::name(&key.account)) }
                            td { code { (key.hint) } }
                            td { (state(key)) }
                            td class="figure" { (view::money(key.spent_usd, "unknown")) }
                            td class="figure" { (view::money(key.quota_usd, "Unlimited")) }
                            td { (view::at(key.expires_at, "never")) }
                            td { (view::at(key.last_used, "never")) }
                        }
                    }
                }
            }
        }
    }
}

pub(super) async fn one(desk: &Desk<'_>, id: &str) -> Result<Page, AdminError> {
    let key = desk.look(ShowKey { id: read_id(id)? }).await?;
    let id = key.id.as_str();
    let at = |verb: &str| below(&below("/keys", id), verb);
    let is_active = key.state == KeyStanding::Active;
    let log = query(&[("account", &key.account), ("key", id)]);
    let content = html! {
        @if !is_active { (desk.forms.refusal()) }
        (facts(&key))
        p class="pages" {
            a href=(below("/accounts", &key.account)) { "Its account" } " "
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
        title: key.name.clone(),
        content,
    })
}

fn read_id(text: &str) -> Result<KeyId, AdminError> {
    KeyId::parse(text).map_err(|error| AdminError::of_field("key", error.to_string()))
}

pub(super) async fn rotate(desk: &Desk<'_>, id: &str, form: &Fields) -> Result<Page, AdminError> {
    let key = desk.ask(rotation::question(desk.session, read_id(id)?, form)?).await?;
    Ok(made_key::page(desk, &key, "The key has a new text").await)
}

pub(super) async fn change(desk: &Desk<'_>, id: &str, verb: &str, form: &Fields) -> Result<Answer, AdminError> {
    let key = read_id(id)?;
    match verb {
        "update" => drop(
            desk.ask_seen(form.given("version"), key_form::update(key, form)?)
                .await?,
        ),
        "end-overlap" => drop(desk.ask(EndOverlap { id: key }).await?),
        "revoke" => drop(desk.ask(RevokeKey { id: key }).await?),
        "delete" => {
            desk.ask(DeleteKey { id: key }).await?;
            return Ok(Answer::see("/keys"));
        }
        _ => return Err(AdminError::not_found("There is no such page.")),
    }
    Ok(Answer::see(&below("/keys", id)))
}
