//! Log files in a bucket of a real server, and what goes wrong on the way there.

use http::Method;
use tempfile::TempDir;
use tokio::sync::watch;

use super::{
    merges::merging,
    server::{BUCKET, Server},
    way::{Fault, Way},
    *,
};
use crate::{domain::keys::secret::Secret, journal::NumberedRow, store::contract::until};

const SECRET: &str = "canary-9Tq4-secret";

/// A bucket of a server of its own, and the way there.
struct InBucket {
    way: Way,
    _server: Server,
    folder: TempDir,
}

impl InBucket {
    async fn new() -> Option<Self> {
        let server = Server::start().await?;
        Some(Self {
            way: Way::to(server.port).await,
            _server: server,
            folder: scratch(),
        })
    }

    /// As a process that has just started has them.
    fn files(&self) -> LogFiles {
        self.files_within(Duration::from_secs(60))
    }

    fn files_within(&self, limit: Duration) -> LogFiles {
        let settings = BucketSettings {
            name: BUCKET.to_owned(),
            prefix: "a/log/".to_owned(),
            region: "eu-central-1".to_owned(),
            endpoint: format!("http://127.0.0.1:{}", self.way.port),
            path_style: true,
            access_key_id: Secret::new("AKIAWEIR"),
            secret_access_key: Secret::new(SECRET),
            ca: Some(authority()),
            connect: Duration::from_secs(20),
            answer: limit,
            write: limit,
        };
        let files = LogFiles::open(self.folder.path(), Duration::from_secs(3600), 50_000).unwrap();
        files.in_bucket(&settings, Handle::current()).unwrap()
    }
}

/// What is done with the files blocks.
async fn blocking<T: Send + 'static>(files: &LogFiles, work: impl FnOnce(&LogFiles) -> T + Send + 'static) -> T {
    let files = files.clone();
    tokio::task::spawn_blocking(move || work(&files)).await.unwrap()
}

async fn rows_of(files: &LogFiles, node: &NodeId) -> Vec<Arc<NumberedRow>> {
    let node = node.clone();
    blocking(files, move |files| all_rows(files, &node)).await
}

async fn names_of(files: &LogFiles) -> Vec<String> {
    blocking(files, names).await
}

#[async_trait]
impl contract::Place for InBucket {
    async fn open(&self) -> Arc<dyn Sink> {
        Arc::new(self.files())
    }

    async fn rows(&self, node: &NodeId) -> Vec<Arc<NumberedRow>> {
        rows_of(&self.files(), node).await
    }
}

#[tokio::test]
async fn files_in_a_bucket_obey_the_contract() {
    let Some(place) = InBucket::new().await else { return };
    contract::obeys(&place).await;
}

/// Has a put of a batch meet with something that takes longer than is waited; answers what it told.
async fn too_slow(place: &InBucket, fault: Fault, batch: &Batch) -> String {
    place.way.next(Method::PUT, fault);
    let files = place.files_within(Duration::from_secs(2));
    loop {
        // On a busy machine it may not even come as far as that.
        let told = files.append(batch).await.unwrap_err().to_string();
        if place.way.is_clear() {
            return told;
        }
    }
}

#[tokio::test]
async fn a_put_that_is_refused_or_slow_or_whose_answer_is_lost_or_late_makes_one_file() {
    let Some(place) = InBucket::new().await else { return };
    let files = place.files();
    let node = node(1);
    let (mut sent, mut watermark) = (Vec::new(), 0);
    let (let_go, wait) = watch::channel(false);
    for (fault, is_told) in [
        (Fault::Refused(403, "AccessDenied"), Some("s3:PutObject")),
        (Fault::Refused(404, "NoSuchBucket"), Some("create the bucket")),
        // It is made again at once.
        (Fault::Refused(503, "SlowDown"), None),
        (Fault::AnswerLost, None),
        (Fault::AnswerLate(wait.clone()), Some("no answer within 2 s")),
        // It arrives when it has been made again.
        (Fault::Late(wait), Some("no answer within 2 s")),
    ] {
        let batch = batch(&node, watermark, 20);
        let told = match fault {
            Fault::Late(_) | Fault::AnswerLate(_) => Some(too_slow(&place, fault.clone(), &batch).await),
            Fault::Refused(..) | Fault::AnswerLost => {
                place.way.next(Method::PUT, fault.clone());
                files.append(&batch).await.err().map(|error| error.to_string())
            }
        };
        assert!(place.way.is_clear());
        match (told, is_told) {
            (None, None) => {}
            (Some(why), Some(part)) => {
                assert!(why.contains(part) && why.contains("s3://weir-log/a/log/"), "{why}");
                assert!(!why.contains(SECRET) && !why.contains("Signature="), "{why}");
            }
            (told, _) => panic!("{fault:?}: {told:?}"),
        }
        files.append(&batch).await.unwrap();
        files.append(&batch).await.unwrap();
        watermark = batch.upto;
        sent.extend(batch.rows);
        assert_eq!(place.files().watermark(&node).await, Ok(watermark), "{fault:?}");
    }
    let_go.send_replace(true);
    let last = batch(&node, watermark, 1);
    files.append(&last).await.unwrap();
    sent.extend(last.rows);
    assert_eq!(names_of(&files).await.len(), 7);
    assert_eq!(rows_of(&files, &node).await, sent);
}

