//! Headers and query parameters that are never forwarded to a provider: those about the connection to weir, those that name or
//! choose an account, those that change the answer, and those that contain the client's key.
//!
//! A header names or chooses an account if it determines whom the provider charges, whose data the provider reads, or who is
//! authenticated. If a provider's answer has headers that name or choose an account, they are not passed to the client either.
//! docs/interface.md (Endpoints) has the same list.

use std::{borrow::Cow, sync::LazyLock};

use memchr::{memchr, memchr_iter, memchr3};
use percent_encoding::percent_decode;

use crate::domain::{
    keys::{
        forwarding::AccountHeader::{Account, Cookie, Credential, Organization, Project, User},
        secret::ServiceKey,
    },
    wire::{decode_query_text, operation::Operation, parameter_name, query_value},
};

/// Headers that only concern the client's connection to weir. Pingora removes further headers of this kind (RFC 9110 section
/// 7.6).
const CONNECTION_HEADERS: [&str; 21] = [
    "accept-encoding",
    "cdn-loop",
    "cf-connecting-ip",
    "content-encoding",
    "expect",
    "forwarded",
    "referer",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-originating-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-weir-tag",
];

/// The prefix of all headers of a WebSocket handshake.
const WEBSOCKET_PREFIX: &str = "sec-websocket-";

/// Headers that change the operation or the provider's answer. With them, the answer could lack its usage or never arrive.
/// Google's headers in this list are system parameters of its APIs (<https://cloud.google.com/apis/docs/system-parameters>).
/// `x-dashscope-async` starts a task whose result has to be fetched later. Other headers in the list make a provider's front end
/// use another host or path.
const ANSWER_CHANGING_HEADERS: [&str; 10] = [
    "x-dashscope-async",
    "x-goog-fieldmask",
    "x-host",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-host",
    "x-original-url",
    "x-rewrite-url",
];

/// Query parameters that are credentials or that choose one of the operator's accounts. Query parameters with the name of a
/// withheld header are withheld, too.
const WITHHELD_PARAMETERS: [&str; 7] = [
    "access-token",
    "groupid",
    "key",
    "oauth-token",
    "quotauser",
    "user-project",
    "userproject",
];

/// The number of times that a string is percent-decoded in the search for a key. No server decodes a string more often.
const DECODINGS_MAX: usize = 3;

/// The headers of [`CONNECTION_HEADERS`] and [`ANSWER_CHANGING_HEADERS`], by the length of their names. Every header of every
/// request is looked up, and sorting by length makes these lookups fast.
static WITHHELD_HEADERS: LazyLock<Vec<Vec<&'static str>>> = LazyLock::new(|| {
    let mut by_length: Vec<Vec<&str>> = Vec::new();
    for name in CONNECTION_HEADERS.iter().chain(&ANSWER_CHANGING_HEADERS) {
        by_length.resize(by_length.len().max(name.len() + 1), Vec::new());
        by_length
            .get_mut(name.len())
            .into_iter()
            .for_each(|same| same.push(*name));
    }
    by_length
});

/// Whether a header is withheld from the provider. An underscore is treated as a hyphen, because some servers do the same.
pub(crate) fn is_withheld_header(name: &str) -> bool {
    let mut listed = WITHHELD_HEADERS.get(name.len()).into_iter().flatten();
    listed.any(|listed| is_same_header(name, listed))
        || account_header_kind(name).is_some()
        || is_websocket_header(name)
}

/// Whether a header belongs to a WebSocket handshake (RFC 6455 section 11.3), which weir does not forward.
fn is_websocket_header(name: &str) -> bool {
    let begin = name.get(..WEBSOCKET_PREFIX.len());
    begin.is_some_and(|begin| is_same_header(begin, WEBSOCKET_PREFIX))
}

