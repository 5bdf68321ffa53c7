//! The admin API as types: each question, its answer, and its place in HTTP. Whoever asks and whoever answers share them, so that
//! no field is named in a text.

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

/// A question of the admin API. Its fields are those of the path's `{segments}`, and beside them of the query of a GET or
/// DELETE, or else of the JSON body.
pub(crate) trait Question: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The answer.
    type Answer: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;
    /// GET: it changes nothing, and an answer of a moment ago is as good.
    const METHOD: Method;
    /// Where it is asked, such as `/v1/keys/{id}`.
    const PATH: &'static str;
    /// The least role that a session of the console needs for it.
    const ROLE: Role;
    /// The HTTP status of the answer.
    const STATUS: u16 = 200;
    /// The media types of the answer. One that is no JSON is sent in pieces; its [`Answer`](Self::Answer) is a text.
    const MEDIA: &'static [&'static str] = &["application/json"];
    /// Whether it may take longer than a connection usually lasts.
    const IS_LONG: bool = false;

    /// The version of the thing that the answer shows, for `ETag`.
    fn version(_: &Self::Answer) -> Option<Version> {
        None
    }
}

/// Has a type be a [`Question`]: `question!(ShowKey => Key: GET "/v1/keys/{id}", Viewer)`. Behind it may stand what differs from
/// the trait's defaults.
macro_rules! question {
    ($question:ty => $answer:ty: $method:ident $path:literal, $role:ident $(; $($more:tt)*)?) => {
        impl $crate::api::Question for $question {
            type Answer = $answer;
            const METHOD: http::Method = http::Method::$method;
            const PATH: &'static str = $path;
            const ROLE: $crate::domain::role::Role = $crate::domain::role::Role::$role;
            $($($more)*)?
        }
    };
}
pub(crate) use question;
