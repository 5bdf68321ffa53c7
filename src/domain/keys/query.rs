//! Query parameters that weir refuses or forwards.

use crate::domain::{
    keys::not_forwarded::{self, PresentedKey},
    wire::{
        operation::Operation,
        query_value::{decode_query_text, parameter_name, query_value},
    },
};

/// Parameters that change a Gemini-style answer so that it lacks its usage or has a form that no client of weir requests, in
/// both of Google's spellings (<https://cloud.google.com/apis/docs/system-parameters>).
const ANSWER_CHANGING_PARAMETERS: [&str; 5] = ["$alt", "$callback", "$fields", "callback", "fields"];

/// The only parameter of a Gemini-style request that is forwarded.
const ALT: &str = "alt";

/// Checks that the query of a Gemini-style request has no parameter that changes the answer, except `alt`, which chooses its
/// form.
///
/// # Errors
/// The query has such a parameter, or an `alt` that the operation does not support. The error is the message to the client.
pub(crate) fn check_query(operation: Operation, query: Option<&str>) -> Result<(), String> {
    if !operation.has_model_in_path() {
        return Ok(());
    }
    let mut names = query
        .unwrap_or_default()
        .split('&')
        .map(|pair| decode_query_text(parameter_name(pair)));
    if let Some(name) = names.find(|name| ANSWER_CHANGING_PARAMETERS.contains(&name.as_str())) {
        return Err(format!("`{name}` is not offered here, leave it out"));
    }
    let streams = operation == Operation::StreamGenerateContent;
    match query_value(query, ALT)?.as_deref() {
        None | Some("json") => Ok(()),
        Some("sse") if streams => Ok(()),
        Some(_) if streams => Err("`alt` is neither `sse` nor `json`".to_owned()),
        Some(_) => Err("`alt` can only be `json` here; `sse` goes with streamGenerateContent".to_owned()),
    }
}

/// The part of a checked query that goes to the provider, each parameter as it is written. For a Gemini-style request, only
/// `alt`; for others, all parameters except withheld ones (`is_withheld_parameter`) and those that contain the client's key.
/// `None`: no query.
pub(crate) fn forwarded_query(operation: Operation, query: Option<&str>, key: &PresentedKey<'_>) -> Option<String> {
    let passes = |pair: &&str| match operation.has_model_in_path() {
        true => decode_query_text(parameter_name(pair)) == ALT,
        false => {
            !pair.is_empty()
                && !not_forwarded::is_withheld_parameter(parameter_name(pair))
                && !key.is_in(pair.as_bytes())
        }
    };
    let kept: Vec<&str> = query?.split('&').filter(passes).collect();
    Some(kept.join("&")).filter(|query| !query.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::keys::secret::{KeyPrefix, ServiceKey};

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
            Err("`$fields` is not offered here, leave it out".to_owned())
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
}