/// Whether a query parameter is withheld from the provider. `name` is the name as written in the query. A leading `$` is ignored,
/// because Google accepts its parameters with and without it.
pub(crate) fn is_withheld_parameter(name: &str) -> bool {
    let name = percent_decoded(name);
    let name = name.trim_start_matches('$');
    WITHHELD_PARAMETERS.iter().any(|listed| is_same_header(name, listed)) || is_withheld_header(name)
}

fn percent_decoded(text: &str) -> Cow<'_, str> {
    match memchr(b'%', text.as_bytes()) {
        Some(_) => Cow::Owned(percent_decode(text.as_bytes()).decode_utf8_lossy().into_owned()),
        None => Cow::Borrowed(text),
    }
}

/// A search for the key that the client presented, in everything that would be forwarded.
///
/// The search is for the random part only. This part alone reveals the key, because the prefix and the checksum are not secret.
#[derive(Debug)]
pub(crate) struct PresentedKey<'k> {
    random: &'k [u8],
}

impl<'k> PresentedKey<'k> {
    /// Prepares the search for a key.
    pub(crate) fn new(key: &'k ServiceKey) -> Self {
        Self {
            random: key.random().as_bytes(),
        }
    }

    /// Whether `text` contains the key, in clear or percent-encoded. Allocates nothing if `text` has no percent sign.
    pub(crate) fn is_in(&self, text: &[u8]) -> bool {
        let mut text = Cow::Borrowed(text);
        for _ in 0..DECODINGS_MAX {
            if contains_secret(&text, self.random) {
                return true;
            }
            if memchr(b'%', &text).is_none() {
                return false;
            }
            text = Cow::Owned(percent_decode(&text).collect());
        }
        contains_secret(&text, self.random)
    }

    /// Whether a header's name contains the key. Case is ignored, because header names are converted to lower case.
    pub(crate) fn is_in_name(&self, name: &str) -> bool {
        let length = self.random.len();
        name.len() >= length
            && name
                .as_bytes()
                .windows(length)
                .any(|part| part.eq_ignore_ascii_case(self.random))
    }
}

/// Query parameters that change a Gemini-style answer, in both of Google's spellings
/// (<https://cloud.google.com/apis/docs/system-parameters>). With them, the answer would lack its usage, or have a form that no
/// client of weir requests.
const ANSWER_CHANGING_PARAMETERS: [&str; 5] = ["$alt", "$callback", "$fields", "callback", "fields"];

/// The only query parameter of a Gemini-style request that is forwarded.
const ALT: &str = "alt";

/// Checks the query of a Gemini-style request. The only parameter in it that may change the answer is `alt`, which chooses the
/// form of the answer.
///
/// # Errors
/// The query has another parameter that changes the answer, or an `alt` that the operation does not support. The error is the
/// message for the client.
pub(crate) fn check_query(operation: Operation, query: Option<&str>) -> Result<(), String> {
    if !operation.has_model_in_path() {
        return Ok(());
    }
    let mut names = query
        .unwrap_or_default()
        .split('&')
        .map(|pair| decode_query_text(parameter_name(pair)));
    if let Some(name) = names.find(|name| ANSWER_CHANGING_PARAMETERS.contains(&name.as_str())) {
        return Err(format!("the query parameter `{name}` is not supported: leave it out"));
    }
    let streams = operation == Operation::StreamGenerateContent;
    match query_value(query, ALT)?.as_deref() {
        None | Some("json") => Ok(()),
        Some("sse") if streams => Ok(()),
        Some(_) if streams => Err("the query parameter `alt` must be `sse` or `json`".to_owned()),
        Some(_) => Err("the query parameter `alt` must be `json`; `sse` is for streamGenerateContent".to_owned()),
    }
}

