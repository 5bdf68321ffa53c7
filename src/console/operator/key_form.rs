//! The form of a key: a new one, and what can be changed of one there is.

use http::Method;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::made_key;
use crate::{
    api::error::AdminError,
    console::{
        desk::Desk,
        fields::Fields,
        forms::{Field, is_changed},
        frame::Page,
        limits, view,
    },
};

/// The most accounts that are offered.
const ACCOUNTS_MAX: usize = 200;
const RESETS: [(&str, &str); 4] = [
    ("none", "Never"),
    ("daily", "Every day"),
    ("weekly", "Every Monday"),
    ("monthly", "On the first of every month"),
];

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let accounts = desk.read(&format!("/v1/accounts?limit={ACCOUNTS_MAX}")).await?;
    let accounts = view::list(&accounts, "accounts");
    let action = "/keys";
    let only = match accounts {
        [only] => view::text(only, "id"),
        _ => "",
    };
    let account = Field {
        value: desk.query.given("account").unwrap_or(only),
        choices: Some("accounts"),
        ..Field::needed("account", "Account that pays")
    };
    let content = html! {
        @if accounts.is_empty() {
            p class="card" role="alert" { "A key needs an account that pays. " a href="/accounts" { "Make one first." } }
        }
        (desk.forms.form(action, "card fields", &html! {
            (desk.forms.input(action, &Field::needed("name", "Name")))
            (desk.forms.input(action, &account))
            datalist id="accounts" { @for account in accounts { option value=(view::text(account, "id")) {} } }
            (terms(desk, action, &Value::Null))
            button { "Create the key" }
        }))
    };
    Ok(Page {
        title: "New key".to_owned(),
        content,
    })
}

/// The form that changes a key.
pub(super) fn change(desk: &Desk<'_>, action: &str, key: &Value) -> Markup {
    let name = Field {
        value: view::text(key, "name"),
        ..Field::needed("name", "Name")
    };
    let content = html! {
        input type="hidden" name="version" value=(view::text(key, "version"));
        (desk.forms.input(action, &name))
        (terms(desk, action, key))
        button { "Change the key" }
    };
    desk.forms.form(action, "fields", &content)
}

/// What a key may spend, on what, until when and how fast.
fn terms(desk: &Desk<'_>, action: &str, key: &Value) -> Markup {
    let forms = &desk.forms;
    let quota = view::plain(key, "quota_usd");
    let expires = view::plain(key, "expires_at");
    let reset = forms.entered(action, "reset").unwrap_or(view::text(key, "reset"));
    let models: Vec<&str> = view::list(key, "models").iter().filter_map(Value::as_str).collect();
    let models = models.join("\n");
    html! {
        (forms.input(action, &Field::text("quota_usd", "Quota in USD", &quota, "Unlimited")))
        label {
            span { "The quota begins anew" (forms.now(action, "reset", view::text(key, "reset"))) }
            select name="reset" {
                @for (value, name) in RESETS { option value=(value) selected[value == reset] { (name) } }
            }
            input type="hidden" name="was.reset" value=(view::text(key, "reset"));
        }
        (forms.input(action, &Field::text("expires_at", "Expires, a date or a time (UTC)", &expires, "Never, or such as 2027-01-31")))
        label {
            span { "Models, a line each" (forms.now(action, "models", &models)) }
            textarea name="models" rows="3" placeholder="All" { (forms.entered(action, "models").unwrap_or(&models)) }
            input type="hidden" name="was.models" value=(models);
        }
        (limits::exhausted(forms, action, key))
        (limits::notify(forms, action, key, "As the account says"))
        (limits::rates(forms, action, key))
    }
}

pub(super) async fn create(desk: &Desk<'_>, form: &Fields) -> Result<Page, AdminError> {
    let mut body = changes(form)?;
    body.insert("account".to_owned(), json!(form.text("account")));
    body.insert("name".to_owned(), json!(form.text("name")));
    // Sent again after a failure of which nobody knows what it has done, it makes no second key.
    body.insert("operation_id".to_owned(), json!(form.text("operation")));
    // A key that never begins anew is what it is without being asked.
    if form.text("reset") == "none" {
        body.remove("reset");
    }
    let key = desk.change(Method::POST, "/v1/keys", &Value::Object(body)).await?;
    Ok(made_key::page(desk, &key, "The key is made").await)
}

/// What is entered and differs from what the form was made with.
pub(super) fn changes(form: &Fields) -> Result<Map<String, Value>, AdminError> {
    let mut body = Map::new();
    if is_changed(form, "name") {
        body.insert("name".to_owned(), json!(form.text("name")));
    }
    for field in ["quota_usd", "expires_at"] {
        if is_changed(form, field) {
            body.insert(field.to_owned(), json!(form.given(field)));
        }
    }
    if is_changed(form, "reset") {
        body.insert("reset".to_owned(), json!(form.text("reset")));
    }
    let (models, before) = (models(form.text("models")), models(form.text("was.models")));
    if models != before {
        body.insert("models".to_owned(), json!(models));
    }
    limits::changed_exhausted(form, &mut body)?;
    limits::changed_notify(form, &mut body);
    limits::changed_rates(form, &mut body)?;
    Ok(body)
}

/// The names in a text, parted by lines, commas or spaces; none for all models.
fn models(text: &str) -> Option<Vec<&str>> {
    let names = text.split(|letter: char| letter.is_whitespace() || letter == ',');
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    (!names.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(form: &str) -> Value {
        Value::Object(changes(&Fields::read(form.as_bytes())).unwrap())
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
            ("soon", "80", json!(["soon"])),
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
        let refused = changes(&Fields::read(b"tpm=many&was.tpm=")).unwrap_err();
        assert_eq!(
            refused.message,
            "Tokens per minute: a whole number, or nothing for no limit"
        );
    }
}
