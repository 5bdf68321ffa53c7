//! Parses the paths and queries of the service.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::stability::public::refusal::PublicRefusal;

const SUMMARY: &str = "summary";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PublicPath<'a> {
    /// `/web/v1/model-stability/summary`: all models.
    Summary,
    /// `/web/v1/model-stability/{modelKey}`: one model. The name is empty if it is not UTF-8.
    Detail(Cow<'a, str>),
    /// `/status`: the page of all models.
    Index,
    /// `/status/{modelKey}`: the page of one model.
    Model(Cow<'a, str>),
    /// `/web/v1/openapi.json`: the description.
    OpenApi,
}

impl<'a> PublicPath<'a> {
    /// Parses a percent-encoded path. Slashes in a model's name may be encoded or not.
    pub(super) fn parse(path: &'a str) -> Option<Self> {
        if let Some(key) = path.strip_prefix("/web/v1/model-stability/") {
            let key = decoded(key);
            return Some(if key == SUMMARY {
                Self::Summary
            } else {
                Self::Detail(key)
            });
        }
        match path {
            "/web/v1/openapi.json" => Some(Self::OpenApi),
            "/status" => Some(Self::Index),
            _ => path.strip_prefix("/status/").map(|key| Self::Model(decoded(key))),
        }
    }

    /// Whether the path supports the parameter `hours`.
    pub(super) fn takes_hours(&self) -> bool {
        matches!(self, Self::Summary | Self::Detail(_))
    }
}

/// The decoded name; empty if it cannot be decoded, which no model's name is.
fn decoded(key: &str) -> Cow<'_, str> {
    percent_decode_str(key).decode_utf8().unwrap_or_default()
}

/// Accepts `hours` only once and only as 24 (docs/interface.md, The public record). Other parameters are ignored.
pub(super) fn check_hours(query: Option<&str>) -> Result<(), PublicRefusal> {
    let pairs = query.unwrap_or_default().split('&');
    let mut hours = pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(|(name, _)| percent_decode_str(name).eq("hours".bytes()))
        .map(|(_, value)| value);
    match (hours.next(), hours.next()) {
        (None, _) => Ok(()),
        (Some(value), None) if percent_decode_str(value).eq("24".bytes()) => Ok(()),
        _ => Err(PublicRefusal::HoursNotSupported),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detail(key: &str) -> Option<PublicPath<'_>> {
        Some(PublicPath::Detail(Cow::Borrowed(key)))
    }

    #[test]
    fn names_are_decoded_and_may_have_slashes_in_both_forms() {
        let at = |key: &str| format!("/web/v1/model-stability/{key}");
        for (path, key) in [
            ("house-model", "house-model"),
            ("org%2Fmodel%3Afree", "org/model:free"),
            ("org/model:free", "org/model:free"),
            ("org%2fmodel%20x", "org/model x"),
            ("%E6%A8%A1%E5%9E%8B", "\u{6a21}\u{578b}"),
            ("a+b", "a+b"),
            ("a%2", "a%2"),
            ("%ff", ""),
            ("", ""),
            ("summary/", "summary/"),
        ] {
            assert_eq!(PublicPath::parse(&at(path)), detail(key), "{path}");
        }
        assert_eq!(
            PublicPath::parse("/status/org%2Fm"),
            Some(PublicPath::Model(Cow::Borrowed("org/m")))
        );
    }

    #[test]
    fn the_other_paths_are_exact() {
        assert_eq!(
            PublicPath::parse("/web/v1/model-stability/summary"),
            Some(PublicPath::Summary)
        );
        assert_eq!(
            PublicPath::parse("/web/v1/model-stability/%73ummary"),
            Some(PublicPath::Summary)
        );
        assert_eq!(PublicPath::parse("/web/v1/openapi.json"), Some(PublicPath::OpenApi));
        assert_eq!(PublicPath::parse("/status"), Some(PublicPath::Index));
        for path in [
            "/",
            "*",
            "",
            "/web/v1/model-stability",
            "/web/v1/",
            "/statuspage",
            "/v1/models",
            "/Status",
        ] {
            assert_eq!(PublicPath::parse(path), None, "{path}");
        }
    }

    #[test]
    fn only_one_window_is_supported() {
        for fine in [
            None,
            Some(""),
            Some("x=1"),
            Some("hours=24"),
            Some("a&hours=24&b=48"),
            Some("hours=%324"),
            Some("Hours=1"),
        ] {
            assert_eq!(check_hours(fine), Ok(()), "{fine:?}");
        }
        for wrong in [
            "hours",
            "hours=",
            "hours=0",
            "hours=48",
            "hours=-24",
            "hours=24.0",
            "hours=024",
            "hours=24+",
            "hours=24&hours=24",
            "hours=x",
            "%68ours=1",
            "hours=99999999999999999999",
        ] {
            assert_eq!(
                check_hours(Some(wrong)),
                Err(PublicRefusal::HoursNotSupported),
                "{wrong}"
            );
        }
    }
}
