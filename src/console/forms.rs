//! Renders forms and checks submitted forms. Each form contains an operation id and a token. Because of the operation id, the
//! form takes effect only once. The token proves that the form was rendered for the session.

use std::str::FromStr;

use http::StatusCode;
use maud::{Markup, html};

use super::session::BrowserSession;
use crate::console::request::{FormFields, PageRequest};
use crate::{
    api::{
        AdminError, AdminErrorCode,
        values::{Nullable, Seed},
    },
    domain::{ledger::OperationId, sign_in::Role},
};

/// The name of the form field that contains a seed, from which a key's secret is derived.
pub(super) const SEED: &str = "seed";

/// Renders the forms of one page.
#[derive(Debug)]
pub(super) struct Forms<'a, W> {
    session: &'a BrowserSession<W>,
    again: Option<&'a RefusedForm>,
    lacks: RoleCheck<W>,
}

/// A function that returns the role that is required to submit a form to a path, if the user does not have this role. `None` if
/// the user can submit the form.
pub(super) type RoleCheck<W> = fn(&W, &str) -> Option<Role>;

/// The message for a form whose object has changed since the page was rendered.
const CHANGED: &str = "This was changed after you opened the page, so your change was not made. The current values are shown beside their \
     fields: check them, and send the form again if you still want your change.";

/// A form that was refused and is rendered again with the submitted values.
#[derive(Clone, Debug)]
pub(super) struct RefusedForm {
    /// The path to which the form was submitted.
    pub(super) action: String,
    /// The submitted values.
    pub(super) fields: FormFields,
    /// The reason why the form was refused.
    pub(super) message: String,
    /// The HTTP status of the refusal.
    pub(super) status: StatusCode,
}

impl RefusedForm {
    /// Creates the refused form of a request, with its message and status.
    pub(super) fn new(request: &PageRequest, fields: FormFields, refused: &AdminError) -> Self {
        let (status, message) = match refused.code {
            AdminErrorCode::Changed => (StatusCode::CONFLICT, CHANGED.to_owned()),
            _ => (refused.status(), refused.to_string()),
        };
        Self {
            action: request.path.clone(),
            fields,
            message,
            status,
        }
    }
}

impl<'a, W> Forms<'a, W> {
    pub(super) fn new(session: &'a BrowserSession<W>, again: Option<&'a RefusedForm>) -> Self {
        Self {
            session,
            again,
            lacks: |_, _| None,
        }
    }

    /// Disables forms that the user's role does not permit. A disabled form displays the role that is needed.
    pub(super) fn with_roles(self, lacks: RoleCheck<W>) -> Self {
        Self { lacks, ..self }
    }

    /// Renders a form that is submitted to `action`. A form that is rendered again has the same operation id as before, because
    /// the change may already have been made.
    pub(super) fn form(&self, action: &str, class: &str, content: &Markup) -> Markup {
        let again = self.refused_at(action);
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
                    Some(role) => fieldset disabled { p class="lead" { "This form needs the role " (role.as_str()) "." } (content) },
                }
            }
        }
    }

    /// Renders the hidden field with the seed. With the same seed, a key gets the same secret each time the form is submitted.
    pub(super) fn seed(&self, action: &str) -> Markup {
        let again = self
            .refused_at(action)
            .map(|again| again.fields.text(SEED))
            .filter(|seed| !seed.is_empty());
        let seed = again.map_or_else(|| Seed::generate(&mut rand::rng()).expose().to_owned(), str::to_owned);
        html! { input type="hidden" name=(SEED) value=(seed); }
    }

    /// Renders a form that consists of one button.
    pub(super) fn button(&self, action: &str, name: &str, class: &str) -> Markup {
        self.form(action, "inline", &html! { button class=(class) { (name) } })
    }

    /// Renders a labelled one-line field. A hidden field contains the original value, so that a change of the value is
    /// recognised.
    pub(super) fn input(&self, action: &str, field: &InputField<'_>) -> Markup {
        let entered = self.entered_value(action, field.name);
        html! {
            label {
                span { (field.label) (self.current_value(action, field.name, field.value)) }
                input type=(field.kind) name=(field.name) value=(entered.unwrap_or(field.value)) required[field.required]
                    placeholder=[(!field.without.is_empty()).then_some(field.without)] list=[field.choices];
                input type="hidden" name=(original_field(field.name)) value=(field.value);
            }
        }
    }

    /// Returns the value that was entered in a field of a form that is rendered again. `None` if the user had not changed the
    /// field. The field then displays the current value, so submitting the form again does not undo a change that was made
    /// elsewhere.
    pub(super) fn entered_value(&self, action: &str, name: &str) -> Option<&str> {
        let again = self.refused_at(action)?;
        is_changed(&again.fields, name).then(|| again.fields.text(name))
    }

    /// Renders the current value below a field of a form that is rendered again, if the value has changed since the form was
    /// first rendered.
    pub(super) fn current_value(&self, action: &str, name: &str, value: &str) -> Markup {
        let was = self
            .refused_at(action)
            .map(|again| again.fields.text(&original_field(name)));
        html! {
            @if was.is_some_and(|was| was.replace('\r', "") != value.trim()) {
                " " strong { "now: " @if value.is_empty() { "nothing" } @else { (value) } }
            }
        }
    }

    /// Renders the message of a refused form, for a page that no longer has the form.
    pub(super) fn refusal(&self) -> Markup {
        html! {
            @if let Some(again) = self.again { p class="card refused" role="alert" { (again.message) } }
        }
    }

    fn refused_at(&self, action: &str) -> Option<&RefusedForm> {
        self.again.filter(|again| again.action == action)
    }
}

