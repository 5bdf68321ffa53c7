//! The owner of a socket that this process may not use.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

/// Owner, group and mode of the socket, or of the nearest folder above it that can be inspected: that one denies the access.
/// `None` if not even the root folder can.
pub(crate) fn describe_owner(socket: &Path) -> Option<String> {
    let (path, found) = socket
        .ancestors()
        .find_map(|path| Some((path, fs::symlink_metadata(path).ok()?)))?;
    let name = |table: &str, id: u32| {
        let text = fs::read_to_string(table).unwrap_or_default();
        name_of(&text, id).map_or_else(|| id.to_string(), str::to_owned)
    };
    Some(format!(
        "{} belongs to {}:{} (mode {:o})",
        path.display(),
        name("/etc/passwd", found.uid()),
        name("/etc/group", found.gid()),
        found.permissions().mode() & 0o777,
    ))
}

/// The name of an id in a table like `/etc/passwd` or `/etc/group`: `name:password:id:...`.
fn name_of(table: &str, id: u32) -> Option<&str> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let found = fields.nth(1)?.parse::<u32>().ok()?;
        (found == id && !name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_the_name_of_its_line() {
        let table = "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:7:\nweir:x:990:990::/:/sbin/nologin\n";
        assert_eq!((name_of(table, 0), name_of(table, 990)), (Some("root"), Some("weir")));
        assert_eq!((name_of(table, 7), name_of(table, 5)), (None, None));
    }

    #[test]
    fn the_nearest_place_that_can_be_seen_is_described() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o750)).unwrap();
        let told = describe_owner(&folder.path().join("none/admin.sock")).unwrap();
        let seen = folder.path().display().to_string();
        assert!(told.starts_with(&seen) && told.ends_with("(mode 750)"), "{told}");
    }
}
