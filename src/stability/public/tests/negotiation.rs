//! In which form an answer is given, and to whom it is not given again.

use super::*;

fn unpacked(answer: &PublicResponse) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut bytes = &answer.body[..];
    match header(answer, "content-encoding") {
        "" => plain.extend_from_slice(bytes),
        "gzip" => drop(flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap()),
        "br" => brotli::BrotliDecompress(&mut bytes, &mut plain).unwrap(),
        other => panic!("{other}"),
    }
    plain
}

#[test]
fn every_coding_holds_the_same_bytes_under_a_tag_of_its_own() {
    let service = Service::new(counted("m"));
    let target = "/web/v1/model-stability/m";
    let plain = service.get(target);
    let mut tags = vec![header(&plain, "etag").to_owned()];
    for (accept, coding) in [("gzip", "gzip"), ("gzip, br", "br"), ("br;q=0.5, gzip;q=0.9", "gzip")] {
        let packed = service.get_with(target, &[("accept-encoding", accept)]);
        assert_eq!(header(&packed, "content-encoding"), coding);
        assert_eq!(header(&packed, "vary"), "accept-encoding");
        assert!(packed.body.len() < plain.body.len() / 2, "{accept}");
        assert_eq!(unpacked(&packed), plain.body, "{accept}");
        tags.push(header(&packed, "etag").to_owned());
    }
    assert_eq!(tags[1], tags[3]);
    tags.dedup();
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 3, "{tags:?}");
}

#[test]
fn who_has_an_answer_is_told_so_in_the_same_coding() {
    let service = Service::new(counted("m"));
    for target in [
        "/web/v1/model-stability/m",
        "/web/v1/model-stability/summary",
        "/status",
        "/web/v1/openapi.json",
    ] {
        for accept in ["identity", "br", "gzip"] {
            let whole = service.get_with(target, &[("accept-encoding", accept)]);
            let tag = header(&whole, "etag").to_owned();
            assert_eq!(header(&whole, "cache-control"), "public, max-age=5");
            for known in [tag.clone(), format!("\"other\", W/{tag}"), "*".to_owned()] {
                for method in [Method::GET, Method::HEAD] {
                    let headers = [("accept-encoding", accept), ("if-none-match", known.as_str())];
                    let answer = service.ask(&method, target, &headers).unwrap();
                    assert_eq!(answer.status, StatusCode::NOT_MODIFIED, "{target} {known}");
                    assert!(answer.body.is_empty() && !answer.has_body());
                    for same in ["etag", "cache-control", "vary", "access-control-allow-origin"] {
                        assert_eq!(header(&answer, same), header(&whole, same), "{same}");
                    }
                }
            }
            let headers = [("accept-encoding", accept), ("if-none-match", "\"other\"")];
            assert_eq!(service.get_with(target, &headers).status, StatusCode::OK);
        }
    }
}

#[test]
fn the_tag_of_the_summary_changes_with_its_content_alone() {
    let service = Service::new(counted("m"));
    let tag = |service: &Service| header(&service.get("/web/v1/model-stability/summary"), "etag").to_owned();
    let first = tag(&service);
    let snapshot = |buckets| {
        Some(Arc::new(Snapshot {
            read_at_ms: NOW_MS + 5000,
            buckets,
        }))
    };
    service.reads.snapshot.store(snapshot(counted("m")));
    assert_eq!(tag(&service), first, "read again, the same");
    service.reads.snapshot.store(snapshot(counted("n")));
    assert_ne!(tag(&service), first);
}

#[test]
fn a_client_that_takes_no_coding_at_all_is_told() {
    let service = Service::new(counted("m"));
    let answer = service.get_with("/web/v1/model-stability/m", &[("accept-encoding", "identity;q=0")]);
    assert_eq!(
        (answer.status.as_u16(), code(&answer)),
        (406, "encoding_not_available".to_owned())
    );
}

#[test]
fn head_is_answered_with_what_get_would_have() {
    let service = Service::new(counted("m"));
    for target in ["/web/v1/model-stability/m", "/status"] {
        let (get, head) = (service.get(target), service.ask(&Method::HEAD, target, &[]).unwrap());
        assert_eq!(
            (get.status, &get.headers, get.body.len()),
            (head.status, &head.headers, head.body.len())
        );
    }
}

#[test]
fn the_description_names_every_code_and_path() {
    let answer = Service::new(BTreeMap::new()).get("/web/v1/openapi.json");
    let document = json(&answer);
    assert_eq!(header(&answer, "content-type"), "application/json; charset=utf-8");
    let codes = document["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["code"]["enum"].clone();
    for refusal in [
        PublicRefusal::HoursNotSupported,
        PublicRefusal::ModelNotFound,
        PublicRefusal::PathNotFound,
        PublicRefusal::MethodNotAllowed,
        PublicRefusal::EncodingNotAvailable,
        PublicRefusal::RateLimited { wait: Duration::ZERO },
        PublicRefusal::NotReady,
    ] {
        let code = json(&refusal.answer())["error"]["code"].clone();
        assert!(codes.as_array().unwrap().contains(&code), "{code}");
    }
    for path in document["paths"].as_object().unwrap().keys() {
        assert!(PublicPath::parse(path).is_some(), "{path}");
    }
    assert!(String::from_utf8_lossy(&answer.body).contains("a stream that the provider broke counts as a failure"));
}
