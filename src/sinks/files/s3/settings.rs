//! How to reach the bucket of the log's files.

use std::time::Duration;

use crate::domain::keys::secret::Secret;

/// `[log.files.bucket]`, with secrets and files read.
#[derive(Clone, Debug)]
pub(crate) struct BucketSettings {
    /// The bucket's name.
    pub name: String,
    /// What the names of all objects begin with; empty, or it ends with `/`.
    pub prefix: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The server, `http://` or `https://`.
    pub endpoint: String,
    /// Whether the bucket's name is in the path of addresses, and not in their host.
    pub path_style: bool,
    pub access_key_id: Secret,
    pub secret_access_key: Secret,
    /// Authorities trusted in place of the platform's, PEM.
    pub ca: Option<Vec<u8>>,
    /// Longest wait for a connection.
    pub connect: Duration,
    /// Longest wait for an answer, all attempts together.
    pub answer: Duration,
    /// The same for an answer to a file that is put there; and a second more for each MiB of it.
    pub write: Duration,
}
