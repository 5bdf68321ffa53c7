//! Which line a request gets.

use std::time::Duration;

use super::*;

/// A line to a place, and its task's end.
fn line(request: &LineRequest) -> (OpenLine, mpsc::Receiver<LineTurn>) {
    let (turns, receiver) = mpsc::channel(1);
    let line = OpenLine {
        place: request.place.clone(),
        head: request.head.clone(),
        lane: request.lane,
        state: Arc::default(),
        turns,
        handle: Weak::new(),
    };
    (line, receiver)
}

fn request(head: &'static str, lane: u8) -> LineRequest {
    LineRequest {
        peer: HttpPeer::new("127.0.0.1:1", false, String::new()),
        place: LinePlace {
            address: "127.0.0.1:1".parse().expect("an address"),
            host: "h".to_owned(),
        },
        provider: "p".to_owned(),
        head: Bytes::from_static(head.as_bytes()),
        frame: CreateFrame::from_body(&Bytes::from_static(b"{}")).expect("a frame"),
        continuation: None,
        body_bytes: 2,
        lane,
        lines_max: 2,
        times: LineTimes {
            open: Duration::from_secs(1),
            idle: Duration::from_secs(1),
            ping: Duration::from_secs(1),
        },
    }
}

/// What is chosen: the lane that the line had, `new` or `none`.
fn chosen(set: &mut LineSet, request: &LineRequest) -> String {
    let lanes: Vec<u8> = set.lines.iter().map(|line| line.lane).collect();
    match set.choose(request) {
        ChosenLine::Free(line) => {
            let index = set
                .lines
                .iter()
                .position(|other| Arc::ptr_eq(&other.state, &line.state));
            lanes[index.expect("one of the set")].to_string()
        }
        ChosenLine::New => "new".to_owned(),
        ChosenLine::None => "none".to_owned(),
    }
}

#[test]
fn a_lane_keeps_its_line_and_other_lanes_get_new_ones_up_to_the_limit() {
    let mut set = LineSet::default();
    assert_eq!(chosen(&mut set, &request("a", 0)), "new");
    set.opening = 0;
    let (first, _task) = line(&request("a", 0));
    let state = Arc::clone(&first.state);
    set.lines.push(first);
    assert_eq!(chosen(&mut set, &request("a", 0)), "0");
    assert_eq!(chosen(&mut set, &request("a", 0)), "new", "it is in use");
    assert_eq!(
        chosen(&mut set, &request("a", 1)),
        "none",
        "one is in use, and another is being opened"
    );
    state.release();
    assert_eq!(chosen(&mut set, &request("a", 1)), "0");
    state.release();
    assert_eq!(chosen(&mut set, &request("a", 1)), "1", "the lane has the line now");
}

#[test]
fn a_line_is_used_for_one_credential_only() {
    let mut set = LineSet::default();
    let (first, _task) = line(&request("a", 0));
    let state = Arc::clone(&first.state);
    set.lines.push(first);
    assert_eq!(chosen(&mut set, &request("b", 0)), "new");
    state.acquire();
    assert_eq!(chosen(&mut set, &request("b", 0)), "none");
    state.release();
    // A free line that goes elsewhere makes room.
    assert_eq!(chosen(&mut set, &request("b", 0)), "new");
    assert!(set.lines.is_empty());
}

#[test]
fn a_line_that_has_ended_and_a_socket_that_has_ended_get_no_request() {
    let mut set = LineSet::default();
    let (first, task) = line(&request("a", 0));
    set.lines.push(first);
    drop(task);
    assert_eq!(chosen(&mut set, &request("a", 0)), "new");
    set.is_closed = true;
    assert_eq!(chosen(&mut set, &request("a", 0)), "none");
}
