//! The three wire protocols and their shapes.

mod dialect;
mod error_form;
mod facts;
mod failure;
pub(in crate::domain) mod gemini;
mod made;
pub(in crate::domain) mod messages;
pub mod model_list;
pub mod model_page;
pub mod observer;
pub mod provider_error;
pub(in crate::domain) mod responses;
mod spoken;

pub use crate::domain::wire::Protocol;
pub use error_form::ErrorForm;
pub use failure::{FailureKind, InBandError, MidStreamFailure};
pub use made::Made;
pub use model_list::{ListedModel, model_entry, models_list};
pub use observer::{Framing, Observed, Observer, framing_of};
