//! Refusals that concern a request's body.

use super::*;

#[test]
fn a_coded_body_is_refused_in_the_protocols_own_words() {
    for (refusal, code) in [
        (
            Refusal::BodyEncodingUnsupported {
                encoding: "compress".to_owned(),
            },
            "request_body_encoding_unsupported",
        ),
        (
            Refusal::BodyEncodingInvalid { encoding: "br" },
            "request_body_encoding_invalid",
        ),
        (
            Refusal::BodyTooLargeDecoded { limit_bytes: 1 },
            "request_body_too_large_after_decoding",
        ),
    ] {
        assert_eq!(
            body(&refusal, Protocol::Messages)["error"]["details"]["error_code"],
            code
        );
    }
}

#[test]
fn who_has_too_much_under_way_is_told_to_come_again() {
    for refusal in [
        Refusal::BodyShareUsed {
            whose: BodyShare::Key,
            bytes_max: 7,
        },
        Refusal::BodyShareUsed {
            whose: BodyShare::Address,
            bytes_max: 7,
        },
        Refusal::BodyWorkLimited,
    ] {
        for protocol in PROTOCOLS {
            let reply = refusal.reply(protocol, "req_1");
            assert_eq!(
                (reply.status, header(&reply, "retry-after").as_deref()),
                (429, Some("1"))
            );
        }
        assert_eq!(body(&refusal, Protocol::Messages)["error"]["type"], "rate_limit_error");
        assert_eq!(
            body(&refusal, Protocol::Responses)["error"]["code"],
            "rate_limit_exceeded"
        );
        assert_eq!(
            body(&refusal, Protocol::Gemini)["error"]["status"],
            "RESOURCE_EXHAUSTED"
        );
        assert!(refusal.is_client_fault(), "it counts in the key's rate");
    }
    assert!(!Refusal::BodyBudgetExhausted.is_client_fault() && !Refusal::StoreUnavailable.is_client_fault());
}
