//! The kinds of state that a provider stores, and the keys under which weir records the owner of each state. For the provider,
//! the operator's account owns all state; for weir, one of weir's own accounts owns each state.

use serde::{Deserialize, Serialize};

use sha2::{Digest, Sha256};

/// The length of the digest of a state's identifier or key, in bytes. It is long enough to make collisions and guesses
/// infeasible.
const DIGEST_BYTES: usize = 16;

/// A kind of state at a provider. The kinds are distinguished by the part of a request that refers to the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// A response that the request continues.
    Response,
    /// A response whose prompt is compared with the request's prompt.
    ComparedResponse,
    Conversation,
    /// An item of an earlier answer.
    Item,
    /// An item of an earlier answer that the client sends with a summary of its content. It refers to state only if the provider
    /// stores answers; otherwise it is plain content.
    SummarizedItem,
    /// A prompt that is stored as a template.
    Prompt,
    /// The message that a thread continues.
    Thread,
    /// A message whose prompt is compared with the request's prompt.
    ComparedMessage,
    /// An environment in which a provider runs code.
    Container,
    File,
    /// A file in the provider's own store. The request names the file by its address.
    FileUri,
    /// A store of files that can be searched, in the Responses protocol.
    VectorStore,
    /// A store of files that can be searched, in the Gemini-style protocol.
    FileSearchStore,
    /// A tunnel to the operator's own servers.
    Tunnel,
    /// A skill of the operator.
    Skill,
    /// The beginning of a prompt, which the provider has cached and bills at a lower price.
    CachedContent,
}

impl StateKind {
    /// Returns the field of the request that refers to the state, for messages to the client.
    pub const fn field_path(self) -> &'static str {
        match self {
            Self::Response => "previous_response_id",
            Self::ComparedResponse => "prompt_cache_options.comparison_response_id",
            Self::Conversation => "conversation",
            Self::Item | Self::SummarizedItem => "input",
            Self::Prompt => "prompt.id",
            Self::Thread => "thread.previous_message_id",
            Self::ComparedMessage => "diagnostics.previous_message_id",
            Self::Container => "container",
            Self::File => "file_id",
            Self::FileUri => "fileData.fileUri",
            Self::VectorStore => "vector_store_ids",
            Self::FileSearchStore => "fileSearch.fileSearchStoreNames",
            Self::Tunnel => "tunnel_id",
            Self::Skill => "skill_id",
            Self::CachedContent => "cachedContent",
        }
    }

    /// Returns the noun for the state, for messages to the client.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Response | Self::ComparedResponse => "response",
            Self::Conversation => "conversation",
            Self::Item | Self::SummarizedItem => "item",
            Self::Prompt => "prompt",
            Self::Thread | Self::ComparedMessage => "message",
            Self::Container => "container",
            Self::File | Self::FileUri => "file",
            Self::VectorStore => "vector store",
            Self::FileSearchStore => "file search store",
            Self::Tunnel => "tunnel",
            Self::Skill => "skill",
            Self::CachedContent => "cached content",
        }
    }

    /// Whether the request continues the state. If so, only the provider and credential that have the state can serve the
    /// request, even if weir has not recorded which ones these are.
    pub const fn is_continued(self) -> bool {
        matches!(
            self,
            Self::Response | Self::Conversation | Self::Thread | Self::CachedContent
        )
    }
}

/// The digest of the identifier of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateId([u8; DIGEST_BYTES]);

impl StateId {
    /// Computes the digest of the identifier `id`.
    pub fn new(id: &str) -> Self {
        Self(truncated_digest(Sha256::new().chain_update("state").chain_update(id)))
    }
}

/// The key of a state that one account of weir owns: a digest of the account's name and the state's identifier. The key can be
/// computed only with both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct StateKey(pub [u8; DIGEST_BYTES]);

impl StateKey {
    /// Computes the key of the state `id` that `account` owns.
    pub(crate) fn new(account: &str, id: StateId) -> Self {
        Self(truncated_digest(Sha256::new().chain_update(id.0).chain_update(account)))
    }

    /// Returns the key as 32 hexadecimal digits.
    pub(crate) fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the first 64 bits of the key as a number.
    pub(crate) fn number(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

fn truncated_digest(hash: Sha256) -> [u8; DIGEST_BYTES] {
    let mut bytes = [0; DIGEST_BYTES];
    for (byte, of_hash) in bytes.iter_mut().zip(hash.finalize()) {
        *byte = of_hash;
    }
    bytes
}

/// Whether a file address in a Gemini-style request points to a provider's own store, or to a file that can be read only with the
/// operator's credential. False for addresses that everybody can read, such as web pages and signed addresses of cloud storage.
pub(crate) fn is_in_provider_store(uri: &str) -> bool {
    let uri = uri.trim().to_ascii_lowercase();
    let Some(rest) = uri.strip_prefix("https://").or_else(|| uri.strip_prefix("http://")) else {
        return true;
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len()));
    // An authority that can be read in two ways is treated as the provider's own.
    let is_plain = authority
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':'));
    let host = authority.split(':').next().unwrap_or_default().trim_end_matches('.');
    let is_google_api = host.ends_with(".googleapis.com") && host != "storage.googleapis.com";
    let is_file_of_an_api = ["/v1/files/", "/v1alpha/files/", "/v1beta/files/"]
        .iter()
        .any(|files| path.starts_with(files));
    !is_plain || host.is_empty() || is_google_api || is_file_of_an_api
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_of_one_account_and_one_identifier() {
        let key = |account: &str, id: &str| StateKey::new(account, StateId::new(id));
        assert_eq!(key("a", "resp_1"), key("a", "resp_1"));
        assert_ne!(key("a", "resp_1"), key("b", "resp_1"));
        assert_ne!(key("a", "resp_1"), key("a", "resp_2"));
        assert_ne!(key("aresp", "_1"), key("a", "resp_1"));
        assert_eq!(key("a", "resp_1").to_hex().len(), 2 * DIGEST_BYTES);
    }

    #[test]
    fn a_providers_own_files_are_told_from_what_anybody_reads() {
        for own in [
            "https://generativelanguage.googleapis.com/v1beta/files/abc",
            "HTTPS://GenerativeLanguage.GoogleApis.com:443/v1beta/files/abc",
            "https://generativelanguage.googleapis.com./v1beta/files/abc",
            "https://user@generativelanguage.googleapis.com/v1beta/files/abc",
            "https://generativelanguage%2egoogleapis.com/v1beta/files/abc",
            "https:\\\\generativelanguage.googleapis.com/v1beta/files/abc",
            "https://proxy.example/v1beta/files/abc",
            " files/abc",
            "files/abc",
            "gs://bucket/object",
            "",
            "https://",
        ] {
            assert!(is_in_provider_store(own), "{own}");
        }
        for public in [
            "https://www.youtube.com/watch?v=1",
            "https://example.com/a.pdf",
            "http://example.com:8080/files/a",
            "https://storage.googleapis.com/bucket/a?X-Goog-Signature=1",
        ] {
            assert!(!is_in_provider_store(public), "{public}");
        }
    }
}