/// Returns the part of a checked query that is forwarded to the provider; `None` if no part is forwarded. For a Gemini-style
/// request, only `alt` is forwarded. For other requests, all parameters are forwarded, with two exceptions: those for which
/// [`is_withheld_parameter`] is true, and those that contain the client's key. Each parameter is forwarded as it was written.
pub(crate) fn forwarded_query(operation: Operation, query: Option<&str>, key: &PresentedKey<'_>) -> Option<String> {
    let passes = |pair: &&str| match operation.has_model_in_path() {
        true => decode_query_text(parameter_name(pair)) == ALT,
        false => !pair.is_empty() && !is_withheld_parameter(parameter_name(pair)) && !key.is_in(pair.as_bytes()),
    };
    let kept: Vec<&str> = query?.split('&').filter(passes).collect();
    Some(kept.join("&")).filter(|query| !query.is_empty())
}

/// Whether `text` contains `secret`. The result is false for an empty secret.
///
/// Most strings in a request are shorter than the secret. So this simple search takes less time than it would take to build a
/// substring searcher.
pub(crate) fn contains_secret(text: &[u8], secret: &[u8]) -> bool {
    let Some((first, last_start)) = secret.first().zip(text.len().checked_sub(secret.len())) else {
        return false;
    };
    let starts = text.get(..=last_start).unwrap_or_default();
    memchr_iter(*first, starts).any(|at| text.get(at..).is_some_and(|rest| rest.starts_with(secret)))
}

/// The kind of account information that a header carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountHeader {
    /// A key, a token, a signature, or another proof of an identity.
    Credential,
    /// A cookie: state that a server stores in a browser.
    Cookie,
    /// The party that the provider charges.
    Account,
    /// An organisation or a part of an organisation.
    Organization,
    /// A project, or a resource that belongs to a project.
    Project,
    /// A user, or a member of an account.
    User,
}

/// The words that identify each kind of header. A header is of a kind if its name contains one of the kind's words. Examples of
/// such names are `openai-organization`, `x-goog-user-project` and `set-cookie`.
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

/// Pairs of words that identify a credential if they follow each other in a header's name.
const CREDENTIAL_PAIRS: [[&str; 2]; 4] = [
    ["access", "key"],
    ["api", "key"],
    ["private", "key"],
    ["subscription", "key"],
];

/// Words that cancel the meaning of the word before them. For example, `user-agent` names a program and not a user, and
/// `token-count` is a number.
const EXCEPT_BEFORE: [(&str, &[&str]); 2] = [("token", &["budget", "count", "limit", "usage"]), ("user", &["agent"])];

/// A header whose name contains this word states a limit, and carries no account information. An example is
/// `x-ratelimit-limit-project-tokens`.
const LIMIT_WORD: &str = "ratelimit";

/// Complete names of headers that carry account information although no word of [`WORDS`] is in them.
const NAMES: [(AccountHeader, &[&str]); 2] = [
    (Credential, &["x-allowed-locations", "x-goog-iam-authority-selector"]),
    (Project, &["x-goog-cloud-target-resource", "x-goog-request-params"]),
];

/// Frequent names of headers without account information. Each header's name is first compared with these names. If it is one of
/// them, it need not be split into words.
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

/// The lookup table for header names. Every header of every message is looked up, so the lookup must be fast. Therefore the table
/// compares lengths first, which excludes most words and names.
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

/// The number of lengths that the table distinguishes. A length is taken modulo this number.
const LENGTHS: usize = 64;
const LETTERS: usize = 26;

#[derive(Debug, Default)]
struct HeaderWordTable {
    /// The frequent names without account information, by length.
    common: Vec<Vec<&'static str>>,
    words: Vec<AccountWord>,
    /// For each letter, the lengths of the words that begin with this letter. The words are those in `WORDS`, and the first word
    /// of each pair in `CREDENTIAL_PAIRS`. Each bit represents a length.
    word_lengths: [u64; LETTERS],
    /// The lengths of the complete names in `NAMES`. Each bit represents a length.
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

