//! The audit record: a file with one JSON line for each change and its author. The line is on disk before the change is made.

#[cfg(test)]
mod tests;

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Extension, RequestPartsExt,
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{
    sync::{Mutex, oneshot},
    task::spawn_blocking,
    time::timeout,
};

use crate::{
    api::{
        AdminError, AdminErrorCode,
        node::{AuditLine, AuditPage, AuditPeer, AuditedChange},
        sessions::Door,
    },
    domain::{
        Version,
        keys::{KeyId, change::ChangePrecondition},
        sign_in::Role,
    },
};

/// The mode of the file: weir's user can read and write it, the group can read it.
const FILE_MODE: u32 = 0o640;
/// The mode of the file's folder, if weir creates it.
const FOLDER_MODE: u32 = 0o750;

/// The maximum time that a change waits for its line to be on disk, including the wait for other lines. After this time, the
/// change is refused.
const WRITE_WAIT: Duration = Duration::from_secs(5);

/// The reason why the audit record cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot read or write {path}: {source}; check that the file's folder exists, that its disk has free space, and that weir is allowed to write there", path = path.display())]
pub(crate) struct AuditError {
    path: PathBuf,
    source: io::Error,
}

/// The open file of the audit record. Clones share the file.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    /// The file. It is locked while a line is written, so a hanging disk blocks at most one thread.
    file: Arc<Mutex<File>>,
    wait: Duration,
}

impl Audit {
    /// Opens the file for appending. Creates the file and its folder if they do not exist.
    pub(crate) fn open(path: &Path) -> Result<Self, AuditError> {
        let failed = |source| AuditError {
            path: path.to_owned(),
            source,
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(FOLDER_MODE)
                .create(folder)
                .map_err(failed)?;
        }
        // A FIFO is refused, because it stores nothing and opening it could block forever.
        if path.metadata().is_ok_and(|there| there.file_type().is_fifo()) {
            return Err(failed(io::Error::other(
                "the path is a FIFO, which stores nothing; set [admin] audit to the path of a file",
            )));
        }
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(FILE_MODE)
            .open(path)
            .map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(Mutex::new(file)),
            wait: WRITE_WAIT,
        })
    }

    /// Reads a page of changes, the most recent first. `before` is the value of `next` in the previous page; `None` for the first
    /// page.
    pub(crate) async fn read_page(&self, before: Option<u64>) -> Result<AuditPage, AuditError> {
        let path = self.path.clone();
        let reading = spawn_blocking(move || read_backwards(&path, before)).await;
        let read = reading.unwrap_or_else(|_| Err(io::Error::other("the thread that reads the file panicked")));
        read.map_err(|source| AuditError {
            path: self.path.clone(),
            source,
        })
    }

    /// Writes one line and waits until it is on disk, at most [`WRITE_WAIT`]. If this returns an error, the caller must not make
    /// the change.
    pub(crate) async fn record(&self, change: AuditedChange) -> Result<(), AuditError> {
        let failed = |source| AuditError {
            path: self.path.clone(),
            source,
        };
        let mut line = serde_json::to_vec(&change).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let writing = async {
            let file = Arc::clone(&self.file).lock_owned().await;
            let (tell, told) = oneshot::channel();
            drop(spawn_blocking(move || append_line(&file, &line, tell)));
            told.await
                .unwrap_or_else(|_| Err(io::Error::other("the thread that writes the file panicked")))
        };
        let late = || {
            Err(io::Error::new(
                ErrorKind::TimedOut,
                "the line was not on disk in time: the disk is too slow",
            ))
        };
        timeout(self.wait, writing)
            .await
            .unwrap_or_else(|_| late())
            .map_err(failed)
    }
}

/// Appends a line. Removes the line again if it cannot be written completely, because a partial line would corrupt the next line.
/// Also removes the line if the caller no longer waits, because the caller then does not make the change.
fn append_line(file: &File, line: &[u8], tell: oneshot::Sender<io::Result<()>>) {
    let length = file.metadata().map(|metadata| metadata.len());
    let written = length.and_then(|length| {
        let mut writer = file;
        let written = writer.write_all(line).and_then(|()| file.sync_data());
        written.inspect_err(|_| {
            let _ = file.set_len(length);
        })?;
        Ok(length)
    });
    match written {
        Ok(length) => {
            if tell.send(Ok(())).is_err() {
                take_back(file, line, length);
            }
        }
        Err(error) => {
            let _heard = tell.send(Err(error));
        }
    }
}

/// Removes a line that was written at the byte offset `length`. Does nothing if another process (the successor or predecessor of
/// this process) has appended a line after it.
fn take_back(file: &File, line: &[u8], length: u64) {
    let is_last = file.metadata().is_ok_and(|now| now.len() == length + line.len() as u64);
    if is_last {
        let _ = file.set_len(length).and_then(|()| file.sync_data());
    }
}

/// The maximum number of changes on a page.
const LINES_MAX: usize = 50;
/// The maximum number of bytes that are read for a page. A line is usually shorter than 64 KiB, the maximum size of a call's
/// body.
const BYTES_MAX: u64 = 256 * 1024;

