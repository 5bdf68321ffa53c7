//! The pages of the model list, in the protocols with paging (docs/interface.md, Model lists).

use std::ops::Range;

use crate::domain::wire::{protocol::Protocol, query_value::query_value};

/// The maximum number of models on a page.
const PAGE_MODELS_MAX: usize = 1000;
/// The default number of models on a page of the Messages protocol.
const MESSAGES_PAGE_MODELS: usize = 20;
/// The default number of models on a page of the Gemini-style protocol.
const GEMINI_PAGE_MODELS: usize = 50;

/// One page of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelListPage {
    /// The indexes of its models in the list.
    pub range: Range<usize>,
    /// Whether more models follow in the requested direction.
    pub has_more: bool,
}

/// The page of a list with these names that `query` requests (docs/interface.md, Model lists).
///
/// # Errors
/// A message for the client: a page size is invalid or out of range, or a name is not in the list.
pub(crate) fn requested_page(shape: Protocol, query: Option<&str>, names: &[&str]) -> Result<ModelListPage, String> {
    match shape {
        Protocol::Messages => messages_page(query, names),
        Protocol::Gemini => {
            let size = page_size(query, "pageSize", GEMINI_PAGE_MODELS)?;
            // The token is the last name of the previous page: names do not change, and the list is sorted by them.
            let start = match query_value(query, "pageToken")?.filter(|token| !token.is_empty()) {
                Some(token) => model_index(names, &token, "pageToken")? + 1,
                None => 0,
            };
            Ok(page_from(start, size, names.len()))
        }
        // The protocol has no paging.
        Protocol::Responses => Ok(page_from(0, names.len(), names.len())),
    }
}

fn messages_page(query: Option<&str>, names: &[&str]) -> Result<ModelListPage, String> {
    let size = page_size(query, "limit", MESSAGES_PAGE_MODELS)?;
    match (query_value(query, "after_id")?, query_value(query, "before_id")?) {
        (Some(_), Some(_)) => Err("`after_id` and `before_id` cannot be combined".to_owned()),
        (Some(after), None) => Ok(page_from(
            model_index(names, &after, "after_id")? + 1,
            size,
            names.len(),
        )),
        (None, Some(before)) => {
            let end = model_index(names, &before, "before_id")?;
            let start = end.saturating_sub(size);
            Ok(ModelListPage {
                range: start..end,
                has_more: start > 0,
            })
        }
        (None, None) => Ok(page_from(0, size, names.len())),
    }
}

fn page_from(start: usize, size: usize, all: usize) -> ModelListPage {
    let end = start.saturating_add(size).min(all);
    ModelListPage {
        range: start..end,
        has_more: end < all,
    }
}

fn page_size(query: Option<&str>, name: &str, default: usize) -> Result<usize, String> {
    let Some(text) = query_value(query, name)? else {
        return Ok(default);
    };
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number
        .filter(|number| (1..=PAGE_MODELS_MAX).contains(number))
        .ok_or_else(|| format!("`{name}` is not a number from 1 to {PAGE_MODELS_MAX}"))
}

fn model_index(names: &[&str], name: &str, parameter: &str) -> Result<usize, String> {
    let found = names.iter().position(|found| *found == name);
    found.ok_or_else(|| format!("`{parameter}` is not a model of this list"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("model-{number:04}")).collect()
    }

    fn page(shape: Protocol, query: &str, count: usize) -> Result<(Range<usize>, bool), String> {
        let names = names(count);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        requested_page(shape, Some(query), &names).map(|page| (page.range, page.has_more))
    }

    #[test]
    fn the_defaults_are_those_of_the_protocols() {
        assert_eq!(page(Protocol::Messages, "", 30), Ok((0..20, true)));
        assert_eq!(page(Protocol::Messages, "", 20), Ok((0..20, false)));
        assert_eq!(page(Protocol::Gemini, "", 60), Ok((0..50, true)));
        assert_eq!(page(Protocol::Responses, "limit=1&pageSize=x", 60), Ok((0..60, false)));
        assert_eq!(page(Protocol::Messages, "", 0), Ok((0..0, false)));
    }

    #[test]
    fn numbers_are_taken_up_to_their_limits() {
        for (shape, name) in [(Protocol::Messages, "limit"), (Protocol::Gemini, "pageSize")] {
            assert_eq!(page(shape, &format!("{name}=1"), 3), Ok((0..1, true)));
            assert_eq!(page(shape, &format!("{name}=1000"), 1001), Ok((0..1000, true)));
            for bad in ["0", "1001", "-1", "+5", "", "x", "1.0", "99999999999999999999999"] {
                assert!(page(shape, &format!("{name}={bad}"), 3).is_err(), "{bad}");
            }
            assert!(page(shape, &format!("{name}=1&{name}=2"), 3).is_err());
        }
    }

    #[test]
    fn a_page_begins_behind_a_name_or_ends_before_it() {
        assert_eq!(
            page(Protocol::Messages, "after_id=model-0001&limit=2", 5),
            Ok((2..4, true))
        );
        assert_eq!(page(Protocol::Messages, "after_id=model-0004", 5), Ok((5..5, false)));
        assert_eq!(
            page(Protocol::Messages, "before_id=model-0004&limit=2", 5),
            Ok((2..4, true))
        );
        assert_eq!(page(Protocol::Messages, "before_id=model-0000", 5), Ok((0..0, false)));
        assert_eq!(
            page(Protocol::Gemini, "pageToken=model-0001&pageSize=9", 5),
            Ok((2..5, false))
        );
        assert_eq!(page(Protocol::Gemini, "pageToken=", 5), Ok((0..5, false)));
        for bad in [
            "after_id=nobody",
            "before_id=",
            "after_id=model-0001&before_id=model-0003",
        ] {
            assert!(page(Protocol::Messages, bad, 5).is_err(), "{bad}");
        }
        assert!(page(Protocol::Gemini, "pageToken=nobody", 5).is_err());
    }

    proptest! {
        #[test]
        fn the_pages_together_are_the_list(count in 0_usize..60, size in 1_usize..12) {
            let names = names(count);
            for shape in [Protocol::Messages, Protocol::Gemini] {
                let (mut seen, mut last) = (Vec::new(), None::<usize>);
                loop {
                    let query = match (shape, last) {
                        (Protocol::Messages, None) => format!("limit={size}"),
                        (Protocol::Messages, Some(last)) => format!("limit={size}&after_id={}", names[last]),
                        (_, None) => format!("pageSize={size}"),
                        (_, Some(last)) => format!("pageSize={size}&pageToken={}", names[last]),
                    };
                    let (range, more) = page(shape, &query, count).unwrap();
                    prop_assert!(range.len() <= size && (!more || range.len() == size));
                    last = range.clone().last();
                    seen.extend(range);
                    if !more {
                        break;
                    }
                }
                prop_assert_eq!(seen, (0..count).collect::<Vec<_>>());
            }
        }
    }
}
