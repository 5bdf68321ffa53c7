//! Reads secrets from environment variables, files and systemd credentials. Secrets are never logged.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::domain::catalogue::SecretRef;
use crate::domain::keys::secret::Secret;

/// Maximum length of a secret, in bytes. Longer content is an error, because it cannot be a secret.
pub(crate) const SECRET_BYTES_MAX: usize = 8 * 1024;

/// Reads the secret that `reference` names. A single line break at its end is removed. Returns `Ok(None)` if the variable, file
/// or credential does not exist.
///
/// # Errors
/// The content is unreadable, empty, not UTF-8 text or longer than [`SECRET_BYTES_MAX`]. The message contains the reference,
/// never the content.
pub(crate) fn read(reference: &SecretRef) -> Result<Option<Secret>, String> {
    let named = |why: String| format!("secret {reference}: {why}");
    match read_or_empty(reference).map_err(named)? {
        Some(secret) if secret.is_empty() => Err(named("the value is empty".to_owned())),
        read => Ok(read),
    }
}

/// Like [`read`], but an empty secret is not an error.
///
/// # Errors
/// The same errors as for [`read`], except that the secret can be empty. The message does not contain the reference.
pub(crate) fn read_or_empty(reference: &SecretRef) -> Result<Option<Secret>, String> {
    // The limit is three bytes more than the longest secret: two for a line break, and one that shows that the content is too
    // long.
    let text = read_bytes(reference, SECRET_BYTES_MAX + 3)?;
    text.map(|bytes| checked(&bytes)).transpose()
}

/// Reads at most `bytes_max` bytes of the variable, file or credential that `reference` names, whatever they contain. Returns
/// `Ok(None)` if it does not exist.
///
/// # Errors
/// The operating system's error, without the reference.
pub(crate) fn read_bytes(reference: &SecretRef, bytes_max: usize) -> Result<Option<Vec<u8>>, String> {
    match (reference, secret_path(reference)) {
        (SecretRef::Env(name), _) => Ok(std::env::var_os(name).map(std::ffi::OsString::into_encoded_bytes)),
        (SecretRef::File(_) | SecretRef::Credential(_), Some(path)) => file(&path, bytes_max),
        (SecretRef::File(_) | SecretRef::Credential(_), None) => Ok(None),
    }
}

/// Returns the path of the file that contains the secret; `None` if the secret is not in a file.
pub(crate) fn secret_path(reference: &SecretRef) -> Option<PathBuf> {
    match reference {
        SecretRef::Env(_) => None,
        SecretRef::File(path) => Some(PathBuf::from(path)),
        SecretRef::Credential(name) => {
            let folder = std::env::var_os("CREDENTIALS_DIRECTORY")?;
            Some(PathBuf::from(folder).join(name))
        }
    }
}

/// Why this process has no systemd credentials, and what to do.
pub(crate) const NO_CREDENTIALS: &str = "systemd gives credentials only to its units, and this process is not one of them: run \
    `systemctl start weir-check`, or see docs/operations.md, Install";

/// Whether systemd has given credentials to this process.
pub(crate) fn has_credentials() -> bool {
    std::env::var_os("CREDENTIALS_DIRECTORY").is_some()
}

/// Formats the error about a secret that does not exist: the reference, and what to do.
pub(crate) fn missing(reference: &SecretRef) -> String {
    let advice = match reference {
        SecretRef::Env(_) => "set the variable in the environment of weir",
        SecretRef::File(_) => "write the secret into that file",
        SecretRef::Credential(_) if !has_credentials() => NO_CREDENTIALS,
        SecretRef::Credential(_) => "add it to the unit with LoadCredential=",
    };
    format!("{reference} is missing: {advice}")
}

fn file(path: &Path, bytes_max: usize) -> Result<Option<Vec<u8>>, String> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot open the file: {error}")),
    };
    let mut bytes = Vec::new();
    file.take(bytes_max as u64)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read the file: {error}"))?;
    Ok(Some(bytes))
}

fn checked(bytes: &[u8]) -> Result<Secret, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the value is not UTF-8 text".to_owned())?;
    let text = text
        .strip_suffix('\n')
        .map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
    if text.len() > SECRET_BYTES_MAX {
        return Err(format!("the value has more than {SECRET_BYTES_MAX} bytes"));
    }
    // A control character would end or split the HTTP header that carries the secret.
    if text.chars().any(char::is_control) {
        return Err("the value contains a control character or a line break".to_owned());
    }
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_file(content: &[u8]) -> Result<Option<Secret>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, content).unwrap();
        read(&SecretRef::File(path.to_string_lossy().into_owned()))
    }

    #[test]
    fn one_closing_line_break_is_cut() {
        for content in [&b"s3cret"[..], b"s3cret\n", b"s3cret\r\n"] {
            assert_eq!(from_file(content).unwrap().unwrap().expose(), "s3cret");
        }
    }

    #[test]
    fn what_cannot_be_a_secret_is_an_error_that_does_not_quote_it() {
        for content in [
            &b""[..],
            b"\n",
            b"canary\n\n",
            b"canary\nx: y",
            b"canary\xff",
            b"can\0ary",
        ] {
            let error = from_file(content).unwrap_err();
            assert!(error.contains("file:") && !error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn an_empty_secret_is_an_error_only_where_one_is_needed() {
        for content in ["", "\n", "\r\n"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("secret");
            std::fs::write(&path, content).unwrap();
            let reference = SecretRef::File(path.to_string_lossy().into_owned());
            assert!(read(&reference).unwrap_err().ends_with("is empty"), "{content:?}");
            assert!(read_or_empty(&reference).unwrap().unwrap().is_empty(), "{content:?}");
        }
    }

    #[test]
    fn a_secret_is_taken_up_to_its_limit() {
        let longest = "x".repeat(SECRET_BYTES_MAX);
        assert!(from_file(longest.as_bytes()).unwrap().is_some());
        assert!(from_file(format!("{longest}\n").as_bytes()).unwrap().is_some());
        assert!(from_file(format!("{longest}x").as_bytes()).is_err());
        assert!(from_file(format!("{longest}\r\n").as_bytes()).is_ok());
        assert!(from_file(format!("{longest}xxx\n").as_bytes()).is_err());
    }

    #[test]
    fn what_is_not_there_is_no_error() {
        for text in [
            "env:WEIR_TEST_NOT_SET",
            "file:/nonexistent/secret",
            "credential:weir-test-not-there",
        ] {
            assert_eq!(read(&SecretRef::parse(text).unwrap()), Ok(None), "{text}");
        }
    }

    #[test]
    fn a_folder_is_no_secret() {
        assert!(read(&SecretRef::File("/".to_owned())).is_err());
    }

    #[test]
    fn the_environment_is_read() {
        let path = std::env::var("PATH").unwrap();
        let read = read(&SecretRef::Env("PATH".to_owned())).unwrap().unwrap();
        assert_eq!(read.expose(), path);
    }
}