/// Reads lines backwards, beginning at the byte offset `before`; `None` means the end of the file.
fn read_backwards(path: &Path, before: Option<u64>) -> io::Result<AuditPage> {
    let mut file = File::open(path)?;
    let end = file.metadata()?.len();
    let end = before.map_or(end, |before| before.min(end));
    let start = end.saturating_sub(BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(end - start).read_to_end(&mut bytes)?;
    let mut lines = Vec::new();
    let mut at = end;
    for line in bytes.split_inclusive(|byte| *byte == b'\n').rev() {
        let begins = at - line.len() as u64;
        // A line whose beginning was not read is left to the next page.
        if lines.len() == LINES_MAX || (begins == start && start > 0) {
            break;
        }
        at = begins;
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        if !text.is_empty() {
            let no_json = |_| AuditLine::Other(Value::from(text));
            lines.push(serde_json::from_str(text).unwrap_or_else(no_json));
        }
    }
    // If no complete line was read, the line is longer than a page. It is skipped, because otherwise no page would get past the
    // line.
    let next = if at == end && start > 0 { start } else { at };
    Ok(AuditPage {
        changes: lines,
        next: (next > 0).then_some(next),
    })
}

/// The caller of the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AdminPeer {
    /// A process on this machine, with its user id and process id as far as the system reports them.
    Process { uid: Option<u32>, pid: Option<i32> },
    /// The owner of a client certificate, with the certificate's subject and SHA-256 digest.
    Certified(Arc<str>),
    /// A user of the OpenID provider. `subject` identifies the user and is never reassigned. `name` is for display and can
    /// change.
    Person { subject: Arc<str>, name: Arc<str> },
    /// A session of the console with the role `role`, opened by `opened_by`.
    Console { opened_by: Box<AdminPeer>, role: Role },
    /// The owner of the key with this id, signed in at the portal.
    Owner(KeyId),
}

