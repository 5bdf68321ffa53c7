//! The record on disks that are full or hang.

use std::{io::Read, sync::mpsc};

use tokio::runtime::Builder;

use super::*;

fn record(key_id: &str) -> AuditedChange {
    AuditedChange {
        time_unix_ms: 1,
        peer: Default::default(),
        operation: "key.update".into(),
        key_id: key_id.to_owned(),
        values: Value::Null,
    }
}

fn make_fifo(path: &Path) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).expect("a FIFO");
}

/// A file that takes nothing more until somebody reads: a FIFO, full.
fn hung(folder: &Path) -> File {
    let path = folder.join("hung");
    make_fifo(&path);
    let open = |flags| {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(&path)
            .expect("opens")
    };
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).expect("a flag");
    let mut filler = open(nonblocking);
    while filler.write(&[b'x'; 4096]).is_ok() {}
    open(0)
}

#[tokio::test]
async fn a_full_disk_refuses_changes() {
    let audit = Audit::open(Path::new("/dev/full")).expect("opens");
    let error = audit.record(record("k")).await.expect_err("no room").to_string();
    assert!(error.contains("/dev/full: "), "{error}");
}

#[test]
fn a_fifo_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.fifo");
    make_fifo(&path);
    let (told, tell) = mpsc::channel();
    // Were it waited for, this thread would never come back.
    std::thread::spawn(move || told.send(Audit::open(&path).map(|_| ())));
    let refused = tell.recv_timeout(Duration::from_secs(10)).expect("not waited for");
    assert!(refused.expect_err("a FIFO").to_string().contains("the path is a FIFO"));
}

/// However many changes wait for a disk that hangs, they take one thread, and each is refused in time.
#[test]
fn a_disk_that_hangs_refuses_changes_in_time_and_takes_one_thread() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = hung(folder.path());
    let mut reader = file.try_clone().expect("a reader");
    let audit = Audit {
        path: folder.path().join("hung"),
        file: Arc::new(Mutex::new(file)),
        wait: Duration::from_millis(100),
    };
    let one = Builder::new_current_thread()
        .max_blocking_threads(2)
        .enable_all()
        .build();
    let runtime = one.expect("a runtime");
    runtime.block_on(async {
        let changes = (0..20).map(|count| {
            let audit = audit.clone();
            tokio::spawn(async move { audit.record(record(&count.to_string())).await })
        });
        for change in changes.collect::<Vec<_>>() {
            let error = change.await.expect("no panic").expect_err("nothing is on disk");
            assert!(error.to_string().contains("the disk is too slow"), "{error}");
        }
        // The second thread is left for others.
        spawn_blocking(|| ()).await.expect("a thread");
    });
    // Lets go of the thread that hangs.
    let mut taken = vec![0; 1 << 20];
    assert!(reader.read(&mut taken).is_ok_and(|taken| taken > 0));
    drop(runtime);
}

#[tokio::test]
async fn a_line_that_nobody_waits_for_any_more_is_taken_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let audit = Audit::open(&path).expect("opens");
    audit.record(record("first")).await.expect("written");
    let before = std::fs::read(&path).expect("there");
    let file = Arc::clone(&audit.file).lock_owned().await;
    let (tell, told) = oneshot::channel();
    drop(told);
    append_line(&file, b"late\n", tell);
    drop(file);
    assert_eq!(std::fs::read(&path).expect("there"), before);
    audit.record(record("second")).await.expect("written");
    let lines = std::fs::read_to_string(&path).expect("there");
    assert_eq!(lines.lines().count(), 2);
    assert!(lines.contains("\"first\"") && lines.contains("\"second\""), "{lines}");
}

#[tokio::test]
async fn nothing_that_another_process_has_written_is_taken_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let [audit, other] = [(); 2].map(|()| Audit::open(&path).expect("opens"));
    audit.record(record("late")).await.expect("written");
    let line = std::fs::read(&path).expect("there");
    other.record(record("theirs")).await.expect("written");
    let both = std::fs::read(&path).expect("there");
    take_back(&*audit.file.lock().await, &line, 0);
    assert_eq!(std::fs::read(&path).expect("there"), both);
}
