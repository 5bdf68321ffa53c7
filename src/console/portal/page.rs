//! Renders the pages of the portal.

use http::StatusCode;
use maud::{Markup, html};

use crate::{
    admin::{AdminHandler, AdminPeer, audit::Author},
    api::{
        AdminError, AdminErrorCode,
        keys::{EndOverlap, KeyDetails, KeyText, LowerKey},
        log::LatestRows,
        node::{ListModels, ModelView},
        sessions::EndSignIns,
        usage::UsagePage,
    },
    console::{
        forms::{Forms, InputField, changed_value},
        key_page,
        layout::{self, HtmlPage, Layout, PageResponse},
        oauth::VERIFICATION,
        portal::{KeyOwner, Portal, ROOT},
        request::{FormFields, PageRequest},
        rows,
        session::BrowserSession,
        snippet::{self, Examples},
        usage_table,
    },
    domain::{
        keys::{
            KeyId,
            change::{ChangePrecondition, KeyChangeError},
            secret::ServiceKey,
        },
        sign_in::device_request::UserCode,
    },
};

/// The data from which the owner's page is rendered.
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
            p class="card" role="status" { "The quota of this key is used up, or the key has expired: the key can only be viewed. Ask the person who gave it to you to extend it." }
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
                section class="card" { h2 { "Lower the key's limits" } (lower_form(forms, key)) }
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

/// Renders the page for signing in with a key or with `provider`. If the agent's `code` is given, the browser goes after the
/// sign-in to the page on which the user can approve this code.
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

/// Renders a page with the reason for a refusal.
pub(super) fn refusal(status: StatusCode, why: &str) -> PageResponse {
    let page = HtmlPage {
        title: status.canonical_reason().unwrap_or("Refused").to_owned(),
        content: html! { p class="card" role="alert" { (why) } p class="pages" { a href="/portal" { "To the portal" } } },
    };
    PageResponse::page(status, framed::<()>(None, &page))
}

/// Renders a complete document. With a session, the document has a button to sign out.
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

impl Portal {
    pub(super) async fn change(
        &self,
        session: &BrowserSession<KeyOwner>,
        at: &[&str],
        form: &FormFields,
        request: &PageRequest,
    ) -> Result<PageResponse, AdminError> {
        self.check_present_text(session).await?;
        if let ["agents"] = at {
            let id = session.who.key.clone();
            self.request_change(session, EndSignIns { id }).await?;
            return Ok(PageResponse::redirect(ROOT));
        }
        let key = self.key(session).await?;
        if key_page::has_expired(&key) || key_page::is_used_up(&key) {
            return Err(AdminError::new(
                AdminErrorCode::Forbidden,
                "The quota of this key is used up, or the key has expired: only an operator can change the key.",
            ));
        }
        let id = key.id;
        match at {
            ["rotate"] => {
                let made = self
                    .request_change(session, key_page::read_rotation(session, id, form)?)
                    .await?;
                return Ok(self.rotated(session, &made, &request.base()).await);
            }
            ["end-overlap"] => self.request_change(session, EndOverlap { id }).await?,
            _ => self.request_change(session, read_lower(id, form)?).await?,
        };
        Ok(PageResponse::redirect(ROOT))
    }

    /// Makes a change of the session's key. The change is refused if the session was not opened with the key's current secret.
    pub(super) async fn request_change<Q: AdminHandler>(
        &self,
        session: &BrowserSession<KeyOwner>,
        question: Q,
    ) -> Result<Q::Answer, AdminError> {
        let KeyOwner { key, digest } = &session.who;
        let author = Author {
            peer: AdminPeer::Owner(key.clone()),
            from: ChangePrecondition::Text(*digest),
        };
        self.api.call(author, question).await
    }

    /// Returns an error if the session was opened with a former secret of the key. In such a session, the owner can read pages
    /// and sign out, but cannot change the key. The store makes the same check again when it changes the key.
    pub(super) async fn check_present_text(&self, session: &BrowserSession<KeyOwner>) -> Result<(), AdminError> {
        let view = self.keys.by_id(&session.who.key).await?;
        let from = ChangePrecondition::Text(session.who.digest);
        let present = view.map_or(Err(KeyChangeError::OldText), |view| view.check_precondition(&from));
        Ok(present?)
    }

    /// Changes the session's secret to the key's new secret, and returns the only page that displays the new secret.
    async fn rotated(&self, session: &BrowserSession<KeyOwner>, made: &KeyDetails, base: &str) -> PageResponse {
        let text = made.key.as_ref().map_or("", KeyText::expose);
        if let Ok(key) = ServiceKey::parse(&self.prefix, text) {
            let owner = KeyOwner {
                digest: key.digest(),
                ..session.who.clone()
            };
            // If this fails, the owner must sign in again with the new secret.
            let _ = self.sessions.set_person(session, &owner).await;
        }
        // The key has its new secret at this point, so it is displayed even if the models cannot be read.
        let listed = self.fetch(session, ListModels {}).await;
        let page = rotated_page(made, &listed.unwrap_or_default().models, base);
        PageResponse::page(StatusCode::OK, framed(Some(session), &page))
    }
}

/// Returns the call that lowers the limits. It contains only the limits that the user has changed in the form.
fn read_lower(id: KeyId, form: &FormFields) -> Result<LowerKey, AdminError> {
    let [rpm, tpm, concurrency] = key_page::changed_rates(form)?;
    Ok(LowerKey {
        id,
        expires_at: changed_value(form, "expires_at")?,
        quota_usd: changed_value(form, "quota_usd")?,
        rpm,
        tpm,
        concurrency,
    })
}
