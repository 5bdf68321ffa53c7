//! The tests that every sink must pass.

use std::{future::poll_fn, sync::Arc, task::Poll};

use async_trait::async_trait;

use crate::{
    domain::ledger::NodeId,
    journal::NumberedRow,
    sinks::{Batch, Sink, SinkError},
};

pub(crate) mod pages;
pub(crate) mod samples;

use crate::sinks::contract::samples::{node, rows};

/// The place in which a sink stores its rows.
#[async_trait]
pub(crate) trait Place: Send + Sync {
    /// Opens a sink on this place, like a process that has just started.
    async fn open(&self) -> Arc<dyn Sink>;

    /// Returns the stored rows of a lane in the order of their numbers. Reads them in another way than the sink does, if there is
    /// one.
    async fn rows(&self, node: &NodeId) -> Vec<Arc<NumberedRow>>;
}

/// Tests the complete contract with a sink on an empty place.
pub(crate) async fn obeys(place: &dyn Place) {
    a_batch_is_there_once_with_its_watermark(place, &node(1)).await;
    what_does_not_follow_is_refused_and_changes_nothing(place, &node(2)).await;
    lanes_have_nothing_to_do_with_each_other(place, [&node(3), &node(4)]).await;
    a_call_that_is_cut_off_leaves_all_or_nothing(place, &node(5)).await;
}

/// Creates a batch of `count` rows that begins at the number `after`.
pub(crate) fn batch(node: &NodeId, after: u64, count: usize) -> Batch {
    let rows = rows(after + 1, count);
    let upto = rows.last().map_or(after, |last| last.number + 1);
    Batch {
        node: node.clone(),
        after,
        upto,
        rows,
    }
}

async fn a_batch_is_there_once_with_its_watermark(place: &dyn Place, node: &NodeId) {
    let sink = place.open().await;
    assert_eq!(sink.watermark(node).await, Ok(0), "nothing is there yet");
    let first = batch(node, 0, 40);
    let second = batch(node, first.upto, 3);
    sink.append(&first).await.unwrap();
    assert_eq!(sink.watermark(node).await, Ok(first.upto));
    sink.append(&first).await.unwrap();
    sink.append(&second).await.unwrap();
    let sink = place.open().await;
    sink.append(&first).await.unwrap();
    sink.append(&second).await.unwrap();
    assert_eq!(sink.watermark(node).await, Ok(second.upto), "after a start");
    assert_eq!(place.rows(node).await, [first.rows, second.rows].concat());
}

async fn what_does_not_follow_is_refused_and_changes_nothing(place: &dyn Place, node: &NodeId) {
    let sink = place.open().await;
    let first = batch(node, 0, 5);
    let watermark = first.upto;
    let refused = Err(SinkError::OutOfOrder { watermark });
    let early = batch(node, 7, 5);
    assert_eq!(sink.append(&early).await, Err(SinkError::OutOfOrder { watermark: 0 }));
    sink.append(&first).await.unwrap();
    assert_eq!(
        sink.append(&batch(node, watermark + 1, 5)).await,
        refused,
        "it leaves something out"
    );
    assert_eq!(
        sink.append(&batch(node, watermark - 1, 5)).await,
        refused,
        "a part of it is there"
    );
    assert_eq!(sink.watermark(node).await, Ok(watermark));
    assert_eq!(place.rows(node).await, first.rows);
}

async fn lanes_have_nothing_to_do_with_each_other(place: &dyn Place, nodes: [&NodeId; 2]) {
    let sinks = [place.open().await, place.open().await];
    let fed = std::iter::zip(&sinks, nodes).map(|(sink, node)| async move {
        let mut all = Vec::new();
        for _ in 0..5 {
            let watermark = sink.watermark(node).await.unwrap();
            let batch = batch(node, watermark, 20);
            sink.append(&batch).await.unwrap();
            all.extend(batch.rows);
        }
        all
    });
    let sent = futures_util::future::join_all(fed).await;
    for (node, sent) in std::iter::zip(nodes, sent) {
        assert_eq!(place.rows(node).await, sent);
    }
}

async fn a_call_that_is_cut_off_leaves_all_or_nothing(place: &dyn Place, node: &NodeId) {
    let (mut watermark, mut there) = (0, Vec::new());
    for polls in 0..12 {
        let batch = batch(node, watermark, 30);
        let sink = place.open().await;
        let mut left = polls;
        let mut call = sink.append(&batch);
        let _ = poll_fn(|context| match call.as_mut().poll(context) {
            Poll::Pending if left > 0 => {
                left -= 1;
                Poll::Pending
            }
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(done) => Poll::Ready(Some(done)),
        })
        .await;
        drop(call);
        let sink = place.open().await;
        let now = sink.watermark(node).await.unwrap();
        assert!([watermark, batch.upto].contains(&now), "{now} after {polls} polls");
        sink.append(&batch).await.unwrap();
        there.extend(batch.rows);
        watermark = batch.upto;
        assert_eq!(place.rows(node).await, there, "cut off after {polls} polls");
    }
}
