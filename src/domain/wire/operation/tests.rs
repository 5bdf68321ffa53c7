//! Tests of request lines.

use proptest::prelude::*;

use super::*;

fn forward(operation: Operation, model: Option<&str>) -> Result<RequestTarget, RequestTargetError> {
    Ok(RequestTarget::Forward {
        operation,
        model: model.map(str::to_owned),
    })
}

#[test]
fn every_route_of_the_interface_is_found() {
    assert_eq!(read_target("POST", "/v1/messages"), forward(Operation::Messages, None));
    assert_eq!(
        read_target("POST", "/v1/messages/count_tokens"),
        forward(Operation::CountTokens, None)
    );
    assert_eq!(
        read_target("POST", "/v1/responses"),
        forward(Operation::Responses, None)
    );
    assert_eq!(read_target("GET", "/v1/models"), Ok(RequestTarget::ListModels));
    assert_eq!(read_target("HEAD", "/web/v1/me"), Ok(RequestTarget::OwnUsage));
    for prefix in ["/v1beta/models/", "/v1/models/"] {
        for (verb, operation) in [
            ("generateContent", Operation::GenerateContent),
            ("streamGenerateContent", Operation::StreamGenerateContent),
            ("countTokens", Operation::GeminiCountTokens),
        ] {
            assert_eq!(
                read_target("POST", &format!("{prefix}gemini-3.5:{verb}")),
                forward(operation, Some("gemini-3.5"))
            );
            assert_eq!(
                read_target("POST", &format!("{prefix}gemini-3.5%3A{verb}")),
                forward(operation, Some("gemini-3.5"))
            );
        }
    }
}

#[test]
fn wrong_methods_name_the_right_one() {
    assert_eq!(
        read_target("GET", "/v1/messages"),
        Err(RequestTargetError::MethodNotAllowed { allow: "POST" })
    );
    assert_eq!(
        read_target("POST", "/v1/models"),
        Err(RequestTargetError::MethodNotAllowed { allow: "GET, HEAD" })
    );
    assert_eq!(
        read_target("GET", "/v1beta/models/m:generateContent"),
        Err(RequestTargetError::MethodNotAllowed { allow: "POST" })
    );
}

#[test]
fn a_path_may_name_any_model() {
    for (path, model) in [
        ("deepseek-v4-pro%5B1m%5D", "deepseek-v4-pro[1m]"),
        ("a%2Fb", "a/b"),
        ("a/b", "a/b"),
        ("a:b", "a:b"),
        ("a%3Ab", "a:b"),
        ("a@b", "a@b"),
        ("a%20b%3F%23", "a b?#"),
        ("%E6%A8%A1%E5%9E%8B", "\u{6a21}\u{578b}"),
        // Decoded once: this is looked up with its percent sign.
        ("%252e%252e", "%2e%2e"),
    ] {
        for colon in [":", "%3A"] {
            let path = format!("/v1beta/models/{path}{colon}generateContent");
            assert_eq!(
                read_target("POST", &path),
                forward(Operation::GenerateContent, Some(model)),
                "{path}"
            );
        }
    }
}

#[test]
fn a_path_that_names_no_model_is_refused() {
    let long = "m".repeat(BYTES_MAX + 1);
    for bad in [
        "..",
        "%2e%2e",
        "a%2F..%2Fb",
        "a/../b",
        "/a",
        "a/",
        "a%0d%0ab",
        "a%00",
        "%20a",
        "a%E2%80%AEb",
        "%ff",
        "",
        &long,
    ] {
        let path = format!("/v1beta/models/{bad}:generateContent");
        assert_eq!(
            read_target("POST", &path),
            Err(RequestTargetError::ModelPathInvalid),
            "{path}"
        );
    }
    assert_eq!(
        read_target("POST", "/v1beta/models/a:generateContent/"),
        Err(RequestTargetError::UnknownPath)
    );
}

#[test]
fn a_listed_model_may_have_any_name_of_a_catalogue() {
    let show = |model: &str| {
        Ok(RequestTarget::ShowModel {
            model: model.to_owned(),
        })
    };
    for method in ["GET", "HEAD"] {
        for prefix in ["/v1/models/", "/v1beta/models/"] {
            for (path, model) in [
                ("plain-1.5", "plain-1.5"),
                ("a%2Fb", "a/b"),
                ("a/b", "a/b"),
                ("a%3Ab", "a:b"),
                ("a:b", "a:b"),
                ("a@b", "a@b"),
                ("a%5B1m%5D", "a[1m]"),
                ("a%252Fb", "a%2Fb"),
            ] {
                assert_eq!(read_target(method, &format!("{prefix}{path}")), show(model), "{path}");
            }
            for bad in ["", "..", "a/../b", "a%2F..", "/a", "a/", "a%0d%0ab", "a%00", "a%20"] {
                let found = read_target(method, &format!("{prefix}{bad}"));
                assert_eq!(found, Err(RequestTargetError::ModelPathInvalid), "{bad}");
            }
        }
    }
    assert_eq!(
        read_target("POST", "/v1/models/a%2Fb"),
        Err(RequestTargetError::MethodNotAllowed { allow: "GET, HEAD" })
    );
}

#[test]
fn somebody_is_there() {
    for (method, path) in [("HEAD", "/"), ("HEAD", "/api/hello"), ("GET", "/api/hello")] {
        assert_eq!(read_target(method, path), Ok(RequestTarget::Hello));
    }
    assert_eq!(read_target("GET", "/"), Err(RequestTargetError::UnknownPath));
    assert_eq!(
        read_target("POST", "/api/hello"),
        Err(RequestTargetError::MethodNotAllowed { allow: "GET, HEAD" })
    );
}

#[test]
fn unknown_paths_have_the_shape_of_their_prefix() {
    assert_eq!(error_protocol("/v1/messages/batches"), Protocol::Messages);
    assert_eq!(error_protocol("/v1/embeddings"), Protocol::Responses);
    assert_eq!(error_protocol("/v1beta/files"), Protocol::Gemini);
    assert_eq!(error_protocol("/v1/models/m:embedContent"), Protocol::Gemini);
    assert_eq!(
        error_protocol("/v1beta/tunedModels/t:generateContent"),
        Protocol::Gemini
    );
    assert_eq!(error_protocol("/v1/tunedModels/t:generateContent"), Protocol::Gemini);
    assert_eq!(error_protocol("/"), Protocol::Responses);
}

#[test]
fn the_key_leaves_the_query_in_every_spelling() {
    let (left, keys) = split_key("alt=sse&key=abc&%6bey=d%2De&x=1&key&$key=f&%24key=g");
    assert_eq!(left, "alt=sse&x=1");
    assert_eq!(keys, ["abc", "d-e", "", "f", "g"]);
}

proptest! {
    #[test]
    fn no_path_yields_a_model_that_none_can_be_named_or_that_climbs(path in "([ -~]|%[0-9a-f]{2}|/){0,60}") {
        let path = format!("/v1beta/models/{path}");
        for method in ["POST", "GET"] {
            if let Ok(RequestTarget::Forward { model: Some(model), .. } | RequestTarget::ShowModel { model }) = read_target(method, &path) {
                prop_assert!(is_plausible(&model));
                prop_assert!(model.split('/').all(|part| !matches!(part, "" | "." | "..")));
            }
        }
    }
}