#[tokio::test]
async fn rows_that_come_late_from_a_process_that_is_gone_are_there_once() {
    let Some(place) = InBucket::new().await else { return };
    let node = node(1);
    let whole = batch(&node, 0, 60);
    let cut = |begin: usize, end: usize| Batch {
        node: node.clone(),
        after: if begin == 0 { 0 } else { whole.rows[begin].number },
        upto: whole.rows.get(end).map_or(whole.upto, |next| next.number),
        rows: whole.rows[begin..end].to_vec(),
    };
    let (let_go, wait) = watch::channel(false);
    // What was on its way when the process ended reaches over two files of the next one.
    too_slow(&place, Fault::Late(wait), &cut(0, 30)).await;
    let files = place.files();
    for batch in [cut(0, 20), cut(20, 50), cut(50, 60)] {
        files.append(&batch).await.unwrap();
    }
    let_go.send_replace(true);
    until("what was late has come", async || blocking(&files, count).await == 4).await;
    assert_eq!(files.watermark(&node).await, Ok(whole.upto));
    let account = whole.rows[0].row.account.clone();
    let of_account = whole.rows.iter().filter(|row| row.row.account == account).count();
    let day = whole.rows[0].row.time_ms.div_euclid(DAY_MS);
    assert_eq!(
        contract::pages::of_day(&files, &account, day, 100).await.len(),
        of_account
    );
    blocking(&files, |files| files.housekeep(BEGIN_MS + 2 * DAY_MS, 180))
        .await
        .unwrap();
    assert_eq!(names_of(&files).await.len(), 1);
    assert_eq!(rows_of(&files, &node).await, whole.rows);
}

#[tokio::test]
async fn a_server_that_knows_no_conditional_put_is_asked_first() {
    let Some(place) = InBucket::new().await else { return };
    place.way.knows_no_condition();
    contract::obeys(&place).await;
    let files = place.files();
    let first = batch(&node(9), 0, 20);
    files.append(&first).await.unwrap();
    place.way.asked();
    let second = batch(&node(9), first.upto, 20);
    files.append(&second).await.unwrap();
    let asked: Vec<Method> = place.way.asked().into_iter().map(|(method, _)| method).collect();
    assert_eq!(asked, [Method::GET, Method::HEAD, Method::PUT]);
}

#[tokio::test]
async fn days_of_a_bucket_are_merged_and_removed_as_those_of_a_folder_are() {
    let Some(place) = InBucket::new().await else { return };
    let files = place.files();
    let nodes = [node(1), node(2)];
    for node in &nodes {
        for batch in hours(node, 27, 10) {
            files.append(&batch).await.unwrap();
        }
    }
    let mut before = Vec::new();
    for node in &nodes {
        before.push(rows_of(&files, node).await);
    }
    assert_eq!(names_of(&files).await.len(), 54);
    // It is refused once, and done the next time.
    place.way.next(Method::GET, Fault::Refused(403, "AccessDenied"));
    let now = BEGIN_MS + 30 * HOUR_MS;
    blocking(&files, move |files| files.housekeep(now, 1))
        .await
        .unwrap_err();
    blocking(&files, move |files| files.housekeep(now, 1)).await.unwrap();
    assert_eq!(names_of(&files).await.len(), 2 * (1 + 3));
    for (node, before) in std::iter::zip(&nodes, before) {
        assert_eq!(rows_of(&files, node).await, before);
        assert_eq!(files.watermark(node).await, Ok(27 * 40));
    }
    // The clock jumps ahead: one day goes, and it is kept in the bucket that it went.
    let later = now + 1000 * DAY_MS;
    for _ in 0..2 {
        let fresh = place.files();
        blocking(&fresh, move |files| files.housekeep(later, 1)).await.unwrap();
        let days = blocking(&fresh, |files| files.storage.days().unwrap().len()).await;
        assert_eq!(days, 1);
    }
}

