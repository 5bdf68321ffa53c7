//! Headers that name or choose an account: whom the provider charges, whose data it reads, or who is authenticated. They pass
//! in neither direction. docs/interface.md (Endpoints) has the same list.

use std::sync::LazyLock;

use memchr::memchr3;

/// The kind of account information in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountHeader {
    /// A key, a token, a signature, or anything else that proves an identity.
    Credential,
    /// Browser state of a server.
    Cookie,
    /// The party that is charged.
    Account,
    /// An organisation or a part of it.
    Organization,
    /// A project or a resource that belongs to it.
    Project,
    /// A person, or a user of an account.
    User,
}

use self::AccountHeader::{Account, Cookie, Credential, Organization, Project, User};

/// A header whose name contains one of these words is of that kind: `openai-organization`, `x-goog-user-project`, `set-cookie`.
const WORDS: [(AccountHeader, &[&str]); 6] = [
    (
        Credential,
        &[
            "apikey",
            "assertion",
            "attestation",
            "auth",
            "authentication",
            "authorization",
            "credential",
            "password",
            "proof",
            "secret",
            "signature",
            "token",
        ],
    ),
    (Cookie, &["cookie", "cookie2"]),
    (Account, &["account", "billing", "customer", "payer", "subscription"]),
    (
        Organization,
        &["org", "organisation", "organization", "team", "tenant", "workspace"],
    ),
    (Project, &["project"]),
    (
        User,
        &[
            "authuser",
            "email",
            "identity",
            "principal",
            "uid",
            "user",
            "userid",
            "username",
        ],
    ),
];

/// A header whose name contains one of these pairs of words is a credential.
const CREDENTIAL_PAIRS: [[&str; 2]; 4] = [
    ["access", "key"],
    ["api", "key"],
    ["private", "key"],
    ["subscription", "key"],
];

/// Words that cancel the meaning of the word before them: `user-agent` names a program, `token-count` is a number.
const EXCEPT_BEFORE: [(&str, &[&str]); 2] = [("token", &["budget", "count", "limit", "usage"]), ("user", &["agent"])];

/// A header with this word states a limit, whatever other words it has: `x-ratelimit-limit-project-tokens`.
const LIMIT_WORD: &str = "ratelimit";

/// Names that none of the words above identify.
const NAMES: [(AccountHeader, &[&str]); 2] = [
    (Credential, &["x-allowed-locations", "x-goog-iam-authority-selector"]),
    (Project, &["x-goog-cloud-target-resource", "x-goog-request-params"]),
];

/// Frequent names without account information, which need not be split into words.
const COMMON: [&str; 19] = [
    "accept",
    "accept-encoding",
    "anthropic-beta",
    "anthropic-version",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "host",
    "openai-beta",
    "request-id",
    "retry-after",
    "server",
    "transfer-encoding",
    "user-agent",
    "vary",
    "x-request-id",
];

/// The lookup table for all header names of all messages. The length rules out most words and names.
static TABLE: LazyLock<HeaderWordTable> = LazyLock::new(|| {
    let mut table = HeaderWordTable::default();
    let words = WORDS
        .iter()
        .flat_map(|(kind, words)| words.iter().map(|word| (*kind, *word)));
    for (kind, text) in words {
        table.mark(text);
        let except = EXCEPT_BEFORE.iter().find(|(word, _)| *word == text);
        table.words.push(AccountWord {
            text,
            kind,
            except_before: except.map_or(&[], |(_, words)| *words),
        });
    }
    CREDENTIAL_PAIRS.iter().for_each(|[first, _]| table.mark(first));
    for name in COMMON {
        let same = table.common.len().max(name.len() + 1);
        table.common.resize(same, Vec::new());
        table
            .common
            .get_mut(name.len())
            .into_iter()
            .for_each(|same| same.push(name));
    }
    for name in NAMES.iter().flat_map(|(_, names)| *names) {
        table.name_lengths |= 1 << (name.len() % LENGTHS);
    }
    table
});

/// The number of distinct lengths; a greater length counts modulo this.
const LENGTHS: usize = 64;
const LETTERS: usize = 26;

#[derive(Debug, Default)]
struct HeaderWordTable {
    /// Common names, by length.
    common: Vec<Vec<&'static str>>,
    words: Vec<AccountWord>,
    /// For each letter, the lengths of the words and of the first words of pairs that begin with it, as bits.
    word_lengths: [u64; LETTERS],
    /// The lengths of the listed names, as bits.
    name_lengths: u64,
}

#[derive(Clone, Copy, Debug)]
struct AccountWord {
    text: &'static str,
    kind: AccountHeader,
    except_before: &'static [&'static str],
}

impl HeaderWordTable {
    fn mark(&mut self, word: &str) {
        let place = word
            .bytes()
            .next()
            .and_then(|first| self.word_lengths.get_mut(letter(first)));
        place
            .into_iter()
            .for_each(|lengths| *lengths |= 1 << (word.len() % LENGTHS));
    }

    /// Whether a word may be in the lists. False positives are possible.
    fn may_contain(&self, word: &[u8]) -> bool {
        let Some(first) = word.first() else { return false };
        let lengths = self.word_lengths.get(letter(*first)).copied().unwrap_or(0);
        lengths >> (word.len() % LENGTHS) & 1 == 1
    }