impl AdminPeer {
    /// Returns an error for a call that needs a higher role than the role of the caller's session. Callers with access to the
    /// socket or with a client certificate can make every call.
    ///
    /// # Errors
    /// The session's role is too low. The message names the role that is needed.
    pub(super) fn check_role(&self, needed: Role) -> Result<(), AdminError> {
        match self {
            Self::Console { role, .. } if *role < needed => Err(AdminError::new(
                AdminErrorCode::Forbidden,
                format!(
                    "this call needs the role {}, but the session has the role {}; nothing was changed",
                    needed.as_str(),
                    role.as_str()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the caller's name for display.
    pub(super) fn display_name(&self) -> String {
        match self {
            Self::Process { uid, .. } => uid.map_or_else(|| "a process".to_owned(), |uid| format!("uid {uid}")),
            Self::Certified(holder) => holder.to_string(),
            Self::Person { name, .. } => name.to_string(),
            Self::Console { opened_by, .. } => opened_by.display_name(),
            Self::Owner(key) => key.as_str().to_owned(),
        }
    }

    /// Converts the caller to its form in the audit record.
    pub(super) fn audit_peer(self) -> AuditPeer {
        match self {
            Self::Process { uid, pid } => AuditPeer {
                peer_uid: uid,
                peer_pid: pid,
                ..AuditPeer::default()
            },
            Self::Certified(holder) => AuditPeer {
                peer_certificate: Some(holder),
                ..AuditPeer::default()
            },
            Self::Person { subject, name } => AuditPeer {
                peer_subject: Some(subject),
                peer_name: Some(name),
                ..AuditPeer::default()
            },
            Self::Console { opened_by, .. } => AuditPeer {
                via: Some(Door::Console),
                ..opened_by.audit_peer()
            },
            Self::Owner(key) => AuditPeer {
                peer_key: Some(key.as_str().into()),
                via: Some(Door::Portal),
                ..AuditPeer::default()
            },
        }
    }
}

/// A flag that the handler of a call sets to extend the lifetime of the connection for a long answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionExtension(pub(crate) Arc<AtomicBool>);

impl ConnectionExtension {
    pub(crate) fn extend(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The author of a call of the admin API.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) peer: AdminPeer,
    /// The condition under which a change is made. The console and the portal set the condition directly. Other callers send it
    /// in the header `If-Match`.
    pub(crate) from: ChangePrecondition,
}

impl From<AdminPeer> for Author {
    /// Creates an author whose changes are unconditional.
    fn from(peer: AdminPeer) -> Self {
        Self {
            peer,
            from: ChangePrecondition::Anything,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Author {
    type Rejection = AdminError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, AdminError> {
        let peer = parts.extract::<Extension<AdminPeer>>().await;
        let Extension(peer) = peer.map_err(|error| AdminError::failed(error.to_string()))?;
        let from = match parts.extensions.get() {
            Some(from) => *from,
            None => if_match(&parts.headers)?,
        };
        Ok(Self { peer, from })
    }
}

/// Returns the condition in the header `If-Match`. A missing header and the value `*` mean an unconditional change.
fn if_match(headers: &HeaderMap) -> Result<ChangePrecondition, AdminError> {
    let version = condition(headers)?;
    Ok(version.map_or(ChangePrecondition::Anything, ChangePrecondition::Version))
}

/// Returns the version in the header `If-Match`. `None` if the change is unconditional.
fn condition(headers: &HeaderMap) -> Result<Option<Version>, AdminError> {
    let wanted = || AdminError::invalid("If-Match must be one version in quotes, such as \"17-5f3a9c21\", or `*`");
    let mut named = headers.get_all(header::IF_MATCH).iter();
    let tag = match (named.next(), named.next()) {
        (None, _) => return Ok(None),
        (Some(one), None) => one.to_str().map_err(|_| wanted())?.trim(),
        (Some(_), Some(_)) => return Err(wanted()),
    };
    if tag == "*" {
        return Ok(None);
    }
    let version = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let version = version.and_then(|text| text.parse().ok());
    version.map(Some).ok_or_else(wanted)
}

#[cfg(test)]
mod page_tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    /// Returns the JSON value of a line that does not record a change. Panics if the line records one.
    fn other(line: AuditLine) -> Value {
        match line {
            AuditLine::Other(line) => line,
            AuditLine::Change(change) => panic!("{change:?}"),
        }
    }

    /// Reads all lines, page by page. Returns them with the number of pages.
    fn all(path: &Path) -> (Vec<Value>, usize) {
        let (mut lines, mut pages, mut before) = (Vec::new(), 0, None);
        loop {
            let page = read_backwards(path, before).unwrap();
            lines.extend(page.changes.into_iter().map(other));
            pages += 1;
            match page.next {
                Some(next) => before = Some(next),
                None => return (lines, pages),
            }
        }
    }

    #[test]
    fn every_line_is_read_once_the_newest_first() {
        let text: String = (0..120).map(|number| format!("{{\"n\":{number}}}\n")).collect();
        let (lines, pages) = all(file(&text).path());
        let numbers: Vec<i64> = lines.iter().map(|line| line["n"].as_i64().unwrap()).collect();
        assert_eq!(numbers, (0..120).rev().collect::<Vec<i64>>());
        assert_eq!(pages, 3);
        assert_eq!(all(file("").path()), (Vec::new(), 1));
    }

    #[test]
    fn long_lines_cut_no_page_in_two_and_one_beyond_the_limit_is_passed_over() {
        let line = |name: &str, length: u64| format!("\"{name}{}\"\n", "x".repeat(usize::try_from(length).unwrap()));
        let text: String = ["a", "b", "c", "d"].map(|name| line(name, BYTES_MAX / 2 - 20)).concat();
        let (lines, _) = all(file(&text).path());
        let names: String = lines.iter().filter_map(|line| line.as_str()?.chars().next()).collect();
        assert_eq!(names, "dcba");
        let text = format!("1\n{}2\n", line("long", BYTES_MAX * 3));
        let (lines, pages) = all(file(&text).path());
        assert_eq!(
            (lines.first(), lines.last()),
            (Some(&Value::from(2)), Some(&Value::from(1)))
        );
        assert!(pages < 10, "{pages}");
    }

    #[test]
    fn a_line_that_is_none_is_shown_as_it_is() {
        let page = read_backwards(file("half a li\n{}\n").path(), None).unwrap();
        let lines = page.changes.into_iter().map(other);
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [serde_json::json!({}), Value::from("half a li")]
        );
    }
}

#[cfg(test)]
mod peer_tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_session_of_the_console_may_ask_what_its_role_says_and_others_may_ask_all() {
        let process = AdminPeer::Process {
            uid: Some(0),
            pid: None,
        };
        for needed in Role::ALL {
            assert_eq!(process.check_role(needed), Ok(()));
            for role in Role::ALL {
                let opened_by = Box::new(process.clone());
                let session = AdminPeer::Console { opened_by, role };
                assert_eq!(
                    session.check_role(needed).is_ok(),
                    role >= needed,
                    "{role:?} {needed:?}"
                );
            }
        }
    }

    #[test]
    fn a_condition_is_one_version_in_quotes_any_or_none() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_MATCH, HeaderValue::from_static(value));
            }
            if_match(&headers).ok()
        };
        let version = Version::new(17, 0xcbf4_3926);
        assert_eq!(read(&["\"17-cbf43926\""]), Some(ChangePrecondition::Version(version)));
        assert_eq!(
            (read(&[]), read(&["*"])),
            (Some(ChangePrecondition::Anything), Some(ChangePrecondition::Anything))
        );
        for wrong in [
            "",
            "17-cbf43926",
            "W/\"17-cbf43926\"",
            "\"17-cbf43926\", \"18-cbf43926\"",
            "\"\"",
            "\"other\"",
        ] {
            assert_eq!(read(&[wrong]), None, "{wrong}");
        }
        assert_eq!(read(&["\"17-cbf43926\"", "\"17-cbf43926\""]), None);
    }
}
