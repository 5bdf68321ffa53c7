//! Where streams pause, settle and break.

use std::io::Read;

use super::*;

fn frames(kinds: &[FrameKind]) -> Vec<SampleFrame> {
    let frame = |(index, kind): (usize, &FrameKind)| SampleFrame {
        kind: *kind,
        bytes: format!("<frame{index}>").into(),
    };
    kinds.iter().enumerate().map(frame).collect()
}

fn three_deltas() -> Vec<SampleFrame> {
    frames(&[
        FrameKind::Other,
        FrameKind::Delta,
        FrameKind::Delta,
        FrameKind::Delta,
        FrameKind::Other,
        FrameKind::Final,
    ])
}

fn error(_before: usize) -> SampleFrame {
    SampleFrame {
        kind: FrameKind::Other,
        bytes: "<error>".into(),
    }
}

fn steps_text(steps: &[ReplyStep]) -> String {
    let words: Vec<String> = steps
        .iter()
        .map(|step| match step {
            ReplyStep::Pause => "pause".to_owned(),
            ReplyStep::Send { bytes, .. } => String::from_utf8_lossy(bytes).into_owned(),
            ReplyStep::Settle { deltas, ending } => format!("settle:{deltas}:{}", ending.as_str()),
            ReplyStep::Break { close } => format!("break:{close:?}"),
            ReplyStep::Stall => "stall".to_owned(),
        })
        .collect();
    words.join(" ")
}

#[test]
fn a_stream_pauses_between_deltas_and_settles_before_the_final_event() {
    let script = SampleScript {
        gap_ms: Some(5),
        ..SampleScript::default()
    };
    let steps = stream_steps(&three_deltas(), &script, error);
    let expected = "<frame0> <frame1> pause <frame2> pause <frame3> <frame4> settle:3:complete <frame5>";
    assert_eq!(steps_text(&steps), expected);
}

#[test]
fn a_cut_comes_right_after_its_delta() {
    let script = SampleScript {
        cut_after: Some(2),
        ..SampleScript::default()
    };
    let told_cut = steps_text(&stream_steps(&three_deltas(), &script, error));
    assert_eq!(told_cut, "<frame0> <frame1> <frame2> settle:2:cut break:Broken");
    let script = SampleScript {
        cut_after: Some(0),
        close: Some(CutStyle::Clean),
        half_event: Some(true),
        ..SampleScript::default()
    };
    assert_eq!(
        steps_text(&stream_steps(&three_deltas(), &script, error)),
        "<frame0> settle:0:cut <fra"
    );
    let script = SampleScript {
        cut_after: Some(99),
        close: Some(CutStyle::Reset),
        ..SampleScript::default()
    };
    let told_late = steps_text(&stream_steps(&three_deltas(), &script, error));
    assert_eq!(
        told_late,
        "<frame0> <frame1> <frame2> <frame3> <frame4> settle:3:cut break:Reset"
    );
}

#[test]
fn the_first_interruption_wins() {
    let script = SampleScript {
        cut_after: Some(2),
        stall_after: Some(1),
        in_band_error_after: Some(1),
        ..SampleScript::default()
    };
    assert_eq!(
        steps_text(&stream_steps(&three_deltas(), &script, error)),
        "<frame0> <frame1> stall"
    );
    let script = SampleScript {
        in_band_error_after: Some(1),
        ..script
    };
    let script = SampleScript {
        stall_after: None,
        ..script
    };
    let told_error = steps_text(&stream_steps(&three_deltas(), &script, error));
    assert_eq!(told_error, "<frame0> <frame1> settle:1:in_band_error <error>");
}

#[test]
fn a_cut_body_announces_more_than_it_sends_unless_the_cut_is_clean() {
    let body = Bytes::from_static(b"0123456789");
    let script = SampleScript {
        cut_after: Some(1),
        ..SampleScript::default()
    };
    assert_eq!(
        steps_text(&body_steps(&body, 4, SampleEnding::Complete, &script)),
        "settle:4:cut 01234 break:Broken"
    );
    assert_eq!(announced_length(&body, &script), Some(10));
    let script = SampleScript {
        close: Some(CutStyle::Clean),
        ..script
    };
    assert_eq!(
        steps_text(&body_steps(&body, 4, SampleEnding::Complete, &script)),
        "settle:4:cut 01234"
    );
    assert_eq!(announced_length(&body, &script), None);
    let script = SampleScript {
        stall_after: Some(1),
        ..SampleScript::default()
    };
    assert_eq!(
        steps_text(&body_steps(&body, 4, SampleEnding::Complete, &script)),
        "01234 stall"
    );
}

#[test]
fn gzip_is_flushed_after_each_event_and_whole_at_the_end() {
    let script = SampleScript {
        encoding: Some(BodyEncoding::Gzip),
        ..SampleScript::default()
    };
    let steps = stream_steps(&three_deltas(), &script, error);
    let mut sent = Vec::new();
    let mut plain = String::new();
    for step in &steps {
        let ReplyStep::Send { bytes, .. } = step else { continue };
        sent.extend_from_slice(bytes);
        let mut decoder = flate2::write::GzDecoder::new(Vec::new());
        decoder.write_all(&sent).unwrap();
        decoder.flush().unwrap();
        let seen = String::from_utf8(decoder.get_ref().clone()).unwrap();
        assert!(seen.len() > plain.len() || plain.ends_with("<frame5>"), "{seen}");
        plain = seen;
    }
    let mut whole = String::new();
    flate2::read::GzDecoder::new(sent.as_slice())
        .read_to_string(&mut whole)
        .unwrap();
    assert_eq!(whole, "<frame0><frame1><frame2><frame3><frame4><frame5>");
}