/// A form field of one line.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputField<'a> {
    /// The name of the field in the form.
    pub(super) name: &'a str,
    /// The label of the field.
    pub(super) label: &'a str,
    /// The HTML input type of the field.
    pub(super) kind: &'a str,
    /// The current value of the field.
    pub(super) value: &'a str,
    /// The placeholder of the field, which says what an empty field means.
    pub(super) without: &'a str,
    /// Whether the field must be filled in.
    pub(super) required: bool,
    /// The id of a list of choices for the field. `None` if the field has no list.
    pub(super) choices: Option<&'a str>,
}

impl<'a> InputField<'a> {
    /// Creates a text field that can be left empty.
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

    /// Creates a text field that must be filled in.
    pub(super) const fn required(name: &'a str, label: &'a str) -> Self {
        Self {
            required: true,
            ..Self::text(name, label, "", "")
        }
    }
}

/// The message for a form that was not rendered for this session.
pub(super) const NOT_GENUINE: &str = "This form does not come from a page of this session. Nothing was changed. Open the page \
     again and send its form.";

/// Returns whether a form was submitted by a page of the same site and was rendered for this session, operation and path.
pub(super) fn is_genuine<W>(session: &BrowserSession<W>, request: &PageRequest, form: &FormFields) -> bool {
    let operation = form.text("operation");
    request.is_same_origin()
        && OperationId::parse(operation).is_some()
        && session.is_valid_token(form.text("token"), operation, &request.path)
}

/// Returns whether the value of a field differs from the value with which the form was rendered.
pub(super) fn is_changed(fields: &FormFields, name: &str) -> bool {
    fields.text(name) != fields.text(&original_field(name))
}

/// Returns the new value of a field: `None` if it was not changed, `Some(None)` if it was emptied.
///
/// # Errors
/// The field's value cannot be parsed as this type.
pub(super) fn changed_value<T: FromStr<Err: ToString>>(
    form: &FormFields,
    name: &str,
) -> Result<Nullable<T>, AdminError> {
    if !is_changed(form, name) {
        return Ok(None);
    }
    let value = form.non_empty(name).map(str::parse::<T>).transpose();
    value
        .map(Some)
        .map_err(|why| AdminError::of_field(name, why.to_string()))
}

/// Parses the value of a field.
///
/// # Errors
/// The field's value cannot be parsed as this type.
pub(super) fn parse_field<T: FromStr<Err: ToString>>(form: &FormFields, name: &str) -> Result<T, AdminError> {
    let value = form.text(name).parse::<T>();
    value.map_err(|why| AdminError::of_field(name, why.to_string()))
}

/// Returns the name of the hidden field that contains the original value of the field `name`.
fn original_field(name: &str) -> String {
    format!("was.{name}")
}
