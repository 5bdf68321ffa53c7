//! Names of headers that name or choose an account, by kind: whose account a provider charges, whose data it reads, as whom it
//! answers. None of them passes, in either direction. docs/interface.md (Endpoints) has the same list.

use std::sync::LazyLock;

/// What a header names or chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountHeader {
    /// A key, a token, a signature, or anything else that proves who somebody is.
    Credential,
    /// State that a browser keeps for a server.
    Cookie,
    /// Whoever is charged.
    Account,
    /// An organisation, or a part of one.
    Organization,
    /// A project, or a resource that belongs to one.
    Project,
    /// A person, or a user of an account.
    User,
}

use self::AccountHeader::{Account, Cookie, Credential, Organization, Project, User};

/// A header with one of these words in its name is of that kind: `openai-organization`, `x-goog-user-project`, `set-cookie`.
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

/// A header with two of these words in a row is a credential.
const CREDENTIAL_PAIRS: [[&str; 2]; 4] = [
    ["access", "key"],
    ["api", "key"],
    ["private", "key"],
    ["subscription", "key"],
];

/// Words that take the meaning from the one before them: `user-agent` names a program, `token-count` is a number.
const EXCEPT_BEFORE: [(&str, &[&str]); 2] = [("token", &["budget", "count", "limit", "usage"]), ("user", &["agent"])];

/// Headers with this word tell of a limit, whatever it is a limit of: `x-ratelimit-limit-project-tokens`.
const LIMIT_WORD: &str = "ratelimit";

/// Names of which no word tells.
const NAMES: [(AccountHeader, &[&str]); 2] = [
    (Credential, &["x-allowed-locations", "x-goog-iam-authority-selector"]),
    (Project, &["x-goog-cloud-target-resource", "x-goog-request-params"]),
];

/// All words, by their length, with what may take their meaning: each word of each name of each message is looked for.
static BY_LENGTH: LazyLock<Vec<Vec<Word>>> = LazyLock::new(|| {
    let mut by_length: Vec<Vec<Word>> = Vec::new();
    let all = WORDS
        .iter()
        .flat_map(|(kind, words)| words.iter().map(|word| (*kind, *word)));
    for (kind, text) in all {
        by_length.resize_with(by_length.len().max(text.len() + 1), Vec::new);
        let except = EXCEPT_BEFORE.iter().find(|(word, _)| *word == text);
        let word = Word {
            text,
            kind,
            except_before: except.map_or(&[], |(_, words)| *words),
        };
        by_length
            .get_mut(text.len())
            .into_iter()
            .for_each(|same| same.push(word));
    }
    by_length
});

#[derive(Clone, Copy, Debug)]
struct Word {
    text: &'static str,
    kind: AccountHeader,
    except_before: &'static [&'static str],
}

/// What of an account a header names or chooses; `None`: nothing. An underscore or a full stop counts as a hyphen, because servers
/// read it as one.
pub(crate) fn kind_of(name: &str) -> Option<AccountHeader> {
    by_words(name).or_else(|| {
        let mut named = NAMES
            .iter()
            .filter(|(_, names)| names.iter().any(|listed| is_same(name, listed)));
        named.next().map(|(kind, _)| *kind)
    })
}

/// Whether a name is the listed one, which has hyphens and small letters only.
pub(crate) fn is_same(name: &str, listed: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == listed.len() && name.bytes().zip(listed.bytes()).all(|(one, other)| plain(one) == other)
}

fn by_words(name: &str) -> Option<AccountHeader> {
    let mut words = name
        .as_bytes()
        .split(|byte| matches!(byte, b'-' | b'_' | b'.'))
        .peekable();
    let mut found = None;
    while let Some(word) = words.next() {
        let next = words.peek().copied().unwrap_or_default();
        if is_word(word, LIMIT_WORD) {
            return None;
        }
        if found.is_none() {
            found = kind_of_word(word, next);
        }
    }
    found
}

fn kind_of_word(word: &[u8], next: &[u8]) -> Option<AccountHeader> {
    let mut known = BY_LENGTH.get(word.len()).into_iter().flatten();
    let is_excepted = |known: &Word| known.except_before.iter().any(|other| is_word(next, other));
    if let Some(known) = known.find(|known| is_word(word, known.text)) {
        return Some(known.kind).filter(|_| !is_excepted(known));
    }
    let is_pair = is_word(next, "key") && CREDENTIAL_PAIRS.iter().any(|[first, _]| is_word(word, first));
    is_pair.then_some(Credential)
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
            assert_eq!(kind_of(name), Some(kind), "{name}");
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
            assert_eq!(kind_of(name), None, "{name}");
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
