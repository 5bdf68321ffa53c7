//! Renders the pages of the portal.

use http::StatusCode;
use maud::{Markup, html};

use crate::api::node::ModelView;
use crate::console::{
    forms::{Forms, InputField},
    key_page,
    layout::{self, HtmlPage, Layout, PageResponse},
    oauth::VERIFICATION,
    rows,
    session::BrowserSession,
    snippet::{self, Examples},
    usage_table,
};
use crate::{
    api::{keys::KeyDetails, log::LatestRows, usage::UsagePage},
    domain::sign_in::device_request::UserCode,
};

/// What the owner's page is rendered from.
#[derive(Debug)]
pub(super) struct PortalFacts {
    /// The owner's key.
    pub(super) key: KeyDetails,
    /// The usage of the key in the last 30 days, by day.
    pub(super) by_day: UsagePage,
    /// The usage of the key in the last 30 days, by model.
    pub(super) by_model: UsagePage,
    /// The most recent rows of the key.
    pub(super) rows: LatestRows,
    /// The models that are served.
    pub(super) models: Vec<ModelView>,
    /// The number of agents that are signed in with the key. `None` if agents cannot sign in.
    pub(super) signed_in: Option<usize>,
}

/// Renders the owner's page.
pub(super) fn owner_page<W>(facts: &PortalFacts, forms: &Forms<'_, W>, base: &str) -> HtmlPage {
    let key = &facts.key;
    let is_read_only = key_page::has_expired(key) || key_page::is_used_up(key);
    let (rows, not_read) = (&facts.rows.rows, facts.rows.not_read.is_some());
    let content = html! {
        @if is_read_only {
            (forms.refusal())
            p class="card" role="status" { "This key is used up or has expired, and can only be viewed. Ask the person who gave it to you for more." }
        }
        (key_page::facts(key))
        h2 { "The last 30 days" }
        (usage_table::usage_chart(&facts.by_day, true))
        @if !facts.by_model.usage.is_empty() { (usage_table::usage_table(&facts.by_model, layout::name)) }
        h2 { "The last requests" }
        @if not_read { p class="card" role="status" { "Older requests cannot be read at the moment. Try again later." } }
        @let is_whole = facts.rows.whole;
        @if !is_whole && !not_read { p class="card" role="status" { "The account has so many requests that older ones of this key were not searched for." } }
        @if !rows.is_empty() { (rows::list(rows)) } @else if !not_read && is_whole { p class="card" { "None in the last 31 days." } }
        (models(key, &facts.models))
        @if let Some(count) = facts.signed_in { (agents(forms, count)) }
        @if !is_read_only {
            div class="cards" {
                section class="card" { h2 { "Lower its limits" } (lower_form(forms, key)) }
                section class="card" {
                    h2 { "Rotate" }
                    (key_page::rotation_form(forms, "/portal/rotate", "/portal/end-overlap", key))
                }
            }
        }
        (snippet::section(base, None, &Examples::from_model_views(key.models.as_deref(), &facts.models)))
    };
    HtmlPage {
        title: key.name.clone(),
        content,
    }
}

/// Renders the number of agents that are signed in with the key, and a button that ends their sign-ins.
fn agents<W>(forms: &Forms<'_, W>, count: usize) -> Markup {
    html! {
        section class="card" {
            h2 { "Agents signed in: " (count) }
            p { "Claude Code shows a code when it signs in. " a href=(VERIFICATION) { "Enter a code" } "." }
            @if count > 0 { (forms.button("/portal/agents", "Sign all agents out", "danger")) }
        }
    }
}

fn lower_form<W>(forms: &Forms<'_, W>, key: &KeyDetails) -> Markup {
    let action = "/portal/lower";
    let quota = key.quota_usd.map(|quota| quota.to_string()).unwrap_or_default();
    let expires = key.expires_at.map(|end| end.to_string()).unwrap_or_default();
    let content = html! {
        p { "Only an operator can raise them again." }
        (forms.input(action, &InputField::text("quota_usd", "Quota in USD", &quota, "Unlimited")))
        (forms.input(action, &InputField::text("expires_at", "Expires, a date or a time (UTC)", &expires, "Never")))
        (key_page::rate_inputs(forms, action, [key.rpm, key.tpm, key.concurrency]))
        button { "Lower the limits" }
    };
    forms.form(action, "fields", &content)
}

/// Renders the served models that the key can use.
fn models(key: &KeyDetails, models: &[ModelView]) -> Markup {
    let allowed = key.models.as_ref();
    let is_allowed = |name: &str| allowed.is_none_or(|allowed| allowed.iter().any(|one| one == name));
    let names = models.iter().map(|model| model.name.as_str());
    let names: Vec<&str> = names.filter(|name| is_allowed(name)).collect();
    html! {
        details class="card" {
            summary { "Models it may request: " (names.len()) }
            ul class="silent" { @for name in names { li { (layout::name(name)) } } }
        }
    }
}

/// Renders the page with the key's new secret.
pub(super) fn rotated_page(made: &KeyDetails, models: &[ModelView], base: &str) -> HtmlPage {
    let content = html! {
        (key_page::section(made, models, base))
        p class="pages" { a href="/portal" { "Back to the key" } }
    };
    HtmlPage {
        title: "The key has a new secret".to_owned(),
        content,
    }
}

/// Renders the page for signing in, with a key or by `provider`. If there is a `code` of an agent, the browser then continues to
/// its approval.
pub(super) fn sign_in_page(
    status: StatusCode,
    why: Option<&str>,
    code: Option<&UserCode>,
    provider: Option<&str>,
) -> PageResponse {
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
            p class="wide none" { "The key opens a session, which ends after 30 minutes without a request, or after 12 hours. The browser does not store the key." }
        }
    };
    let page = HtmlPage {
        title: "Sign in".to_owned(),
        content,
    };
    PageResponse::page(status, framed::<()>(None, &page))
}

/// Renders a page with the reason of a refusal.
pub(super) fn refusal(status: StatusCode, why: &str) -> PageResponse {
    let page = HtmlPage {
        title: status.canonical_reason().unwrap_or("Refused").to_owned(),
        content: html! { p class="card" role="alert" { (why) } p class="pages" { a href="/portal" { "To the portal" } } },
    };
    PageResponse::page(status, framed::<()>(None, &page))
}

/// Renders a complete document. If there is a session, it has a button to sign out.
pub(super) fn framed<W>(session: Option<&BrowserSession<W>>, page: &HtmlPage) -> Markup {
    let who = session.map(|session| Forms::new(session, None).button("/portal/sign-out", "Sign out", "plain"));
    let frame = Layout {
        style: "/portal/style.css",
        site_name: "weir portal",
        pages: &[],
        current: "",
        who: html! { @if let Some(who) = who { (who) } },
    };
    frame.document(page)
}
