//! Where secrets come from: environment, files, and systemd credentials. Read once at start, never logged.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::stand_in::SecretRef;
use crate::domain::secret::Secret;

/// The longest secret, in bytes. Anything longer is a wrong file.
pub const SECRET_BYTES_MAX: usize = 8 * 1024;

/// The secret a reference names, without one closing line break. `Ok(None)` if the variable, file or credential does not
/// exist.
///
/// # Errors
/// It exists but is unreadable, empty, not text or longer than [`SECRET_BYTES_MAX`]. The text names the reference, never
/// the content.
pub fn read(reference: &SecretRef) -> Result<Option<Secret>, String> {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let text = match reference {
        SecretRef::Env(name) => std::env::var_os(name).map(std::ffi::OsString::into_encoded_bytes),
        SecretRef::File(path) => file(Path::new(path)).map_err(|why| format!("secret {reference}: {why}"))?,
        SecretRef::Credential(name) => match credentials {
            Some(folder) => file(&folder.join(name)).map_err(|why| format!("secret {reference}: {why}"))?,
            None => None,
        },
    };
    text.map(|bytes| checked(&bytes).map_err(|why| format!("secret {reference}: {why}")))
        .transpose()
}

fn file(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let mut bytes = Vec::new();
    // Two more than a secret may have: its line break, and one that tells it is too long.
    file.take(SECRET_BYTES_MAX as u64 + 2)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot be read: {error}"))?;
    Ok(Some(bytes))
}

fn checked(bytes: &[u8]) -> Result<Secret, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is not text".to_owned())?;
    let text = text
        .strip_suffix('\n')
        .map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    if text.len() > SECRET_BYTES_MAX {
        return Err(format!("has more than {SECRET_BYTES_MAX} bytes"));
    }
    // A control character would end or split the header that carries the secret.
    if text.chars().any(char::is_control) {
        return Err("has a control character or a second line".to_owned());
    }
    Ok(Secret::new(text))
}
