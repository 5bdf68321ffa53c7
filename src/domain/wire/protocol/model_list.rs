//! The list of models, in the three shapes that clients expect on the same path.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::domain::wire::protocol::Protocol;

/// A model as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedModel {
    /// The name to use in requests.
    pub id: String,
    /// The human-readable name.
    pub display_name: String,
    /// The time of its release, in seconds since the Unix epoch.
    pub created_unix: i64,
    /// The maximum number of input tokens, if known.
    pub context_tokens: Option<u64>,
    /// The maximum number of output tokens, if known.
    pub output_tokens: Option<u64>,
    /// The name of its provider.
    pub owner: String,
}

/// The body of a list: one page of models, in the given order; `has_more` says whether another page follows.
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

/// The body for one model.
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
        // The protocol omits unknown values; a null would break its typed clients.
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

/// The time in RFC 3339, or the epoch if it is out of range.
fn rfc3339(unix: i64) -> String {
    Timestamp::from_second(unix)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
