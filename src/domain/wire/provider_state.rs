//! State that a provider keeps for the operator's account: how a request names it, and which account here owns it.

use serde::{Deserialize, Serialize};

use sha2::{Digest, Sha256};

/// Bytes of a name's or a key's digest: of so many, no two are ever the same by chance, and none can be found by trying.
const DIGEST_BYTES: usize = 16;

/// A kind of state, by what names it in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// A response that the next one goes on from.
    Response,
    /// A response whose prompt is compared with this one's.
    ComparedResponse,
    Conversation,
    /// An item of an earlier answer.
    Item,
    /// An item of an earlier answer, given with a text of its own: content, unless the provider keeps answers.
    SummarizedItem,
    /// A prompt that is kept as a template.
    Prompt,
    /// The message that a thread goes on from.
    Thread,
    /// A message whose prompt is compared with this one's.
    ComparedMessage,
    /// Where a provider runs code.
    Container,
    File,
    /// A file by its address in the provider's own store.
    FileUri,
    /// Files that can be searched (Responses).
    VectorStore,
    /// Files that can be searched (Gemini-style).
    FileSearchStore,
    /// A way to servers of the operator's own.
    Tunnel,
    /// A skill of the operator's own.
    Skill,
    /// A prompt's beginning that is kept for cheaper reading.
    CachedContent,
}

impl StateKind {
    /// Its place in the request, as it is told to the client.
    pub const fn place(self) -> &'static str {
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

    /// What it is called in a sentence.
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

    /// Whether the request goes on from it, so that only whoever has it can serve, even if nobody here remembers who has.
    pub const fn is_continued(self) -> bool {
        matches!(
            self,
            Self::Response | Self::Conversation | Self::Thread | Self::CachedContent
        )
    }
}

/// What an identifier names, without saying what it is: a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateId([u8; DIGEST_BYTES]);

impl StateId {
    /// The digest of an identifier.
    pub fn new(id: &str) -> Self {
        Self(shortened(Sha256::new().chain_update("state").chain_update(id)))
    }
}

/// State as one account's: a digest over the account and what is named. Only who knows both can ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct StateKey(pub [u8; DIGEST_BYTES]);

impl StateKey {
    /// What the identifier names, as this account's.
    pub(crate) fn new(account: &str, id: StateId) -> Self {
        Self(shortened(Sha256::new().chain_update(id.0).chain_update(account)))
    }

    /// As 32 hexadecimal digits.
    pub(crate) fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A number that is the same for all that name the same.
    pub(crate) fn number(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

fn shortened(hash: Sha256) -> [u8; DIGEST_BYTES] {
    let mut bytes = [0; DIGEST_BYTES];
    for (byte, of_hash) in bytes.iter_mut().zip(hash.finalize()) {
        *byte = of_hash;
    }
    bytes
}

/// Whether a Gemini-style address of a file is one in a provider's own store, or can be read with the operator's credential
/// only, and not one that anybody can read: a web page, or a signed address of someone's storage.
pub(crate) fn is_in_own_store(uri: &str) -> bool {
    let uri = uri.trim().to_ascii_lowercase();
    let Some(rest) = uri.strip_prefix("https://").or_else(|| uri.strip_prefix("http://")) else {
        return true;
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len()));
    // An authority that can be read in two ways is taken for the worse one.
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
            assert!(is_in_own_store(own), "{own}");
        }
        for public in [
            "https://www.youtube.com/watch?v=1",
            "https://example.com/a.pdf",
            "http://example.com:8080/files/a",
            "https://storage.googleapis.com/bucket/a?X-Goog-Signature=1",
        ] {
            assert!(!is_in_own_store(public), "{public}");
        }
    }
}