    fn kind_of_word(&self, word: &[u8], next: &[u8]) -> Option<AccountHeader> {
        let is_excepted = |known: &AccountWord| known.except_before.iter().any(|other| is_word(next, other));
        if let Some(known) = self.words.iter().find(|known| is_word(word, known.text)) {
            return Some(known.kind).filter(|_| !is_excepted(known));
        }
        let is_pair = is_word(next, "key") && CREDENTIAL_PAIRS.iter().any(|[first, _]| is_word(word, first));
        is_pair.then_some(Credential)
    }
}

/// The index of a letter in the alphabet; 26 or more for any other byte.
fn letter(byte: u8) -> usize {
    usize::from(byte.to_ascii_lowercase().wrapping_sub(b'a'))
}

/// The kind of account information in a header; `None` if it has none. An underscore or a full stop counts as a hyphen, because
/// servers treat it as one.
pub(crate) fn account_header_kind(name: &str) -> Option<AccountHeader> {
    let (table, mut rest) = (&*TABLE, name.as_bytes());
    if table.common.get(name.len()).is_some_and(|same| same.contains(&name)) {
        return None;
    }
    loop {
        let (word, behind) = first_word(rest);
        if table.may_contain(word)
            && let Some(kind) = table.kind_of_word(word, first_word(behind).0)
        {
            return Some(kind).filter(|_| !is_limit_header(name));
        }
        if behind.is_empty() {
            break;
        }
        rest = behind;
    }
    if table.name_lengths >> (name.len() % LENGTHS) & 1 == 0 {
        return None;
    }
    let mut named = NAMES
        .iter()
        .filter(|(_, names)| names.iter().any(|listed| is_same_header(name, listed)));
    named.next().map(|(kind, _)| *kind)
}

/// The first word of a name, and what follows it.
fn first_word(name: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr3(b'-', b'_', b'.', name).and_then(|end| name.split_at_checked(end));
    end.map_or((name, &[]), |(word, behind)| {
        (word, behind.get(1..).unwrap_or_default())
    })
}

/// Whether a header states a limit.
fn is_limit_header(name: &str) -> bool {
    let mut words = name.split(['-', '_', '.']);
    words.any(|word| word.eq_ignore_ascii_case(LIMIT_WORD))
}

/// Whether a name equals a listed one, ignoring case and taking underscores for hyphens. `listed` has only hyphens and
/// lower-case letters.
pub(crate) fn is_same_header(name: &str, listed: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == listed.len() && name.bytes().zip(listed.bytes()).all(|(one, other)| plain(one) == other)
}

fn is_word(word: &[u8], known: &str) -> bool {
    word.eq_ignore_ascii_case(known.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_is_told_by_words_pairs_and_names_in_any_spelling() {
        for (name, kind) in [
            ("chatgpt-account-id", Account),
            ("x-amz-request-payer", Account),
            ("anthropic-organization-id", Organization),
            ("OpenAI_Organization", Organization),
            ("anthropic-workspace-id", Organization),
            ("openai-project", Project),
            ("X-Goog-Cloud-Target-Resource", Project),
            ("x-goog-authenticated-user-email", User),
            ("anthropic-user-profile-id", User),
            ("x-goog-authuser", User),
            ("x-dashscope-uid", User),
            ("anthropic-auth-token", Credential),
            ("x-amz-security-token", Credential),
            ("x_api_key", Credential),
            ("ocp-apim-subscription-key", Account),
            ("x-admin-api-key", Credential),
            ("x-goog-iam-authority-selector", Credential),
            ("set-cookie", Cookie),
            ("Cookie", Cookie),
        ] {
            assert_eq!(account_header_kind(name), Some(kind), "{name}");
        }
    }

    #[test]
    fn what_says_nothing_of_an_account_has_no_kind() {
        for name in [
            "",
            "-",
            "user-agent",
            "x-amz-user-agent",
            "x-input-token-count",
            "x-ratelimit-limit-project-tokens",
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-beta",
            "anthropic-version",
            "openai-beta",
            "openai-processing-ms",
            "idempotency-key",
            "x-api-keys",
            "x-projector",
            "x-request-id",
            "x-session-id",
            "x-codex-turn-metadata",
            "x-goog-api-client",
        ] {
            assert_eq!(account_header_kind(name), None, "{name}");
        }
    }

    #[test]
    fn lists_are_as_the_comparison_needs_them_and_as_the_document_has_them() {
        let document = include_str!("../../../docs/interface.md");
        let words = WORDS.iter().flat_map(|(_, words)| *words);
        for word in words.clone() {
            assert!(
                word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'2'),
                "{word}"
            );
        }
        let names = NAMES.iter().flat_map(|(_, names)| *names);
        for name in COMMON {
            // With a capital it is taken apart.
            assert_eq!(account_header_kind(&name.to_ascii_uppercase()), None, "{name}");
        }
        for name in names.clone() {
            assert!(!name.contains('_') && *name == name.to_ascii_lowercase(), "{name}");
        }
        let pairs = CREDENTIAL_PAIRS.map(|pair| pair.join("-"));
        let excepted = EXCEPT_BEFORE
            .iter()
            .flat_map(|(word, next)| next.iter().map(move |next| format!("{word}-{next}")));
        let told = words.chain(names).map(|text| (*text).to_owned());
        for text in told.chain(pairs).chain(excepted).chain([LIMIT_WORD.to_owned()]) {
            assert!(
                document.contains(&format!("`{text}`")),
                "{text} is not in docs/interface.md"
            );
        }
    }
}
