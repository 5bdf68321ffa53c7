//! What hides the usage of an answer.

use super::{LIMITS, scan};

#[test]
fn what_hides_the_usage_is_named_whatever_its_value_may_mean() {
    let place = |body: &str| scan(body.as_bytes(), &LIMITS).unwrap().unseen_usage;
    for body in [
        r#"{"background":true}"#,
        r#"{"background":false,"b\u0061ckground":true}"#,
        r#"{"background":"yes"}"#,
        r#"{"background":1}"#,
        r#"{"background":[]}"#,
    ] {
        assert_eq!(place(body), Some("background"), "{body}");
    }
    for body in [
        r#"{"stream_options":{"include_usage":false}}"#,
        r#"{"stream_options":{"include_usage":0}}"#,
    ] {
        assert_eq!(place(body), Some("stream_options.include_usage"), "{body}");
    }
    for body in [
        r#"{"background":false}"#,
        r#"{"background":null,"stream_options":{"include_usage":true,"a":{"include_usage":false}}}"#,
        r#"{"a":{"background":true},"include_usage":false}"#,
    ] {
        assert_eq!(place(body), None, "{body}");
    }
}
