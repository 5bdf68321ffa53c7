//! The disk operations of the journal. Tests replace them with a failing disk.

use std::{fmt, fs::File, io, os::unix::fs::FileExt, path::Path};

/// The disk operations that records depend on. Tests replace them with a failing disk.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// Allocates a file's bytes.
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        allocate(file, bytes)
    }

    /// Writes all bytes at an offset.
    fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    /// The percentage of the folder's disk that is free for an unprivileged process.
    fn free_percent(&self, folder: &Path) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(folder)?;
        Ok(disk.f_bavail.saturating_mul(100) / disk.f_blocks.max(1))
    }

    /// Returns once everything written to the file is on disk.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}

/// The file system.
#[derive(Debug)]
pub(super) struct RealDisk;

impl Disk for RealDisk {}

/// Allocates the bytes with `fallocate`, or writes zeros if the file system does not support it.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            let mut at = 0;
            while at < bytes {
                let piece = usize::try_from(bytes - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
                file.write_all_at(ZEROS.get(..piece).unwrap_or(&ZEROS), at)?;
                at += piece as u64;
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
