//! The console's pages of keys: the search, and a page for each key with the forms that change it.

use maud::{Markup, html};
use serde_json::Map;

use crate::{
    api::{
        AdminError,
        accounts::ListAccounts,
        keys::{CreateKey, DeleteKey, EndOverlap, KeyDetails, KeyStanding, ListKeys, RevokeKey, ShowKey, UpdateKey},
        node::ListModels,
        values::ModelNames,
        wire,
    },
    console::{
        PageContext, below,
        forms::{InputField, SEED, changed_value, is_changed, parse_field},
        key_page::{self, facts, state_label},
        layout::{self, HtmlPage, PageResponse},
        request::{FormFields, to_query},
    },
    domain::{
        keys::KeyId,
        ledger::{OperationId, QuotaReset},
    },
};

/// The number of keys on one page.
const PAGE: usize = 50;

/// The fields of the search. Each has the name of a field of [`ListKeys`], a label, and an HTML input type.
const FILTERS: [(&str, &str, &str); 6] = [
    ("search", "Name, id, account or hint", "search"),
    ("account", "Account", "text"),
    ("used_since", "Used since (UTC)", "date"),
    ("unused_since", "Not used since", "date"),
    ("expires_before", "Expires before", "date"),
    ("spent_usd", "Spent at least, USD", "text"),
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
        // If a filter is invalid, the error is displayed below the filters.
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
                            th scope="row" { a href=(below("/keys", key.id.as_str())) { (layout::name(&key.name)) } }
                            td { (layout::name(&key.account)) }
                            td { code { (key.hint) } }
                            td { (state_label(key)) }
                            td class="figure" { (layout::money(key.spent_usd, "unknown")) }
                            td class="figure" {
                                (layout::money(key.quota_usd, "Unlimited"))
                                @if key.quota_usd.is_some() && key.resets_at.is_some() { " " (key.reset.as_str()) }
                            }
                            td { (layout::timestamp(key.expires_at, "never")) }
                            td { (layout::timestamp(key.last_used, "never")) }
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
                section class="card" { h2 { "Change" } (change_form(context, &at("update"), &key)) }
                section class="card" {
                    h2 { "Rotate" }
                    (key_page::rotation_form(&context.forms, &at("rotate"), &at("end-overlap"), &key))
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
        .change(key_page::read_rotation(context.session, read_id(id)?, form)?)
        .await?;
    Ok(key_text_page(context, &key, "The key has a new secret").await)
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
                .change_seen(form.non_empty("version"), read_update(key, form)?)
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

/// The maximum number of accounts that the form for a new key offers as choices.
const ACCOUNTS_MAX: u64 = 200;
const RESETS: [(QuotaReset, &str); 4] = [
    (QuotaReset::None, "Never"),
    (QuotaReset::Daily, "Every day"),
    (QuotaReset::Weekly, "Every Monday"),
    (QuotaReset::Monthly, "On the first of every month"),
];

pub(super) async fn new_key_page(context: &PageContext<'_>) -> Result<HtmlPage, AdminError> {
    let page = ListAccounts {
        after: None,
        limit: Some(ACCOUNTS_MAX),
    };
    let accounts = &context.fetch(page).await?.accounts;
    let action = "/keys";
    let only = match &accounts[..] {
        [only] => only.id.as_str(),
        _ => "",
    };
    let account = InputField {
        value: context.query.non_empty("account").unwrap_or(only),
        choices: Some("accounts"),
        ..InputField::required("account", "Account that pays")
    };
    let content = html! {
        @if accounts.is_empty() {
            p class="card" role="alert" { "A key needs an account that pays. " a href="/accounts" { "Create one first." } }
        }
        (context.forms.form(action, "card fields", &html! {
            (context.forms.input(action, &InputField::required("name", "Name")))
            (context.forms.input(action, &account))
            datalist id="accounts" { @for account in accounts { option value=(account.id) {} } }
            (term_inputs(context, action, None))
            (context.forms.seed(action))
            button { "Create the key" }
        }))
    };
    Ok(HtmlPage {
        title: "New key".to_owned(),
        content,
    })
}

/// Renders the form that changes a key.
pub(super) fn change_form(context: &PageContext<'_>, action: &str, key: &KeyDetails) -> Markup {
    let name = InputField {
        value: &key.name,
        ..InputField::required("name", "Name")
    };
    let content = html! {
        input type="hidden" name="version" value=(key.version);
        (context.forms.input(action, &name))
        (term_inputs(context, action, Some(key)))
        button { "Change the key" }
    };
    context.forms.form(action, "fields", &content)
}

/// Renders the input fields for a key's quota, models, expiry and rates.
fn term_inputs(context: &PageContext<'_>, action: &str, key: Option<&KeyDetails>) -> Markup {
    let forms = &context.forms;
    let text = |value: Option<String>| value.unwrap_or_default();
    let quota = text(key.and_then(|key| key.quota_usd).map(|quota| quota.to_string()));
    let expires = text(key.and_then(|key| key.expires_at).map(|end| end.to_string()));
    let now = key.map_or("", |key| key.reset.as_str());
    let reset = forms.entered_value(action, "reset").unwrap_or(now);
    let models = text(key.and_then(|key| key.models.as_ref()).map(|models| models.join("\n")));
    let limits = key.map_or([None; 3], |key| [key.rpm, key.tpm, key.concurrency]);
    html! {
        (forms.input(action, &InputField::text("quota_usd", "Quota in USD", &quota, "Unlimited")))
        label {
            span { "The quota resets" (forms.current_value(action, "reset", now)) }
            select name="reset" {
                @for (choice, name) in RESETS { option value=(choice.as_str()) selected[choice.as_str() == reset] { (name) } }
            }
            input type="hidden" name="was.reset" value=(now);
        }
        (forms.input(action, &InputField::text("expires_at", "Expires, a date or a time (UTC)", &expires, "Never, or such as 2027-01-31")))
        label {
            span { "Models, one per line" (forms.current_value(action, "models", &models)) }
            textarea name="models" rows="3" placeholder="All" { (forms.entered_value(action, "models").unwrap_or(&models)) }
            input type="hidden" name="was.models" value=(models);
        }
        (key_page::exhaustion_inputs(forms, action, key))
        (key_page::notice_input(forms, action, key.and_then(|key| key.notify_percent), "As set for the account"))
        (key_page::rate_inputs(forms, action, limits))
    }
}

/// Creates the key that a form describes. If the outcome is unknown after a failure, submitting the form again does not create a
/// second key.
pub(super) async fn create(context: &PageContext<'_>, form: &FormFields) -> Result<HtmlPage, AdminError> {
    let (on_exhausted, finish_factor) = key_page::changed_exhaustion(form)?;
    let [rpm, tpm, concurrency] = key_page::changed_rates(form)?;
    let key = CreateKey {
        expires_at: changed_value(form, "expires_at")?.flatten(),
        models: changed_value(form, "models")?.flatten(),
        operation_id: OperationId::parse(form.text("operation")),
        seed: form.non_empty(SEED).map(|seed| context.session.seed(seed)),
        quota_usd: changed_value(form, "quota_usd")?,
        reset: form.text("reset").parse().ok(),
        on_exhausted,
        finish_factor,
        notify_percent: changed_value(form, "notify_percent")?,
        rpm,
        tpm,
        concurrency,
        ..CreateKey::new(parse_field(form, "account")?, parse_field(form, "name")?)
    };
    let key = context.change(key).await?;
    Ok(key_text_page(context, &key, "The key is created").await)
}

/// Returns the update of a key. It contains only the fields that the user has changed in the form.
pub(super) fn read_update(id: KeyId, form: &FormFields) -> Result<UpdateKey, AdminError> {
    let (on_exhausted, finish_factor) = key_page::changed_exhaustion(form)?;
    let [rpm, tpm, concurrency] = key_page::changed_rates(form)?;
    // The names are parsed before they are compared, because browsers change line breaks in the text.
    let was: Option<ModelNames> = form.text("was.models").parse().ok();
    let models = changed_value(form, "models")?.filter(|models| *models != was);
    Ok(UpdateKey {
        name: is_changed(form, "name")
            .then(|| parse_field(form, "name"))
            .transpose()?,
        expires_at: changed_value(form, "expires_at")?,
        models,
        quota_usd: changed_value(form, "quota_usd")?,
        reset: form.text("reset").parse().ok().filter(|_| is_changed(form, "reset")),
        on_exhausted,
        finish_factor,
        notify_percent: changed_value(form, "notify_percent")?,
        rpm,
        tpm,
        concurrency,
        ..UpdateKey::new(id)
    })
}

/// Renders the page with a key's secret and how to use it.
pub(super) async fn key_text_page(context: &PageContext<'_>, key: &KeyDetails, title: &str) -> HtmlPage {
    // The key exists at this point, so its secret is displayed even if the models cannot be read.
    let listed = context.fetch(ListModels {}).await.unwrap_or_default();
    let content = html! {
        (key_page::section(key, &listed.models, &context.source.gateway()))
        p class="pages" { a href=(below("/keys", key.id.as_str())) { "The key's page" } " " a href="/keys" { "All keys" } }
    };
    HtmlPage {
        title: title.to_owned(),
        content,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns the body of the call that makes a form's changes.
    fn changed(form: &str) -> Value {
        let id = KeyId::parse("key_0000000000000001").unwrap();
        let update = read_update(id, &FormFields::read(form.as_bytes())).unwrap();
        let mut body = serde_json::to_value(update).unwrap();
        body.as_object_mut().unwrap().remove("id");
        body
    }

    #[test]
    fn only_what_differs_is_changed_and_what_is_taken_out_is_unlimited() {
        let same = "name=a&was.name=a&quota_usd=5&was.quota_usd=5&reset=daily&was.reset=daily&models=m%0D%0An&was.models=m%0An";
        assert_eq!(changed(same), json!({}));
        let other = "name=b&was.name=a&quota_usd=&was.quota_usd=5&reset=none&was.reset=daily&models=&was.models=m&rpm=7&was.rpm=";
        assert_eq!(
            changed(other),
            json!({ "name": "b", "quota_usd": null, "reset": "none", "models": null, "rpm": 7 })
        );
        assert_eq!(
            changed("models=a,+b%0Ac&was.models="),
            json!({ "models": ["a", "b", "c"] })
        );
        for (entered, was, chosen) in [
            ("80, 100", "", json!([80, 100])),
            ("none", "80", json!([])),
            ("", "80", Value::Null),
        ] {
            let form = format!("notify_percent={entered}&was.notify_percent={was}");
            assert_eq!(changed(&form), json!({ "notify_percent": chosen }));
        }
        for (form, change) in [
            ("on_exhausted=finish&was.on_exhausted=", json!({})),
            ("on_exhausted=cut&was.on_exhausted=", json!({ "on_exhausted": "cut" })),
            (
                "on_exhausted=finish&was.on_exhausted=cut",
                json!({ "on_exhausted": "finish" }),
            ),
            ("finish_factor=3&was.finish_factor=2", json!({ "finish_factor": 3 })),
            ("finish_factor=&was.finish_factor=2", json!({ "finish_factor": null })),
        ] {
            assert_eq!(changed(form), change, "{form}");
        }
        let id = KeyId::parse("key_0000000000000001").unwrap();
        for (form, said) in [
            ("tpm=many&was.tpm=", "tpm: give a whole number from 1 to 1000000000"),
            (
                "notify_percent=soon&was.notify_percent=",
                "notify_percent: give any of 50, 75, 80, 90, 95, 100",
            ),
        ] {
            let refused = read_update(id.clone(), &FormFields::read(form.as_bytes())).unwrap_err();
            assert!(refused.to_string().starts_with(said), "{refused}");
        }
    }
}