#[tokio::test]
async fn a_page_of_rows_reads_the_end_of_a_file_and_the_groups_that_have_the_account() {
    let Some(place) = InBucket::new().await else { return };
    let files = place.files();
    let count = 3 * schema::GROUP_ROWS;
    let rows = rows(1, count);
    let first = Batch {
        node: node(1),
        after: 0,
        upto: rows.last().unwrap().number + 1,
        rows,
    };
    files.append(&first).await.unwrap();
    let account = first.rows[0].row.account.clone();
    let day = first.rows[0].row.time_ms.div_euclid(DAY_MS);
    let of_day = first
        .rows
        .iter()
        .filter(|row| row.row.account == account && row.row.time_ms.div_euclid(DAY_MS) == day);
    let wanted = of_day.count();
    place.way.asked();
    assert_eq!(contract::pages::of_day(&files, &account, day, 500).await.len(), wanted);
    let asked = place.way.asked();
    // Two days are listed at most twice, the end is read, and groups as a whole: not a request for each column or page.
    let objects = asked.iter().filter(|(_, path)| path.ends_with(".parquet")).count();
    assert!((2..=1 + 3).contains(&objects), "{asked:?}");
    assert!(asked.len() <= objects + 4, "{asked:?}");
    let left = fs::read_dir(place.folder.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        left.iter().all(|name| name.to_string_lossy().starts_with(".lock-")),
        "{left:?}"
    );
}

#[tokio::test]
async fn files_of_today_in_a_bucket_become_one_while_they_are_read() {
    let Some(place) = InBucket::new().await else { return };
    let files = merging(place.files(), 3);
    let batches = hours(&node(1), 3, 40);
    let keep_house = async |now: i64| {
        let kept = blocking(&files, move |files| files.housekeep(now, 180)).await;
        kept.unwrap();
    };
    let now = BEGIN_MS + 4 * HOUR_MS;
    for batch in &batches {
        keep_house(now).await;
        files.append(batch).await.unwrap();
    }
    let filter = LogFilter::between(BEGIN_MS, BEGIN_MS + DAY_MS);
    let mut ask = LogPageQuery::new(filter, BEGIN_MS.div_euclid(DAY_MS), 50);
    let (mut ids, mut pages) = (BTreeSet::new(), 0);
    loop {
        let page = files.page(&ask).await.unwrap();
        ids.extend(page.rows.into_iter().map(|row| row.request_id));
        pages += 1;
        let Some(next) = page.next else { break };
        ask.after = next;
        if pages == 1 {
            // It is put there again, and there is one.
            place.way.next(Method::PUT, Fault::AnswerLost);
            keep_house(now).await;
            assert!(place.way.is_clear());
            assert_eq!((names_of(&files).await.len(), blocking(&files, count).await), (1, 4));
        }
    }
    assert_eq!((ids.len(), pages), (120, 3));
    for (later_ms, there) in [(0, 4), (60_000, 1)] {
        keep_house(now + later_ms).await;
        assert_eq!(blocking(&files, count).await, there);
    }
    let rows: Vec<_> = batches.iter().flat_map(|batch| batch.rows.clone()).collect();
    assert_eq!(rows_of(&files, &node(1)).await, rows);
    assert_eq!(files.watermark(&node(1)).await, Ok(3 * 160));
}

#[tokio::test]
async fn the_end_of_a_file_is_read_once_however_often_pages_are() {
    let Some(place) = InBucket::new().await else { return };
    let files = place.files();
    let batches = hours(&node(1), 6, 10);
    let (account, day) = (batches[0].rows[0].row.account.clone(), BEGIN_MS.div_euclid(DAY_MS));
    let mut read = Vec::new();
    for batch in &batches {
        files.append(batch).await.unwrap();
        place.way.asked();
        contract::pages::of_day(&files, &account, day, 100).await;
        let asked = place.way.asked().into_iter();
        read.push(asked.filter(|(_, path)| path.ends_with(".parquet")).count());
    }
    assert_eq!(read, [1; 6], "the new file each time");
}
