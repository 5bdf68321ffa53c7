//! The form of a key: a new one, and what can be changed of one there is.

use maud::{Markup, html};

use super::made_key;
use crate::{
    api::{
        accounts::ListAccounts,
        error::AdminError,
        keys::{CreateKey, Key, UpdateKey},
        names::ModelNames,
    },
    console::{
        desk::Desk,
        fields::Fields,
        forms::{Field, SEED, changed, is_changed, read},
        frame::Page,
        limits,
    },
    domain::{
        keys::key::KeyId,
        ledger::{OperationId, Reset},
    },
};

/// The most accounts that are offered.
const ACCOUNTS_MAX: u64 = 200;
const RESETS: [(Reset, &str); 4] = [
    (Reset::None, "Never"),
    (Reset::Daily, "Every day"),
    (Reset::Weekly, "Every Monday"),
    (Reset::Monthly, "On the first of every month"),
];

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let page = ListAccounts {
        after: None,
        limit: Some(ACCOUNTS_MAX),
    };
    let accounts = &desk.look(page).await?.accounts;
    let action = "/keys";
    let only = match &accounts[..] {
        [only] => only.id.as_str(),
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
            datalist id="accounts" { @for account in accounts { option value=(account.id) {} } }
            (terms(desk, action, None))
            (desk.forms.seed(action))
            button { "Create the key" }
        }))
    };
    Ok(Page {
        title: "New key".to_owned(),
        content,
    })
}

/// The form that changes a key.
pub(super) fn change(desk: &Desk<'_>, action: &str, key: &Key) -> Markup {
    let name = Field {
        value: &key.name,
        ..Field::needed("name", "Name")
    };
    let content = html! {
        input type="hidden" name="version" value=(key.version);
        (desk.forms.input(action, &name))
        (terms(desk, action, Some(key)))
        button { "Change the key" }
    };
    desk.forms.form(action, "fields", &content)
}

/// What a key may spend, on what, until when and how fast.
fn terms(desk: &Desk<'_>, action: &str, key: Option<&Key>) -> Markup {
    let forms = &desk.forms;
    let text = |value: Option<String>| value.unwrap_or_default();
    let quota = text(key.and_then(|key| key.quota_usd).map(|quota| quota.to_string()));
    let expires = text(key.and_then(|key| key.expires_at).map(|end| end.to_string()));
    let now = key.map_or("", |key| key.reset.as_str());
    let reset = forms.entered(action, "reset").unwrap_or(now);
    let models = text(key.and_then(|key| key.models.as_ref()).map(|models| models.join("\n")));
    let limits = key.map_or([None; 3], |key| [key.rpm, key.tpm, key.concurrency]);
    html! {
        (forms.input(action, &Field::text("quota_usd", "Quota in USD", &quota, "Unlimited")))
        label {
            span { "The quota begins anew" (forms.now(action, "reset", now)) }
            select name="reset" {
                @for (choice, name) in RESETS { option value=(choice.as_str()) selected[choice.as_str() == reset] { (name) } }
            }
            input type="hidden" name="was.reset" value=(now);
        }
        (forms.input(action, &Field::text("expires_at", "Expires, a date or a time (UTC)", &expires, "Never, or such as 2027-01-31")))
        label {
            span { "Models, a line each" (forms.now(action, "models", &models)) }
            textarea name="models" rows="3" placeholder="All" { (forms.entered(action, "models").unwrap_or(&models)) }
            input type="hidden" name="was.models" value=(models);
        }
        (limits::exhausted(forms, action, key))
        (limits::notify(forms, action, key.and_then(|key| key.notify_percent), "As the account says"))
        (limits::rates(forms, action, limits))
    }
}

/// The key of the form that makes one. Sent again after a failure of which nobody knows what it has done, it makes no second key.
pub(super) async fn create(desk: &Desk<'_>, form: &Fields) -> Result<Page, AdminError> {
    let (on_exhausted, finish_factor) = limits::changed_exhausted(form)?;
    let [rpm, tpm, concurrency] = limits::changed_rates(form)?;
    let key = CreateKey {
        expires_at: changed(form, "expires_at")?.flatten(),
        models: changed(form, "models")?.flatten(),
        operation_id: OperationId::parse(form.text("operation")),
        seed: form.given(SEED).map(|seed| desk.session.seed(seed)),
        quota_usd: changed(form, "quota_usd")?,
        reset: form.text("reset").parse().ok(),
        on_exhausted,
        finish_factor,
        notify_percent: changed(form, "notify_percent")?,
        rpm,
        tpm,
        concurrency,
        ..CreateKey::new(read(form, "account")?, read(form, "name")?)
    };
    let key = desk.ask(key).await?;
    Ok(made_key::page(desk, &key, "The key is made").await)
}

/// The update of what is entered and differs from what the form was made with.
pub(super) fn update(id: KeyId, form: &Fields) -> Result<UpdateKey, AdminError> {
    let (on_exhausted, finish_factor) = limits::changed_exhausted(form)?;
    let [rpm, tpm, concurrency] = limits::changed_rates(form)?;
    // Browsers part lines in their own way.
    let was: Option<ModelNames> = form.text("was.models").parse().ok();
    let models = changed(form, "models")?.filter(|models| *models != was);
    Ok(UpdateKey {
        name: is_changed(form, "name").then(|| read(form, "name")).transpose()?,
        expires_at: changed(form, "expires_at")?,
        models,
        quota_usd: changed(form, "quota_usd")?,
        reset: form.text("reset").parse().ok().filter(|_| is_changed(form, "reset")),
        on_exhausted,
        finish_factor,
        notify_percent: changed(form, "notify_percent")?,
        rpm,
        tpm,
        concurrency,
        ..UpdateKey::new(id)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What a form changes, as the body that asks for it.
    fn changed(form: &str) -> Value {
        let id = KeyId::parse("key_0000000000000001").unwrap();
        let update = update(id, &Fields::read(form.as_bytes())).unwrap();
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
            ("tpm=many&was.tpm=", "tpm: a whole number from 1 to 1000000000"),
            (
                "notify_percent=soon&was.notify_percent=",
                "notify_percent: some of 50, 75, 80, 90, 95, 100",
            ),
        ] {
            let refused = update(id.clone(), &Fields::read(form.as_bytes())).unwrap_err();
            assert!(refused.to_string().starts_with(said), "{refused}");
        }
    }
}
