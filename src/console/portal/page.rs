//! The pages of the portal.

use http::StatusCode;
use maud::{Markup, html};

use crate::api::providers::ModelView;
use crate::console::{
    answer::Answer,
    example::Examples,
    forms::{Field, Forms},
    frame::{Frame, Page},
    key_view, limits, new_key,
    oauth::VERIFICATION,
    rotation, rows,
    session::Session,
    snippet, usage_chart, usage_table, view,
};
use crate::{
    api::{keys::Key, log::LatestRows, usage::UsagePage},
    domain::sign_in::user_code::UserCode,
};

/// What the owner's page tells.
#[derive(Debug)]
pub(super) struct Facts {
    /// The key, as the admin API shows it.
    pub(super) key: Key,
    /// What it has used in the last 30 days, day by day.
    pub(super) by_day: UsagePage,
    /// The same, model by model.
    pub(super) by_model: UsagePage,
    /// Its last rows.
    pub(super) rows: LatestRows,
    /// The models there are.
    pub(super) models: Vec<ModelView>,
    /// How many agents are signed in with it; `None`: agents cannot sign in.
    pub(super) signed_in: Option<usize>,
}

/// The owner's page.
pub(super) fn content<W>(facts: &Facts, forms: &Forms<'_, W>, base: &str) -> Page {
    let key = &facts.key;
    let is_read_only = key_view::has_expired(key) || key_view::is_used_up(key);
    let (rows, not_read) = (&facts.rows.rows, facts.rows.not_read.is_some());
    let content = html! {
        @if is_read_only {
            (forms.refusal())
            p class="card" role="status" { "This key is used up or has expired. It can be looked at; ask whoever gave it to you for more." }
        }
        (key_view::facts(key))
        h2 { "The last 30 days" }
        (usage_chart::of_usage(&facts.by_day, true))
        @if !facts.by_model.usage.is_empty() { (usage_table::of_usage(&facts.by_model, view::name)) }
        h2 { "The last requests" }
        @if not_read { p class="card" role="status" { "Older ones cannot be read at the moment. Look again later." } }
        @let is_whole = facts.rows.whole;
        @if !is_whole && !not_read { p class="card" role="status" { "The account has so many requests that older ones of this key were not looked for." } }
        @if !rows.is_empty() { (rows::list(rows)) } @else if !not_read && is_whole { p class="card" { "None in the last 31 days." } }
        (models(key, &facts.models))
        @if let Some(count) = facts.signed_in { (agents(forms, count)) }
        @if !is_read_only {
            div class="cards" {
                section class="card" { h2 { "Lower its limits" } (lower(forms, key)) }
                section class="card" {
                    h2 { "Rotate" }
                    (rotation::form(forms, "/portal/rotate", "/portal/end-overlap", key))
                }
            }
        }
        (snippet::section(base, None, &Examples::of_answers(key.models.as_deref(), &facts.models)))
    };
    Page {
        title: key.name.clone(),
        content,
    }
}

/// The agents that are signed in with the key.
fn agents<W>(forms: &Forms<'_, W>, count: usize) -> Markup {
    html! {
        section class="card" {
            h2 { "Agents signed in: " (count) }
            p { "Claude Code shows a code when it signs in. " a href=(VERIFICATION) { "Enter a code" } "." }
            @if count > 0 { (forms.button("/portal/agents", "Sign all agents out", "danger")) }
        }
    }
}

fn lower<W>(forms: &Forms<'_, W>, key: &Key) -> Markup {
    let action = "/portal/lower";
    let quota = key.quota_usd.map(|quota| quota.to_string()).unwrap_or_default();
    let expires = key.expires_at.map(|end| end.to_string()).unwrap_or_default();
    let content = html! {
        p { "Only an operator can raise them again." }
        (forms.input(action, &Field::text("quota_usd", "Quota in USD", &quota, "Unlimited")))
        (forms.input(action, &Field::text("expires_at", "Expires, a date or a time (UTC)", &expires, "Never")))
        (limits::rates(forms, action, [key.rpm, key.tpm, key.concurrency]))
        button { "Lower the limits" }
    };
    forms.form(action, "fields", &content)
}

/// The models that the key may ask for and that are served.
fn models(key: &Key, models: &[ModelView]) -> Markup {
    let allowed = key.models.as_ref();
    let is_allowed = |name: &str| allowed.is_none_or(|allowed| allowed.iter().any(|one| one == name));
    let names = models.iter().map(|model| model.name.as_str());
    let names: Vec<&str> = names.filter(|name| is_allowed(name)).collect();
    html! {
        details class="card" {
            summary { "Models it may ask for: " (names.len()) }
            ul class="silent" { @for name in names { li { (view::name(name)) } } }
        }
    }
}

/// The new text of a key.
pub(super) fn rotated(made: &Key, models: &[ModelView], base: &str) -> Page {
    let content = html! {
        (new_key::section(made, models, base))
        p class="pages" { a href="/portal" { "Back to the key" } }
    };
    Page {
        title: "The key has a new text".to_owned(),
        content,
    }
}

/// The form that asks for a key, and the way to the provider if there is one. Whoever came to approve a code goes on with it.
pub(super) fn sign_in(
    status: StatusCode,
    why: Option<&str>,
    code: Option<&UserCode>,
    provider: Option<&str>,
) -> Answer {
    let content = html! {
        @if let Some(why) = why { p class="card refused" role="alert" { (why) } }
        @if let Some(provider) = provider {
            form method="post" action="/portal/openid" class="card" {
                @if let Some(code) = code { input type="hidden" name="user_code" value=(code); }
                button { "Sign in with " (provider) }
            }
        }
        form method="post" action="/portal/sign-in" class="card fields" autocomplete="off" {
            label {
                span { "Your key" }
                input type="password" name="key" required autofocus autocomplete="off" spellcheck="false";
            }
            @if let Some(code) = code { input type="hidden" name="user_code" value=(code); }
            button { "Sign in" }
            p class="wide none" { "The key opens a session of its own, for 30 minutes without a request and 12 hours in all. The browser does not keep the key." }
        }
    };
    let page = Page {
        title: "Sign in".to_owned(),
        content,
    };
    Answer::page(status, framed::<()>(None, &page))
}

/// A page that says what was not done and why.
pub(super) fn refusal(status: StatusCode, why: &str) -> Answer {
    let page = Page {
        title: status.canonical_reason().unwrap_or("Refused").to_owned(),
        content: html! { p class="card" role="alert" { (why) } p class="pages" { a href="/portal" { "To the portal" } } },
    };
    Answer::page(status, framed::<()>(None, &page))
}

/// The whole document, with the way out for who is signed in.
pub(super) fn framed<W>(session: Option<&Session<W>>, page: &Page) -> Markup {
    let who = session.map(|session| Forms::new(session, None).button("/portal/sign-out", "Sign out", "plain"));
    let frame = Frame {
        style: "/portal/style.css",
        door: "weir portal",
        pages: &[],
        current: "",
        who: html! { @if let Some(who) = who { (who) } },
    };
    frame.document(page)
}