    /// Whether the table may contain a word. The result `true` can be wrong, but `false` is always right.
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

/// Returns the index of a letter in the alphabet, from 0 to 25; a higher number for any other byte.
fn letter(byte: u8) -> usize {
    usize::from(byte.to_ascii_lowercase().wrapping_sub(b'a'))
}

/// Returns the kind of account information that a header carries; `None` if it carries none. An underscore or a full stop is
/// treated as a hyphen, because some servers do the same.
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

/// Splits a name after its first word. Returns the first word and the rest.
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

/// Whether a name equals the name `listed`. Case is ignored, and an underscore equals a hyphen. `listed` must consist of hyphens
/// and lower-case letters only.
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
    use crate::domain::keys::{
        CREDENTIAL_HEADERS,
        secret::{KeyPrefix, ServiceKey},
    };
    use proptest::prelude::*;

    fn key() -> ServiceKey {
        ServiceKey::generate(&KeyPrefix::new("weir").unwrap(), &mut rand::rng())
    }

    #[test]
    fn names_stay_in_every_spelling_and_others_pass() {
        for name in [
            "x-api-key",
            "x_api_key",
            "Authorization",
            "openai-organization",
            "OpenAI_Project",
            "anthropic-workspace-id",
            "x-goog-user-project",
            "x_goog_fieldmask",
            "x-forwarded_for",
            "sec-websocket-key",
            "Sec_WebSocket_Extensions",
            "chatgpt-account-id",
            "x-goog-authenticated-user-email",
            "x-amz-security-token",
            "anthropic-auth-token",
            "set-cookie",
        ] {
            assert!(is_withheld_header(name), "{name}");
        }
        for name in [
            "accept",
            "anthropic-beta",
            "anthropic-version",
            "openai-beta",
            "idempotency-key",
            "user-agent",
            "origin",
            "x-api-keys",
            "x-projector",
            "session-id",
            "x-stainless-lang",
            "x-codex-turn-metadata",
            "x-goog-api-client",
            "x-claude-code-session-id",
            "sec-websocket",
            "sec-fetch-mode",
        ] {
            assert!(!is_withheld_header(name), "{name}");
        }
        for name in [
            "access_token",
            "oauth%5Ftoken",
            "$key",
            "%24KEY",
            "x_api_key",
            "$userProject",
            "project",
        ] {
            assert!(is_withheld_parameter(name), "{name}");
        }
        for name in ["beta", "alt", "monkey", "keys", ""] {
            assert!(!is_withheld_parameter(name), "{name}");
        }
    }

    #[test]
    fn the_lists_are_as_the_comparison_needs_them() {
        let lists = [
            CONNECTION_HEADERS.as_slice(),
            &CREDENTIAL_HEADERS,
            &ANSWER_CHANGING_HEADERS,
            &WITHHELD_PARAMETERS,
        ];
        assert!(CREDENTIAL_HEADERS.into_iter().all(is_withheld_header));
        for name in lists.concat() {
            assert!(!name.contains('_') && name == name.to_ascii_lowercase(), "{name}");
        }
    }

    #[test]
    fn a_key_is_found_as_deep_as_it_is_looked_for() {
        let key = key();
        let presented = PresentedKey::new(&key);
        let encode = |text: &str| -> String {
            let digits = |byte: u8| format!("%{byte:02x}");
            text.bytes().map(digits).collect()
        };
        let mut text = key.as_str().to_owned();
        for depth in 0..=DECODINGS_MAX {
            assert!(presented.is_in(text.as_bytes()), "encoded {depth} times");
            text = encode(&text);
        }
        assert!(presented.is_in_name(&format!("x-{}", key.as_str().to_ascii_lowercase())));
        assert!(!presented.is_in_name("x-short") && !presented.is_in(b"100%") && !presented.is_in(b""));
    }

