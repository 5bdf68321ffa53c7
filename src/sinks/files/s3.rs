//! Buckets of S3-compatible servers: signed requests, and reading of objects.

mod answer;
mod call;
mod error;
mod object;
mod requests;
mod settings;

pub(super) use error::BucketRequestError;
pub(super) use object::{BucketObject, ObjectReader, object_error};
pub(super) use requests::BucketClient;
pub(crate) use requests::BucketError;
pub(crate) use settings::BucketSettings;
