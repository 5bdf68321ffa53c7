//! The operation that a path requests. Only the end of the path counts, so that any provider's prefix works.

use percent_encoding::percent_decode_str;

use crate::domain::wire::operation::Operation;

/// A recognised path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathTarget {
    pub(super) operation: Operation,
    /// The model, if it is in the path.
    pub(super) model: Option<String>,
}

/// Parses `path`; `None` for an unknown path. Only its end counts, so that any provider's prefix works.
pub(super) fn parse_path(path: &str) -> Option<PathTarget> {
    let plain = |operation| Some(PathTarget { operation, model: None });
    if path.ends_with("/messages/count_tokens") {
        return plain(Operation::CountTokens);
    }
    if path.ends_with("/messages") {
        return plain(Operation::Messages);
    }
    if path.ends_with("/responses") {
        return plain(Operation::Responses);
    }
    let (folder, last) = path.rsplit_once('/')?;
    if !(folder.ends_with("/models") || folder.ends_with("/tunedModels")) {
        return None;
    }
    let last = percent_decode_str(last).decode_utf8().ok()?;
    let (model, verb) = last.rsplit_once(':')?;
    let operation = match verb {
        "generateContent" => Operation::GenerateContent,
        "streamGenerateContent" => Operation::StreamGenerateContent,
        "countTokens" => Operation::GeminiCountTokens,
        _ => return None,
    };
    Some(PathTarget {
        operation,
        model: Some(model.to_owned()),
    })
}

/// Whether a Gemini query requests server-sent events (`alt=sse`).
pub(super) fn is_sse_query(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_the_path_counts() {
        for (path, operation) in [
            ("/v1/messages", Operation::Messages),
            ("/api/anthropic/v1/messages", Operation::Messages),
            ("/v1/messages/count_tokens", Operation::CountTokens),
            ("/responses", Operation::Responses),
            ("/api/v3/responses", Operation::Responses),
        ] {
            assert_eq!(parse_path(path), Some(PathTarget { operation, model: None }), "{path}");
        }
        assert_eq!(parse_path("/v1/chat/completions"), None);
        assert_eq!(parse_path("/v1/models/m:embedContent"), None);
    }

    #[test]
    fn gemini_paths_name_the_model_also_with_an_encoded_colon() {
        for path in [
            "/v1beta/models/g-2:streamGenerateContent",
            "/v1/models/g-2%3AstreamGenerateContent",
        ] {
            let expected = PathTarget {
                operation: Operation::StreamGenerateContent,
                model: Some("g-2".to_owned()),
            };
            assert_eq!(parse_path(path), Some(expected), "{path}");
        }
    }

    #[test]
    fn alt_sse_is_found_among_other_pairs() {
        assert!(is_sse_query(Some("key=x&alt=sse")));
        assert!(!is_sse_query(Some("alt=json")));
        assert!(!is_sse_query(None));
    }
}
