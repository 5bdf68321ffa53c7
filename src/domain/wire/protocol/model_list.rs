//! Writes the list of models in the three forms that clients of the protocols expect on the same path.

use std::ops::Range;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::domain::wire::{protocol::Protocol, query_value};

/// A model as it appears in a list of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedModel {
    /// The name that clients send in requests.
    pub id: String,
    /// The model's name as displayed to users.
    pub display_name: String,
    /// When the model was released, in seconds since the Unix epoch.
    pub created_unix: i64,
    /// The maximum number of input tokens; `None` if it is unknown.
    pub context_tokens: Option<u64>,
    /// The maximum number of output tokens; `None` if it is unknown.
    pub output_tokens: Option<u64>,
    /// The name of the model's provider.
    pub owner: String,
}

/// Returns the body of a list: one page of models, in the given order. `has_more` is true if another page follows.
pub(crate) fn models_list(shape: Protocol, models: &[ListedModel], has_more: bool) -> Vec<u8> {
    let entries: Vec<Value> = models.iter().map(|model| list_entry(shape, model)).collect();
    let list = match shape {
        Protocol::Messages => json!({
            "data": entries,
            "has_more": has_more,
            "first_id": models.first().map(|model| &model.id),
            "last_id": models.last().map(|model| &model.id),
        }),
        Protocol::Responses => json!({ "object": "list", "data": entries }),
        Protocol::Gemini => match models.last().filter(|_| has_more) {
            // The next page begins after this name, see `requested_page`.
            Some(last) => json!({ "models": entries, "nextPageToken": last.id }),
            None => json!({ "models": entries }),
        },
    };
    list.to_string().into_bytes()
}

/// Returns the body for a single model.
pub(crate) fn model_entry(shape: Protocol, model: &ListedModel) -> Vec<u8> {
    list_entry(shape, model).to_string().into_bytes()
}

fn list_entry(shape: Protocol, model: &ListedModel) -> Value {
    match shape {
        Protocol::Messages => json!({
            "type": "model",
            "id": model.id,
            "display_name": model.display_name,
            "created_at": rfc3339(model.created_unix),
            "lifecycle": "active",
            "deprecated_at": null,
            "retires_at": null,
            "max_input_tokens": model.context_tokens,
            "max_tokens": model.output_tokens,
            "capabilities": null,
        }),
        Protocol::Responses => json!({
            "id": model.id,
            "object": "model",
            "created": model.created_unix,
            "owned_by": model.owner,
        }),
        Protocol::Gemini => gemini_entry(model),
    }
}

fn gemini_entry(model: &ListedModel) -> Value {
    let mut entry = json!({
        "name": format!("models/{}", model.id),
        "version": model.id,
        "displayName": model.display_name,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    });
    if let Value::Object(fields) = &mut entry {
        // The protocol omits unknown values. A `null` would break typed clients of the protocol.
        for (name, tokens) in [
            ("inputTokenLimit", model.context_tokens),
            ("outputTokenLimit", model.output_tokens),
        ] {
            if let Some(tokens) = tokens {
                fields.insert(name.to_owned(), json!(tokens));
            }
        }
    }
    entry
}

/// Returns a Unix time in seconds in the form of RFC 3339; the Unix epoch if the time is out of range.
fn rfc3339(unix: i64) -> String {
    Timestamp::from_second(unix)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .to_string()
}

/// The maximum number of models on a page.
const PAGE_MODELS_MAX: usize = 1000;
/// The default number of models on a page of the Messages protocol.
const MESSAGES_PAGE_MODELS: usize = 20;
/// The default number of models on a page of the Gemini-style protocol.
const GEMINI_PAGE_MODELS: usize = 50;

/// One page of a list of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelListPage {
    /// The indexes of the page's models in the list.
    pub range: Range<usize>,
    /// Whether more models follow in the requested direction.
    pub has_more: bool,
}

/// Returns the page that `query` requests (docs/interface.md, Model lists). `names` are the names of all models in the complete
/// list.
///
/// # Errors
/// A page size is invalid or out of range, or a name is not in the list. The error is a message for the client.
pub(crate) fn requested_page(shape: Protocol, query: Option<&str>, names: &[&str]) -> Result<ModelListPage, String> {
    match shape {
        Protocol::Messages => messages_page(query, names),
        Protocol::Gemini => {
            let size = page_size(query, "pageSize", GEMINI_PAGE_MODELS)?;
            // The token is the last name of the previous page. Names do not change, and the list is sorted by them, so the token
            // stays valid.
            let start = match query_value(query, "pageToken")?.filter(|token| !token.is_empty()) {
                Some(token) => model_index(names, &token, "pageToken")? + 1,
                None => 0,
            };
            Ok(page_from(start, size, names.len()))
        }
        // The Responses protocol has no paging.
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
    found.ok_or_else(|| format!("`{parameter}` does not name a model of this list"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> ListedModel {
        ListedModel {
            id: "sample-large".to_owned(),
            display_name: "Sample Large".to_owned(),
            created_unix: 1_790_000_000,
            context_tokens: Some(200_000),
            output_tokens: None,
            owner: "sample".to_owned(),
        }
    }

    fn list(shape: Protocol, models: &[ListedModel]) -> Value {
        serde_json::from_slice(&models_list(shape, models, false)).unwrap()
    }

    #[test]
    fn each_shape_is_its_protocols_own() {
        let messages = list(Protocol::Messages, &[sample()]);
        assert_eq!(messages["data"][0]["type"], "model");
        assert_eq!(messages["data"][0]["created_at"], "2026-09-21T14:13:20Z");
        assert_eq!(messages["data"][0]["max_input_tokens"], 200_000);
        assert_eq!(
            (&messages["first_id"], &messages["has_more"]),
            (&json!("sample-large"), &json!(false))
        );
        let responses = list(Protocol::Responses, &[sample()]);
        assert_eq!(responses["object"], "list");
        assert_eq!(responses["data"][0]["owned_by"], "sample");
        assert_eq!(responses["data"][0]["created"], 1_790_000_000);
        let gemini = list(Protocol::Gemini, &[sample()]);
        assert_eq!(gemini["models"][0]["name"], "models/sample-large");
        assert_eq!(gemini["models"][0]["inputTokenLimit"], 200_000);
        assert!(gemini["models"][0].get("outputTokenLimit").is_none());
    }

    #[test]
    fn a_page_says_that_there_are_more() {
        let page = |shape| serde_json::from_slice::<Value>(&models_list(shape, &[sample()], true)).unwrap();
        assert_eq!(page(Protocol::Messages)["has_more"], true);
        assert_eq!(page(Protocol::Messages)["last_id"], "sample-large");
        assert_eq!(page(Protocol::Gemini)["nextPageToken"], "sample-large");
        assert!(list(Protocol::Gemini, &[sample()]).get("nextPageToken").is_none());
    }

    #[test]
    fn an_empty_list_is_one() {
        assert_eq!(list(Protocol::Messages, &[])["first_id"], Value::Null);
        assert_eq!(list(Protocol::Gemini, &[])["models"], json!([]));
    }

    #[test]
    fn one_model_is_the_entry_of_the_list() {
        for shape in [Protocol::Messages, Protocol::Responses, Protocol::Gemini] {
            let one: Value = serde_json::from_slice(&model_entry(shape, &sample())).unwrap();
            let many = list(shape, &[sample()]);
            assert!(many.get("data").or(many.get("models")).unwrap()[0] == one);
        }
    }

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
