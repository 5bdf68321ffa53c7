//! The forms of a page: each carries its operation, by which it counts once, and a token of its session.

use std::str::FromStr;

use http::StatusCode;
use maud::{Markup, html};

use super::{ask::Ask, fields::Fields, session::Session};
use crate::{
    api::{
        error::{AdminError, Code},
        names::Seed,
        values::Nullable,
    },
    domain::{ledger::OperationId, role::Role},
};

/// The field of a form's seed.
pub(super) const SEED: &str = "seed";

/// Makes the forms of one page.
#[derive(Debug)]
pub(super) struct Forms<'a, W> {
    session: &'a Session<W>,
    again: Option<&'a Again>,
    lacks: Lacks<W>,
}

/// The role that somebody would need to send a form to an action; `None` if they may.
pub(super) type Lacks<W> = fn(&W, &str) -> Option<Role>;

/// Said of a form whose page is out of date.
const CHANGED: &str = "This was changed after the page was opened. Nothing of yours was. What is by now stands beside its field: look \
     at it, and send the form again if it is to be changed all the same.";

/// A form that was refused and is shown again, with what was entered.
#[derive(Clone, Debug)]
pub(super) struct Again {
    /// Where it was sent.
    pub(super) action: String,
    /// What was entered.
    pub(super) fields: Fields,
    /// Why it was refused.
    pub(super) message: String,
    /// The status that says so.
    pub(super) status: StatusCode,
}

impl Again {
    /// A form that was refused.
    pub(super) fn new(ask: &Ask, fields: Fields, refused: &AdminError) -> Self {
        let (status, message) = match refused.code {
            Code::Changed => (StatusCode::CONFLICT, CHANGED.to_owned()),
            _ => (refused.status(), refused.to_string()),
        };
        Self {
            action: ask.path.clone(),
            fields,
            message,
            status,
        }
    }
}

impl<'a, W> Forms<'a, W> {
    pub(super) fn new(session: &'a Session<W>, again: Option<&'a Again>) -> Self {
        Self {
            session,
            again,
            lacks: |_, _| None,
        }
    }

    /// Shows those forms that somebody may not send, and says why they cannot.
    pub(super) fn with_roles(self, lacks: Lacks<W>) -> Self {
        Self { lacks, ..self }
    }

    /// A form that is sent to `action`. One that is shown again keeps its operation: nobody knows whether it was made.
    pub(super) fn form(&self, action: &str, class: &str, content: &Markup) -> Markup {
        let again = self.again_at(action);
        let operation = again.and_then(|again| OperationId::parse(again.fields.text("operation")));
        let operation = operation.unwrap_or_else(|| OperationId::generate(&mut rand::rng()));
        let token = self.session.token(operation.as_str(), action);
        html! {
            form method="post" action=(action) class=(class) autocomplete="off" {
                input type="hidden" name="operation" value=(operation);
                input type="hidden" name="token" value=(token);
                @if let Some(again) = again {
                    p class="refused" role="alert" { (again.message) }
                }
                @match (self.lacks)(&self.session.who, action) {
                    None => (content),
                    Some(role) => fieldset disabled { p class="lead" { "Only for the role " (role.as_str()) "." } (content) },
                }
            }
        }
    }

    /// The field by which a form gives a key the same text each time that it is sent.
    pub(super) fn seed(&self, action: &str) -> Markup {
        let again = self
            .again_at(action)
            .map(|again| again.fields.text(SEED))
            .filter(|seed| !seed.is_empty());
        let seed = again.map_or_else(|| Seed::generate(&mut rand::rng()).expose().to_owned(), str::to_owned);
        html! { input type="hidden" name=(SEED) value=(seed); }
    }

    /// A form that is one button.
    pub(super) fn button(&self, action: &str, name: &str, class: &str) -> Markup {
        self.form(action, "inline", &html! { button class=(class) { (name) } })
    }

