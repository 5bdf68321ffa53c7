//! Answers of Prometheus and of others, and who shares them.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::edges::clock;

const ALERTS: &str = r#"{"status":"success","data":{"alerts":[
    {"labels":{"alertname":"B","severity":"warning"},"annotations":{},"state":"firing","activeAt":"2026-11-27T03:18:58.123456789Z","value":"1e+00"},
    {"labels":{"alertname":"C","severity":"critical"},"state":"pending","activeAt":"2026-11-27T03:18:58Z","value":"1"},
    {"labels":{"alertname":"E"},"state":"inactive","activeAt":"2026-11-27T03:18:58Z"},
    {"labels":{"alertname":"D","severity":"critical"},"annotations":{"summary":"words","description":"more"},"state":"firing",
    "activeAt":"2026-11-27T03:18:58Z","keepFiringSince":"2026-11-27T03:18:58Z"}]}}"#;

#[test]
fn alerts_are_sorted_by_how_grave_they_are() {
    let alerts = parse_alerts(StatusCode::OK, ALERTS.as_bytes()).unwrap();
    let names: Vec<&str> = alerts.iter().map(|alert| alert.labels.alertname.as_str()).collect();
    assert_eq!(names, ["D", "B", "C"]);
    assert_eq!(alerts[0].annotations.summary, "words");
    let none = br#"{"status":"success","data":{"alerts":[]}}"#;
    assert!(parse_alerts(StatusCode::OK, none).unwrap().is_empty());
}

#[test]
fn whatever_is_no_list_of_alerts_is_said_without_its_words() {
    let why = |status: StatusCode, body: &str| parse_alerts(status, body.as_bytes()).unwrap_err();
    for body in [
        "",
        "<html>canary</html>",
        "[]",
        r#"{"status":"error","error":"canary"}"#,
        r#"{"data":{"alerts":[{"labels":{},"state":"firing","activeAt":"2026-11-27T03:18:58Z"}]}}"#,
        r#"{"data":{"alerts":[{"labels":{"alertname":"A"},"state":"firing","activeAt":"canary"}]}}"#,
    ] {
        assert_eq!(
            why(StatusCode::OK, body),
            "its response is not a list of alerts",
            "{body}"
        );
    }
    assert_eq!(why(StatusCode::FOUND, "canary"), "it responded with status 302");
}

#[tokio::test]
async fn all_who_look_at_one_moment_share_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/prometheus/", listener.local_addr().unwrap());
    let alerts = Alerts::new(&url.parse().unwrap(), None).unwrap();
    let now = clock::instant();
    let first = tokio::spawn(alerts.read(now));
    let (mut stream, _) = listener.accept().await.unwrap();
    // One who leaves takes the answer from nobody.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let second = tokio::spawn(alerts.read(now + SHARED_FOR - Duration::from_millis(1)));
    let mut asked = vec![0; 1024];
    let count = stream.read(&mut asked).await.unwrap();
    let asked = String::from_utf8_lossy(&asked[..count]).into_owned();
    assert!(
        asked.starts_with("GET /prometheus/api/v1/alerts HTTP/1.1\r\n"),
        "{asked}"
    );
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{ALERTS}", ALERTS.len());
    stream.write_all(answer.as_bytes()).await.unwrap();
    let (second, third) = (second.await.unwrap(), alerts.read(now).await);
    assert_eq!(second.as_ref().as_ref().unwrap().len(), 3);
    assert!(Arc::ptr_eq(&second, &third));
    drop((stream, listener));
    let later = alerts.read(now + SHARED_FOR).await;
    let why = later.as_ref().as_ref().unwrap_err();
    assert!(why.starts_with("cannot connect: "), "{why}");
}
