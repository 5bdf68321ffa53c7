//! Headers that name or choose an account: whom the provider charges, whose data it reads, or who is authenticated. weir passes
//! them neither to providers nor to clients. docs/interface.md (Endpoints) has the same list.

use std::sync::LazyLock;

use memchr::memchr3;

/// The kind of account information that a header carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountHeader {
    /// A key, a token, a signature, or another proof of an identity.
    Credential,
    /// A cookie, in which a server stores state in browsers.
    Cookie,
    /// The party that the provider charges.
    Account,
    /// An organisation or a part of an organisation.
    Organization,
    /// A project, or a resource that belongs to a project.
    Project,
    /// A person, or a user of an account.
    User,
}

use self::AccountHeader::{Account, Cookie, Credential, Organization, Project, User};

/// The words that identify each kind. A header whose name contains one of them is of that kind, such as `openai-organization`,
/// `x-goog-user-project` or `set-cookie`.
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

/// Pairs of words that identify a credential if a header's name contains them one after the other.
const CREDENTIAL_PAIRS: [[&str; 2]; 4] = [
    ["access", "key"],
    ["api", "key"],
    ["private", "key"],
    ["subscription", "key"],
];

/// Words that cancel the meaning of the word before them. `user-agent` names a program rather than a user, and `token-count` is a
/// number.
const EXCEPT_BEFORE: [(&str, &[&str]); 2] = [("token", &["budget", "count", "limit", "usage"]), ("user", &["agent"])];

/// The word that marks a header as stating a limit, whatever other words its name has, such as
/// `x-ratelimit-limit-project-tokens`.
const LIMIT_WORD: &str = "ratelimit";

/// Complete names of headers that carry account information although their words do not identify it.
const NAMES: [(AccountHeader, &[&str]); 2] = [
    (Credential, &["x-allowed-locations", "x-goog-iam-authority-selector"]),
    (Project, &["x-goog-cloud-target-resource", "x-goog-request-params"]),
];

/// Frequent names of headers without account information. They are looked up first, so that they need not be split into words.
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

/// The lookup table for the names of all headers of all messages. Most words and names are ruled out by their length alone.
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

/// The number of lengths that the table distinguishes. Greater lengths are taken modulo this number.
const LENGTHS: usize = 64;
const LETTERS: usize = 26;

#[derive(Debug, Default)]
struct HeaderWordTable {
    /// The frequent names without account information, by length.
    common: Vec<Vec<&'static str>>,
    words: Vec<AccountWord>,
    /// For each letter, the lengths of the words, and of the first words of pairs, that begin with it. Each length is one bit.
    word_lengths: [u64; LETTERS],
    /// The lengths of the complete names in `NAMES`. Each length is one bit.
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

    /// Whether the lists may contain a word. The answer can be true for a word that they do not contain, but not the reverse.
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

/// Returns the index of a letter in the alphabet; 26 or more for any other byte.
fn letter(byte: u8) -> usize {
    usize::from(byte.to_ascii_lowercase().wrapping_sub(b'a'))
}

/// Returns the kind of account information that a header carries; `None` if it carries none. An underscore or a full stop is
/// treated as a hyphen, because servers do that.
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

/// Splits a name after its first word, and returns that word and the rest.
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

/// Whether a name equals a listed name. Case is ignored, and an underscore is treated as a hyphen. `listed` must have only
/// hyphens and lower-case letters.
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