    proptest! {
        #[test]
        fn wherever_a_key_stands_it_is_found_and_no_text_is_taken_for_one(
            before in "[ -~]{0,40}",
            behind in "[ -~]{0,40}",
            encoded in prop::collection::vec(any::<bool>(), 60),
        ) {
            let key = key();
            let presented = PresentedKey::new(&key);
            let without = format!("{before}{behind}");
            prop_assert!(!presented.is_in(without.as_bytes()));
            let inside: String = key
                .as_str()
                .bytes()
                .zip(encoded)
                .map(|(byte, encoded)| if encoded { format!("%{byte:02X}") } else { char::from(byte).to_string() })
                .collect();
            // A percent sign in front would make one escape of two characters of the key.
            let before = before.replace('%', "");
            let text = format!("{before}{inside}{behind}");
            prop_assert!(presented.is_in(text.as_bytes()), "{}", text);
        }
    }

    #[test]
    fn alt_is_what_the_operation_has() {
        let stream = |query| check_query(Operation::StreamGenerateContent, Some(query)).is_ok();
        for fine in [
            "",
            "alt=sse",
            "alt=json",
            "%61lt=sse&x=1",
            "alt=sse&alt=sse",
            "ALT=xml",
            "$.xgafv=1",
        ] {
            assert!(stream(fine), "{fine}");
        }
        for bad in [
            "alt=",
            "alt",
            "alt=SSE",
            "alt=proto",
            "alt=media",
            "alt=sse&alt=json",
            "alt=json&alt",
            "$alt=json",
            "fields",
            "alt=sse&%24fields=a",
            "callback=f",
            "%63allback",
            "$callback=f",
        ] {
            assert!(!stream(bad), "{bad}");
        }
        for operation in [Operation::GenerateContent, Operation::GeminiCountTokens] {
            assert!(check_query(operation, None).is_ok() && check_query(operation, Some("alt=json")).is_ok());
            assert!(check_query(operation, Some("alt=sse")).is_err());
        }
        assert!(check_query(Operation::Messages, Some("alt=anything&fields=a")).is_ok());
        assert_eq!(
            check_query(Operation::GenerateContent, Some("%24fields=a")),
            Err("the query parameter `$fields` is not supported: leave it out".to_owned())
        );
    }

    #[test]
    fn a_provider_gets_what_may_pass_as_it_is_written() {
        let key = ServiceKey::generate(&KeyPrefix::new("weir").unwrap(), &mut rand::rng());
        let presented = PresentedKey::new(&key);
        let text = format!("beta=true&a={key}&%62=c%20d&access_token=t&&{key}", key = key.as_str());
        let pass = |operation, query| forwarded_query(operation, query, &presented);
        assert_eq!(
            pass(Operation::Messages, Some(&text)).as_deref(),
            Some("beta=true&%62=c%20d")
        );
        assert_eq!(pass(Operation::Messages, Some("access_token=t")), None);
        assert_eq!(pass(Operation::Messages, None), None);
        let gemini = "x=1&%61lt=sse&prettyPrint=true&alt=sse&key=2";
        assert_eq!(
            pass(Operation::StreamGenerateContent, Some(gemini)).as_deref(),
            Some("%61lt=sse&alt=sse")
        );
        assert_eq!(pass(Operation::GenerateContent, Some("x=1")), None);
    }

    #[test]
    fn a_secret_is_found_at_both_ends_and_in_full_only() {
        for text in ["abcab", "xabcab", "abcabx", "ababcab"] {
            assert!(contains_secret(text.as_bytes(), b"abcab"), "{text}");
        }
        for text in ["", "abca", "bcab", "abcaxb", "abca-abca"] {
            assert!(!contains_secret(text.as_bytes(), b"abcab"), "{text}");
        }
        assert!(!contains_secret(b"abc", b""));
    }

    proptest! {
        #[test]
        fn it_finds_what_a_search_of_the_standard_library_finds(text in "[ab]{0,40}", secret in "[ab]{1,6}") {
            prop_assert_eq!(contains_secret(text.as_bytes(), secret.as_bytes()), text.contains(&secret));
        }
    }

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
