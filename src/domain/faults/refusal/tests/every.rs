//! Every refusal.

use super::*;

/// One of each, or several where the words differ.
pub(super) fn all() -> Vec<Refusal> {
    [of_head_and_model(), of_body_and_service()].concat()
}

fn of_head_and_model() -> Vec<Refusal> {
    let model = || "sample-large".to_owned();
    vec![
        Refusal::HeadInvalid(HeadFault::Host),
        Refusal::HeadTimeout,
        Refusal::HeadGaveWay,
        Refusal::BodyFramingInvalid,
        Refusal::UnknownPath,
        Refusal::MethodNotAllowed { allow: "POST" },
        Refusal::ChatCompletionsRemoved,
        Refusal::CredentialMissing,
        Refusal::CredentialAmbiguous,
        Refusal::BearerSchemeMissing,
        Refusal::KeyUnknown,
        Refusal::KeyNotLookedUp {
            wait: Duration::from_millis(100),
        },
        Refusal::KeyRevoked,
        Refusal::KeyReplaced,
        Refusal::KeyExpired,
        Refusal::ModelNotAllowed { model: model() },
        Refusal::NamedModelNotAllowed { model: model() },
        Refusal::ModelUnknown { model: model() },
        Refusal::ModelNotServed {
            model: model(),
            protocols: vec![Protocol::Messages, Protocol::Gemini],
        },
        Refusal::ModelNotServed {
            model: model(),
            protocols: Vec::new(),
        },
        Refusal::CountTokensUnsupported {
            model: model(),
            possible: Vec::new(),
        },
        Refusal::CountTokensUnsupported {
            model: model(),
            possible: vec!["sample-small".to_owned()],
        },
        Refusal::CountTokensBusy { concurrency: 64 },
        Refusal::UpgradeUnavailable,
        Refusal::UpgradeRemoved,
        Refusal::BodyEncodingInvalid { encoding: "gzip" },
        Refusal::BodyTooLargeDecoded { limit_bytes: 7 },
        Refusal::ModelPathInvalid,
        Refusal::BodyInvalid {
            reason: "`model` is missing".to_owned(),
        },
    ]
}

fn of_body_and_service() -> Vec<Refusal> {
    let model = || "sample-large".to_owned();
    vec![
        Refusal::BodyEncodingUnsupported {
            encoding: "compress".to_owned(),
        },
        Refusal::BodyTooLarge {
            limit_bytes: 33_554_432,
        },
        Refusal::LengthRequired,
        Refusal::BodyTimeout,
        Refusal::HeadersTooLarge,
        Refusal::ExpectationUnknown,
        Refusal::Untranslatable {
            path: "input[2].file_id".to_owned(),
            reason: "send the file itself".to_owned(),
        },
        Refusal::QueryInvalid {
            reason: "`key` comes twice".to_owned(),
        },
        Refusal::TagsInvalid(TagsFault::TooMany),
        Refusal::UsageUnseen { place: "background" },
        Refusal::StateUnknown {
            kind: StateKind::Response,
            id: "resp_1".to_owned(),
        },
        Refusal::StateUnknown {
            kind: StateKind::Thread,
            id: "thread_1".to_owned(),
        },
        Refusal::OwnUsageLimited {
            wait: Duration::from_secs(2),
        },
        Refusal::TooManyRunning,
        Refusal::BodyBudgetExhausted,
        Refusal::BodyShareUsed {
            whose: BodyShare::Key,
            bytes_max: 7,
        },
        Refusal::BodyShareUsed {
            whose: BodyShare::Address,
            bytes_max: 7,
        },
        Refusal::BodyWorkLimited,
        Refusal::StoreUnavailable,
        Refusal::JournalFull,
        Refusal::Limited(LimitRefusal::Balance),
        Refusal::ProviderDisabled { model: model() },
        Refusal::ProviderUnreachable,
        Refusal::ProviderTimeout,
        Refusal::ProviderBroken,
        Refusal::ProviderRedirected { status: 307 },
        Refusal::ProviderCredentialRefused,
        Refusal::Stopping,
        Refusal::Internal,
    ]
}
