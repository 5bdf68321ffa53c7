//! What a path answers to a method that it does not have.

use std::collections::BTreeSet;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::Fixture;

/// The methods that questions have, and some that none has.
const METHODS: [&str; 6] = ["GET", "POST", "PATCH", "DELETE", "PUT", "OPTIONS"];

/// What comes back on a connection of its own, head and body.
async fn asked(admin: &Fixture, method: &str, path: &str) -> (String, String) {
    let socket = admin.folder.path().join("admin.sock");
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: weir\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Each path of the description with its methods.
async fn paths(admin: &Fixture) -> Vec<(String, BTreeSet<String>)> {
    let document = admin.get("/v1/openapi.json").await;
    let described = document["paths"].as_object().unwrap().iter();
    let methods = |of: &Value| of.as_object().unwrap().keys().map(|name| name.to_uppercase()).collect();
    let described = described.map(|(path, of)| (path.clone(), methods(of)));
    described
        .chain([("/v1/openapi.json".to_owned(), ["GET".to_owned()].into())])
        .collect()
}

#[tokio::test]
async fn a_method_that_a_path_does_not_have_is_an_error_of_the_api_that_says_which_it_has() {
    let admin = Fixture::new().await;
    let paths = paths(&admin).await;
    assert!(paths.len() > 20, "{paths:?}");
    for (path, methods) in paths {
        let segments = path
            .split('/')
            .map(|part| if part.starts_with('{') { "secretlooking" } else { part });
        let target = segments.collect::<Vec<_>>().join("/");
        for method in METHODS.into_iter().filter(|method| !methods.contains(*method)) {
            let (head, body) = asked(&admin, method, &target).await;
            assert!(head.starts_with("HTTP/1.1 405 "), "{method} {path}: {head}");
            let allow = head.lines().find_map(|line| line.strip_prefix("allow: ")).unwrap();
            let allow = allow.split(',').filter(|name| *name != "HEAD").map(str::to_owned);
            assert_eq!(allow.collect::<BTreeSet<_>>(), methods, "{method} {path}");
            let error: Value = serde_json::from_str(&body).unwrap();
            let error = &error["error"];
            assert_eq!(error["code"], "method_not_allowed", "{method} {path}");
            let message = error["message"].as_str().unwrap();
            assert!(
                message.starts_with(&format!("{path} does not support {method}: use ")),
                "{message}"
            );
            assert!(methods.iter().all(|name| message.contains(name.as_str())), "{message}");
        }
    }
    assert_eq!(admin.audit(), "", "nothing is recorded");
}
