//! Heads that do not come to their end: what they hold has a limit, in all and per address; the largest give way, and small ones are
//! read and served beside them.

use std::io::Write;
use std::net::TcpStream;

use super::{closed, wait_closed};
use crate::harness::crowd::Crowd;
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::shapes::assert_refusal;
use crate::harness::tools::{note, rounds};
use crate::harness::wait::DEADLINE;
use crate::harness::{Client, RecordingProvider, Weir, WeirBuilder, wait_until};

/// What has come of a large head.
const LARGE: usize = 60_000;
/// The addresses that the attackers have: 127.0.0.2 and on.
const ADDRESSES: usize = 4;

fn held(weir: &Weir) -> usize {
    let text = weir.metrics();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("weir_head_bytes_buffered "));
    value.expect("the figure").parse().unwrap()
}

/// A request's head without its end, with a field of so many bytes.
fn unfinished(bytes: usize) -> Vec<u8> {
    let begin = b"POST /v1/messages HTTP/1.1\r\nhost: weir.test\r\nx-large: ";
    [begin, &vec![b'x'; bytes - begin.len()][..]].concat()
}

/// A connection over HTTP/2 with a head of so many bytes that does not end.
fn unfinished_http2(bytes: usize) -> Vec<u8> {
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    // `x-NUMBER: v...`, each a literal that nobody has to remember.
    let field = [&[0, 1, b'x', 100][..], &[b'v'; 100]].concat();
    for (number, fields) in vec![field; bytes / 104].chunks(150).enumerate() {
        let payload = fields.concat();
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        sent.extend_from_slice(&length[1..]);
        sent.extend_from_slice(&[if number == 0 { 1 } else { 9 }, 0, 0, 0, 0, 1]);
        sent.extend_from_slice(&payload);
    }
    sent
}

fn address(number: usize) -> u8 {
    u8::try_from(2 + number % ADDRESSES).unwrap()
}

/// Asks a small request, as it is and in a head that counts.
#[track_caller]
fn assert_served(weir: &Weir, key: &str) {
    for wire in ALL_WIRES {
        let small = wire.request(key, "hi");
        let counted = small.clone().header("x-counted", &"x".repeat(6_000));
        for request in [small, counted] {
            let answer = weir.exchange(&request);
            assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
        }
    }
}

/// As many as the long form opens would hold 180 MB without a limit, here 3 times what they may.
#[test]
fn large_heads_hold_no_more_than_their_budget_and_small_requests_are_served_beside_them() {
    let (count, budget) = (rounds(120, 3000), rounds(2 << 20, 64 << 20));
    let provider = RecordingProvider::recorded();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("connections.head_budget_bytes", budget as i64)
        .set("connections.head_address_bytes", budget as i64)
        .set("connections.first_byte_seconds", 600)
        .set("connections.head_seconds", 600)
        .start();
    let key = weir.key().text;
    assert_served(&weir, &key);
    let crowd = Crowd::new(weir.gateway);
    let mut attackers: Vec<TcpStream> = (0..count).map(|number| crowd.connect(address(number))).collect();
    let open = format!("weir_connections{{listener=\"gateway\"}} {count}\n");
    wait_until("the attackers' connections", || weir.metrics().contains(&open));
    let before = weir.process().memory();
    let mut grown = 0;
    for (number, attacker) in attackers.iter_mut().enumerate() {
        attacker.write_all(&unfinished(LARGE)).unwrap();
        if (number + 1) % (count / 6) == 0 {
            let sum = held(&weir);
            assert!(sum <= budget, "{sum} bytes of {budget} behind {number}");
            assert_served(&weir, &key);
            grown = weir.process().memory().saturating_sub(before);
            note(&format!(
                "{} heads of {LARGE} bytes: {sum} counted, {grown} more resident, {} each",
                number + 1,
                grown / (number + 1)
            ));
        }
    }
    // As many are held as fit, and the others have given way; whoever was first was so first.
    let fit = budget / LARGE;
    wait_closed(&weir, "gateway", "head_budget_exhausted", (count - fit) as u64);
    let sum = held(&weir);
    assert!((budget - LARGE..=budget).contains(&sum), "{sum} of {budget}");
    assert_eq!(closed(&weir, "gateway", "head_budget_exhausted"), (count - fit) as u64);
    let answer = Client::over(attackers.remove(0)).response_to("POST");
    assert_refusal(Wire::Messages, &answer, 503, "api_error");
    assert_eq!(answer.header("retry-after"), Some("1"));
    // The heads, half as much again for how they grow, and what belongs to a connection.
    let bound = budget * 3 / 2 + count * 8 * 1024 + (16 << 20);
    assert!(grown <= bound, "{grown} bytes more than before, {bound} at most");
    assert_served(&weir, &key);
    drop(attackers);
    wait_until("nothing to be held", || held(&weir) == 0);
}

#[test]
fn an_address_has_its_share_over_each_version_and_others_are_not_concerned() {
    // At least four times what a head may have: 256 KiB.
    let share = 1_i64 << 18;
    let weir = WeirBuilder::new()
        .all_providers("http://127.0.0.1:9")
        .set("connections.head_budget_bytes", 4 * share)
        .set("connections.head_address_bytes", share)
        .set("connections.head_seconds", 600)
        .start();
    let crowd = Crowd::new(weir.gateway);
    let mut other = crowd.connect(9);
    other.write_all(&unfinished(LARGE)).unwrap();
    wait_until("the other's head", || held(&weir) == LARGE);
    // Five of one address have more than its share: the first gives way, with an answer.
    let mut first = Client::over(crowd.connect(2));
    first.write(&unfinished(LARGE));
    wait_until("the first head", || held(&weir) == 2 * LARGE);
    let mut all: Vec<TcpStream> = Vec::new();
    for number in 2..=5 {
        let mut more = crowd.connect(2);
        more.write_all(&unfinished(LARGE)).unwrap();
        let (now, most) = (LARGE * (1 + number), LARGE * 5);
        wait_until("one more head", || held(&weir) == now.min(most));
        all.push(more);
    }
    let answer = first.response_to("POST");
    assert_refusal(Wire::Messages, &answer, 503, "api_error");
    assert!(first.closed_within(DEADLINE));
    assert_eq!(closed(&weir, "gateway", "head_budget_exhausted"), 1);
    // Over HTTP/2 a head is decoded as it comes, and counts as what it may become: it is the largest then.
    let mut http2 = crowd.connect(2);
    http2.write_all(&unfinished_http2(30_000)).unwrap();
    wait_closed(&weir, "gateway", "head_budget_exhausted", 2);
    wait_until("the others to be held as before", || held(&weir) == 5 * LARGE);
    // The other address's is still waited for, and gets its answer.
    other.write_all(b"\r\n\r\n").unwrap();
    assert_eq!(Client::over(other).response_to("POST").status, 401);
    // Who has given way may come back.
    drop((all, http2));
    wait_until("nothing to be held", || held(&weir) == 0);
    let mut again = Client::over(crowd.connect(2));
    again.write(&[&unfinished(LARGE)[..], b"\r\n\r\n"].concat());
    assert_eq!(again.response_to("POST").status, 401);
}
