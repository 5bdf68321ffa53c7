//! Events posted to receivers of every manner.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::{
    journal::NumberedRow,
    sinks::contract::{self, Place, batch, node},
};

const SECRET: &str = "whsec-events";
const TOKEN: &str = "Bearer t0ken";

/// How the receiver takes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// With this status.
    Answers(u16),
    /// It takes the events and closes the connection without a word.
    ClosesLate,
    /// It takes the events, and says nothing until the sender has left.
    Silent,
    /// It takes the events and answers with too much.
    Babbles,
}

/// A receiver that knows events by their ids.
struct Receiver {
    port: u16,
    seen: Arc<Mutex<Seen>>,
    folder: TempDir,
}

#[derive(Default)]
struct Seen {
    /// By node and number, with how often each came.
    rows: BTreeMap<(String, u64), (NumberedRow, usize)>,
    /// What happens next; then everything is answered with 204.
    manners: VecDeque<Manner>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let shared = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self {
            port,
            seen,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn sink(&self) -> BillingEvents {
        BillingEvents::new(settings(self.port, self.folder.path())).unwrap()
    }

    fn next(&self, manners: &[Manner]) {
        self.seen.lock().manners.extend(manners);
    }

    /// How often each row of a node came.
    fn times(&self, node: &NodeId) -> Vec<usize> {
        let seen = self.seen.lock();
        let of_it = seen.rows.iter().filter(|((of, _), _)| *of == node.as_str());
        of_it.map(|(_, (_, times))| *times).collect()
    }
}

fn settings(port: u16, folder: &Path) -> EventsSettings {
    EventsSettings {
        url: format!("http://127.0.0.1:{port}/ingest?tenant=7").parse().unwrap(),
        secret: Secret::new(SECRET),
        authorization: Some(Secret::new(TOKEN)),
        source: "weir".to_owned(),
        ca: None,
        batch_rows: 500,
        connect: Duration::from_secs(20),
        answer: Duration::from_secs(30),
        folder: folder.to_owned(),
    }
}

/// Reads one request, checks what it says of itself, and does as it is told.
async fn serve(mut stream: TcpStream, seen: Arc<Mutex<Seen>>) {
    let mut read = Vec::new();
    let (head, body) = loop {
        let mut piece = vec![0; 64 * 1024];
        let Ok(count @ 1..) = stream.read(&mut piece).await else {
            return;
        };
        read.extend_from_slice(&piece[..count]);
        let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8(read[..end].to_vec()).unwrap();
        let length: usize = field(&head, "content-length").parse().unwrap();
        if read.len() >= end + 4 + length {
            break (head, read[end + 4..].to_vec());
        }
    };
    assert!(head.starts_with("POST /ingest?tenant=7 HTTP/1.1\r\n"), "{head}");
    assert_eq!(field(&head, "authorization"), TOKEN);
    assert_eq!(field(&head, "content-type"), "application/cloudevents-batch+json");
    let time: i64 = field(&head, "webhook-timestamp").parse().unwrap();
    let signer = WebhookSigner::new(&Secret::new(SECRET)).unwrap();
    for (name, value) in signer.headers(field(&head, "webhook-id"), time, &body) {
        assert_eq!(field(&head, name), value);
    }
    assert!((clock::unix_seconds() - time).abs() < 600);
    let manner = seen.lock().manners.pop_front().unwrap_or(Manner::Answers(204));
    if !matches!(manner, Manner::Answers(status) if status >= 300) {
        note(&mut seen.lock(), &body);
    }
    let answer = match manner {
        Manner::Answers(status) => format!("HTTP/1.1 {status} So\r\ncontent-length: 0\r\n\r\n").into_bytes(),
        Manner::Babbles => {
            let mut answer = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n".to_vec();
            answer.resize(answer.len() + 100_000, b'x');
            answer
        }
        Manner::ClosesLate => return,
        Manner::Silent => {
            let _ = stream.read(&mut [0]).await;
            return;
        }
    };
    let _ = stream.write_all(&answer).await;
}

fn field<'a>(head: &'a str, name: &str) -> &'a str {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(field, _)| field.eq_ignore_ascii_case(name)).unwrap().1
}

