//! The settings of the bucket of the log's files.

use std::time::Duration;

use crate::domain::keys::secret::Secret;

/// `[log.files.bucket]`, with secrets and files read.
#[derive(Clone, Debug)]
pub(crate) struct BucketSettings {
    /// The bucket's name.
    pub name: String,
    /// The prefix of all objects' names; empty, or it ends with `/`.
    pub prefix: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The server, `http://` or `https://`.
    pub endpoint: String,
    /// Whether the bucket's name is in the path of URLs, and not in their host.
    pub path_style: bool,
    pub access_key_id: Secret,
    pub secret_access_key: Secret,
    /// Authorities trusted in place of the platform's, PEM.
    pub ca: Option<Vec<u8>>,
    /// The timeout for a connection.
    pub connect: Duration,
    /// The timeout for a response, all attempts together.
    pub answer: Duration,
    /// The same for putting a file; it grows by one second per MiB.
    pub write: Duration,
}
