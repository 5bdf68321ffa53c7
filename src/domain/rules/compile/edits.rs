//! Header and query edits of a provider file, and the conditions of its body edits, checked.

use http::{HeaderName, HeaderValue};
use toml::Spanned;

use crate::domain::{
    keys::credential::CREDENTIAL_HEADERS,
    rules::{
        head::{HeadEdit, HeadEdits, HeadOp},
        query::{QueryEdit, QueryEdits, QueryOp},
        raw::{RawHeaders, RawQuery},
    },
    strict_toml::Faults,
};

/// Maximum number of header edits, and of query edits, of one file.
const EDITS_MAX: usize = 64;

/// Headers of the connection and of the message framing (RFC 9110 section 7.6.1), which weir sets itself.
const FRAMING: [&str; 14] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Query parameters that carry a client's key.
const CREDENTIAL_PARAMETERS: [&str; 1] = ["key"];

pub(super) fn is_framing(name: &HeaderName) -> bool {
    FRAMING.contains(&name.as_str())
}

pub(super) fn head_edits(raw: &RawHeaders, auth: Option<&HeaderName>, faults: &mut Faults<'_>) -> HeadEdits {
    let count = raw.remove.len() + raw.rename.len() + raw.set.len() + raw.default.len();
    if count > EDITS_MAX {
        faults.add_for_file(format!("[headers] has {count} edits, at most {EDITS_MAX} are allowed"));
    }
    let mut edits = Vec::with_capacity(count);
    let mut add = |place: &Spanned<String>, op: Option<HeadOp>, faults: &Faults<'_>| {
        let line = faults.line(place);
        edits.extend(op.map(|op| HeadEdit { line, op }));
    };
    for given in &raw.remove {
        let name = header_name(given.get_ref(), given, auth, faults);
        add(given, name.map(HeadOp::Remove), faults);
    }
    for (from, given) in &raw.rename {
        let names = header_name(from, given, auth, faults).zip(header_name(given.get_ref(), given, auth, faults));
        add(given, names.map(|(from, to)| HeadOp::Rename(from, to)), faults);
    }
    for (text, given) in &raw.set {
        let header = header(text, given, auth, faults);
        add(given, header.map(|(name, value)| HeadOp::Set(name, value)), faults);
    }
    for (text, given) in &raw.default {
        let header = header(text, given, auth, faults);
        add(given, header.map(|(name, value)| HeadOp::Default(name, value)), faults);
    }
    HeadEdits(edits)
}

fn header(
    text: &str,
    given: &Spanned<String>,
    auth: Option<&HeaderName>,
    faults: &mut Faults<'_>,
) -> Option<(HeaderName, HeaderValue)> {
    let name = header_name(text, given, auth, faults)?;
    let Ok(value) = HeaderValue::from_str(given.get_ref()) else {
        faults.add_at(given, text, format!("key `{text}`: not the value of a header"));
        return None;
    };
    Some((name, value))
}

fn header_name(
    text: &str,
    place: &Spanned<String>,
    auth: Option<&HeaderName>,
    faults: &mut Faults<'_>,
) -> Option<HeaderName> {
    let fault = match HeaderName::from_bytes(text.as_bytes()) {
        Ok(name) if is_framing(&name) => "is set by weir itself and cannot be edited",
        Ok(name) if CREDENTIAL_HEADERS.contains(&name.as_str()) || auth == Some(&name) => {
            "carries a credential: those of clients are never forwarded, the provider's belongs in [auth]"
        }
        Ok(name) => return Some(name),
        Err(_) => {
            faults.add_at(place, "headers", "key `headers`: not the name of a header");
            return None;
        }
    };
    let message = format!("key `headers`: `{}` {fault}", text.to_ascii_lowercase());
    faults.add_at(place, text, message);
    None
}

pub(super) fn query_edits(raw: &RawQuery, faults: &mut Faults<'_>) -> QueryEdits {
    let count = raw.remove.len() + raw.set.len() + raw.default.len();
    if count > EDITS_MAX {
        faults.add_for_file(format!("[query] has {count} edits, at most {EDITS_MAX} are allowed"));
    }
    let removed = raw.remove.iter().map(|given| (given.get_ref(), given, QueryOp::Remove));
    let set = raw
        .set
        .iter()
        .map(|(name, given)| (name, given, QueryOp::Set(given.get_ref().clone())));
    let default = raw
        .default
        .iter()
        .map(|(name, given)| (name, given, QueryOp::Default(given.get_ref().clone())));
    let mut edits = Vec::with_capacity(count);
    for (name, given, op) in removed.chain(set).chain(default) {
        if name.is_empty() {
            faults.add_at(given, "query", "key `query`: the name of a parameter is empty");
        } else if CREDENTIAL_PARAMETERS.contains(&name.as_str()) {
            let message = format!(
                "key `query`: `{name}` carries a credential: those of clients are never forwarded, the provider's belongs in \
                 [auth]"
            );
            faults.add_at(given, "query", message);
        } else {
            let (line, name) = (faults.line(given), name.clone());
            edits.push(QueryEdit { line, name, op });
        }
    }
    QueryEdits(edits)
}