fn note(seen: &mut Seen, body: &[u8]) {
    let events: Vec<Value> = serde_json::from_slice(body).unwrap();
    for event in events {
        let (node, number) = event["id"].as_str().unwrap().rsplit_once('-').unwrap();
        let number = number.parse().unwrap();
        let row = serde_json::from_value(event["data"].clone()).unwrap();
        let entry = seen.rows.entry((node.to_owned(), number));
        entry.or_insert((NumberedRow { number, row }, 0)).1 += 1;
    }
}

#[async_trait]
impl Place for Receiver {
    async fn open(&self) -> Arc<dyn Sink> {
        Arc::new(self.sink())
    }

    async fn rows(&self, node: &NodeId) -> Vec<Arc<NumberedRow>> {
        let seen = self.seen.lock();
        let of_it = seen.rows.iter().filter(|((of, _), _)| *of == node.as_str());
        of_it.map(|(_, (row, _))| Arc::new(row.clone())).collect()
    }
}

#[tokio::test]
async fn with_a_receiver_that_knows_ids_it_obeys_the_contract() {
    contract::obeys(&Receiver::start().await).await;
}

#[tokio::test]
async fn what_the_receiver_has_not_acknowledged_is_posted_again_and_nothing_else() {
    let receiver = Receiver::start().await;
    let sink = receiver.sink();
    let first = batch(&node(1), 0, 3);
    let refusals = [500, 503, 429, 404, 301, 413].map(Manner::Answers);
    receiver.next(&refusals);
    for manner in refusals {
        let Manner::Answers(status) = manner else {
            unreachable!()
        };
        let refused = sink.append(&first).await.unwrap_err().to_string();
        assert!(refused.contains(&status.to_string()), "{refused}");
        assert_eq!(refused.contains("batch_rows"), status == 413, "{refused}");
        assert_eq!(sink.watermark(&node(1)).await, Ok(0));
    }
    assert!(receiver.times(&node(1)).is_empty());
    // Taken without a word that arrives: they come again.
    receiver.next(&[Manner::ClosesLate, Manner::Babbles, Manner::Answers(202)]);
    for goes in [false, false, true, true] {
        assert_eq!(sink.append(&first).await.is_ok(), goes);
    }
    assert_eq!(receiver.times(&node(1)), [3, 3, 3]);
    let second = batch(&node(1), first.upto, 2);
    receiver.sink().append(&second).await.unwrap();
    assert_eq!(receiver.times(&node(1)), [3, 3, 3, 1, 1]);
}

#[tokio::test]
async fn a_receiver_that_answers_too_late_is_not_waited_for_and_gets_the_events_again() {
    let receiver = Receiver::start().await;
    let hasty = BillingEvents::new(EventsSettings {
        answer: Duration::from_millis(300),
        ..settings(receiver.port, receiver.folder.path())
    })
    .unwrap();
    receiver.next(&[Manner::Silent]);
    let first = batch(&node(1), 0, 3);
    let late = hasty.append(&first).await.unwrap_err();
    assert!(late.to_string().contains("within"), "{late}");
    assert_eq!(hasty.watermark(&node(1)).await, Ok(0));
    let patient = receiver.sink();
    patient.append(&first).await.unwrap();
    assert_eq!(receiver.rows(&node(1)).await, first.rows);
}

#[tokio::test]
async fn nobody_there_is_told_without_a_secret() {
    let receiver = Receiver::start().await;
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let settings = settings(port, receiver.folder.path());
    let shown = format!("{settings:?}");
    let sink = BillingEvents::new(settings).unwrap();
    let away = sink.append(&batch(&node(1), 0, 1)).await.unwrap_err().to_string();
    assert!(away.contains("cannot connect"), "{away}");
    assert!(
        !format!("{away}{shown}").contains("whsec") && !shown.contains("t0ken"),
        "{shown}"
    );
}
