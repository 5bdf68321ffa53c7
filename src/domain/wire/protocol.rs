//! The three wire protocols: what their answers report, and the shapes of lists and errors.

mod dialect;
mod error_form;
mod facts;
mod failure;
pub(in crate::domain) mod gemini;
mod made;
pub(in crate::domain) mod messages;
pub(crate) mod model_list;
pub(crate) mod model_page;
pub(crate) mod observer;
pub(crate) mod provider_error;
pub(in crate::domain) mod responses;
mod spoken;
mod varying;

pub use crate::domain::wire::Protocol;
pub(crate) use error_form::ErrorForm;
pub use failure::Break;
pub(crate) use failure::InBandError;
pub(crate) use made::CreatedState;
pub(crate) use model_list::{ListedModel, model_entry, models_list};
pub(crate) use observer::MessageBoundaries;
pub(crate) use observer::framing_from_content_type;
pub use observer::{AnswerFraming, AnswerReport, Observer};
