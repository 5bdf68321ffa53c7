//! Buckets of S3-compatible servers: signed requests to one, and objects of it that are read.

mod answer;
mod call;
mod error;
mod object;
mod requests;
mod settings;

pub(super) use error::RequestError;
pub(super) use object::{Object, ObjectReader, failed};
pub(crate) use requests::BucketError;
pub(super) use requests::Requests;
pub(crate) use settings::BucketSettings;
