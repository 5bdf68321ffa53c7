//! The pages of keys: search, and one page per key with the forms that change it.

use maud::{Markup, html};
use serde_json::Map;

use super::{key_form, made_key};
use crate::{
    api::{
        error::AdminError,
        keys::{DeleteKey, EndOverlap, KeyDetails, KeyStanding, ListKeys, RevokeKey, ShowKey},
        wire,
    },
    console::{
        answer::PageResponse,
        desk::{PageContext, below},
        fields::{FormFields, to_query},
        frame::HtmlPage,
        key_view::{facts, state_label},
        rotation, view,
    },
    domain::keys::key::KeyId,
};

/// Keys on one page.
const PAGE: usize = 50;

/// The search fields: a field of [`ListKeys`], its label, and the input type.
const FILTERS: [(&str, &str, &str); 6] = [
    ("search", "Name, id, account or hint", "search"),
    ("account", "Account", "text"),
    ("used_since", "Used since (UTC)", "date"),
    ("unused_since", "Not used since", "date"),
    ("expires_before", "Expires before", "date"),
    ("spent_usd", "Has spent, USD", "text"),
];

pub(super) async fn list(context: &PageContext<'_>) -> Result<HtmlPage, AdminError> {
    let filter = FILTERS.map(|(name, ..)| (name, context.query.text(name)));
    let is_filtered = filter.iter().any(|(_, value)| !value.is_empty());
    let limit = PAGE.to_string();
    let asked = to_query(
        &[
            &filter[..],
            &[("limit", &limit), ("after", context.query.text("after"))],
        ]
        .concat(),
    );
    let question = wire::read::<ListKeys>(Vec::new(), asked.trim_start_matches('?'), Map::new());
    let answer = match question {
        Ok(question) => context.fetch(question).await,
        Err(wrong) => Err(wrong),
    };
    let found = match answer {
        Ok(answer) => {
            let (keys, next) = (&answer.keys, answer.next.as_ref().map_or("", KeyId::as_str));
            html! {
                @if !keys.is_empty() { (table(keys)) }
                @else {
                    p class="card" {
                        @if !next.is_empty() { "None among the keys searched so far." }
                        @else { "No keys" @if is_filtered { " like this" } "." }
                    }
                }
                @if !next.is_empty() {
                    p class="pages" { a href={ "/keys" (to_query(&[&filter[..], &[("after", next)]].concat())) } { "More keys" } }
                }
            }
        }
        // An error in a filter is shown below the filters.
        Err(refused) => html! { p class="card refused" role="alert" { (refused) } },
    };
    let content = html! {
        p class="pages" { a class="button" href={ "/keys/new" (to_query(&[("account", context.query.text("account"))])) } { "New key" } }
        form method="get" action="/keys" class="filter" role="search" {
            @for ((name, label, kind), (_, value)) in FILTERS.iter().zip(filter) {
                label { span { (label) } input type=(kind) name=(name) value=(value); }
            }
            button { "Find" }
        }
        (found)
    };
    Ok(HtmlPage {
        title: "Keys".to_owned(),
        content,
    })
}

fn table(keys: &[KeyDetails]) -> Markup {
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
                            td { (state_label(key)) }
                            td class="figure" { (view::money(key.spent_usd, "unknown")) }
                            td class="figure" { (view::money(key.quota_usd, "Unlimited")) }
                            td { (view::timestamp(key.expires_at, "never")) }
                            td { (view::timestamp(key.last_used, "never")) }
                        }
                    }
                }
            }
        }
    }
}

pub(super) async fn show(context: &PageContext<'_>, id: &str) -> Result<HtmlPage, AdminError> {
    let key = context.fetch(ShowKey { id: read_id(id)? }).await?;
    let id = key.id.as_str();
    let at = |verb: &str| below(&below("/keys", id), verb);
    let is_active = key.state == KeyStanding::Active;
    let log = to_query(&[("account", &key.account), ("key", id)]);
    let content = html! {
        @if !is_active { (context.forms.refusal()) }
        (facts(&key))
        p class="pages" {
            a href=(below("/accounts", &key.account)) { "Its account" } " "
            a href={ "/usage" (to_query(&[("key", id)])) } { "Its use" } " " a href={ "/log" (log) } { "Its log" }
        }
        div class="cards" {
            @if is_active {
                section class="card" { h2 { "Change" } (key_form::change_form(context, &at("update"), &key)) }
                section class="card" {
                    h2 { "Rotate" }
                    (rotation::rotation_form(&context.forms, &at("rotate"), &at("end-overlap"), &key))
                }
                section class="card" {
                    h2 { "Revoke" }
                    p { "The key stops working within a second, for good. It stays listed." }
                    (context.forms.button(&at("revoke"), "Revoke the key", "danger"))
                }
            }
            section class="card" {
                h2 { "Delete" }
                p { "The key stops working and is no longer listed. Its rows in the log stay." }
                (context.forms.button(&at("delete"), "Delete the key", "danger"))
            }
        }
    };
    Ok(HtmlPage {
        title: key.name.clone(),
        content,
    })
}

fn read_id(text: &str) -> Result<KeyId, AdminError> {
    KeyId::parse(text).map_err(|error| AdminError::of_field("key", error.to_string()))
}

pub(super) async fn rotate(context: &PageContext<'_>, id: &str, form: &FormFields) -> Result<HtmlPage, AdminError> {
    let key = context
        .change(rotation::read_rotation(context.session, read_id(id)?, form)?)
        .await?;
    Ok(made_key::key_text_page(context, &key, "The key has a new text").await)
}

pub(super) async fn change(
    context: &PageContext<'_>,
    id: &str,
    verb: &str,
    form: &FormFields,
) -> Result<PageResponse, AdminError> {
    let key = read_id(id)?;
    match verb {
        "update" => drop(
            context
                .change_seen(form.non_empty("version"), key_form::read_update(key, form)?)
                .await?,
        ),
        "end-overlap" => drop(context.change(EndOverlap { id: key }).await?),
        "revoke" => drop(context.change(RevokeKey { id: key }).await?),
        "delete" => {
            context.change(DeleteKey { id: key }).await?;
            return Ok(PageResponse::redirect("/keys"));
        }
        _ => return Err(AdminError::not_found("This page does not exist.")),
    }
    Ok(PageResponse::redirect(&below("/keys", id)))
}