    /// A field of one line with its label. `value` is what it has as it is; the form tells it beside what is entered.
    pub(super) fn input(&self, action: &str, field: &Field<'_>) -> Markup {
        let entered = self.entered(action, field.name);
        html! {
            label {
                span { (field.label) (self.now(action, field.name, field.value)) }
                input type=(field.kind) name=(field.name) value=(entered.unwrap_or(field.value)) required[field.required]
                    placeholder=[(!field.without.is_empty()).then_some(field.without)] list=[field.choices];
                input type="hidden" name=(was(field.name)) value=(field.value);
            }
        }
    }

    /// What was entered in a field of a form that is shown again. A field that was left as it was shows what it has by now: sent
    /// again it undoes nothing.
    pub(super) fn entered(&self, action: &str, name: &str) -> Option<&str> {
        let again = self.again_at(action)?;
        is_changed(&again.fields, name).then(|| again.fields.text(name))
    }

    /// What a field of a form that is shown again has by now, if that is not what the form was made with.
    pub(super) fn now(&self, action: &str, name: &str, value: &str) -> Markup {
        let was = self.again_at(action).map(|again| again.fields.text(&was(name)));
        html! {
            @if was.is_some_and(|was| was.replace('\r', "") != value.trim()) {
                " " strong { "now: " @if value.is_empty() { "nothing" } @else { (value) } }
            }
        }
    }

    /// Why a form was refused, for a page that does not have that form any more.
    pub(super) fn refusal(&self) -> Markup {
        html! {
            @if let Some(again) = self.again { p class="card refused" role="alert" { (again.message) } }
        }
    }

    fn again_at(&self, action: &str) -> Option<&Again> {
        self.again.filter(|again| again.action == action)
    }
}

/// A field of one line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    /// Its name in the form.
    pub(super) name: &'a str,
    /// What people call it.
    pub(super) label: &'a str,
    /// The browser's kind of input.
    pub(super) kind: &'a str,
    /// What it has as it is.
    pub(super) value: &'a str,
    /// What it means to leave it empty.
    pub(super) without: &'a str,
    /// It must not be left empty.
    pub(super) required: bool,
    /// The id of a list of choices.
    pub(super) choices: Option<&'a str>,
}

impl<'a> Field<'a> {
    /// A text that may be left empty.
    pub(super) const fn text(name: &'a str, label: &'a str, value: &'a str, without: &'a str) -> Self {
        Self {
            name,
            label,
            kind: "text",
            value,
            without,
            required: false,
            choices: None,
        }
    }

    /// A text that has to be there.
    pub(super) const fn needed(name: &'a str, label: &'a str) -> Self {
        Self {
            required: true,
            ..Self::text(name, label, "", "")
        }
    }
}

/// What is said of a form that is not genuine.
pub(super) const NOT_GENUINE: &str = "This form does not come from an open page of this session. Nothing was changed. Open the page \
     anew and send its form.";

/// Whether a form comes from a page of the same site, and was made for this session, its operation and its place.
pub(super) fn is_genuine<W>(session: &Session<W>, ask: &Ask, form: &Fields) -> bool {
    let operation = form.text("operation");
    ask.is_own()
        && OperationId::parse(operation).is_some()
        && session.is_token(form.text("token"), operation, &ask.path)
}

/// Whether what is entered differs from what the form was made with.
pub(super) fn is_changed(fields: &Fields, name: &str) -> bool {
    fields.text(name) != fields.text(&was(name))
}

/// What a field was changed to: nothing, if nothing is entered.
///
/// # Errors
/// The text that is entered is no such value.
pub(super) fn changed<T: FromStr<Err: ToString>>(form: &Fields, name: &str) -> Result<Nullable<T>, AdminError> {
    if !is_changed(form, name) {
        return Ok(None);
    }
    let value = form.given(name).map(str::parse::<T>).transpose();
    value
        .map(Some)
        .map_err(|why| AdminError::of_field(name, why.to_string()))
}

/// What is entered in a field.
///
/// # Errors
/// It is no such value.
pub(super) fn read<T: FromStr<Err: ToString>>(form: &Fields, name: &str) -> Result<T, AdminError> {
    let value = form.text(name).parse::<T>();
    value.map_err(|why| AdminError::of_field(name, why.to_string()))
}

/// The hidden field that tells what a field had when its form was made.
fn was(name: &str) -> String {
    format!("was.{name}")
}
