//! The admin API as types: each question, its answer and its HTTP method and path. Client and server share them, so that no field
//! name is written as text.

pub(crate) mod accounts;
pub(crate) mod error;
pub(crate) mod keys;
pub(crate) mod log;
pub(crate) mod names;
pub(crate) mod node;
pub(crate) mod providers;
mod schema;
pub(crate) mod sessions;
pub(crate) mod usage;
pub(crate) mod values;
pub(crate) mod wire;

use http::Method;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::domain::{role::Role, version::Version};

/// A question of the admin API. Its fields are the path's `{segments}`; the others are in the query of a GET or DELETE, and in
/// the JSON body of any other method.
pub(crate) trait AdminQuestion: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The answer.
    type Answer: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;
    /// The HTTP method. With GET, the question changes nothing, and a recent answer may be reused.
    const METHOD: Method;
    /// The path, such as `/v1/keys/{id}`.
    const PATH: &'static str;
    /// The lowest role of a console session that may ask it.
    const ROLE: Role;
    /// The HTTP status of the answer.
    const STATUS: u16 = 200;
    /// The media types of the answer. An answer other than JSON is sent in pieces, and its [`Answer`](Self::Answer) is a text.
    const MEDIA: &'static [&'static str] = &["application/json"];
    /// Whether it may take longer than a connection's normal lifetime.
    const IS_LONG: bool = false;

    /// The version of the object in the answer, for `ETag`.
    fn version(_: &Self::Answer) -> Option<Version> {
        None
    }
}

/// Implements [`Question`] for a type: `question!(ShowKey => Key: GET "/v1/keys/{id}", Viewer)`. Items that differ from the
/// trait's defaults may follow.
macro_rules! question {
    ($question:ty => $answer:ty: $method:ident $path:literal, $role:ident $(; $($more:tt)*)?) => {
        impl $crate::api::AdminQuestion for $question {
            type Answer = $answer;
            const METHOD: http::Method = http::Method::$method;
            const PATH: &'static str = $path;
            const ROLE: $crate::domain::role::Role = $crate::domain::role::Role::$role;
            $($($more)*)?
        }
    };
}
pub(crate) use question;
