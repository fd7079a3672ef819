//! One process per data directory: a lock that the kernel lets go of when its holder ends, however it ends.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    process,
};

use super::{LOCK_FILE, OpenError};

/// Held as long as it lives. The file stays when it is dropped: removing it would race with the next holder.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Creates the directory if it is missing, for this user alone, and locks it.
    pub(super) fn take(dir: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Directory { dir: dir.to_owned(), source };
        let mut file = open(dir).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { dir: dir.to_owned(), pid: pid(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", process::id())).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

fn open(dir: &Path) -> io::Result<File> {
    if !dir.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        if let Some(parent) = dir.canonicalize()?.parent() {
            sync_dir(parent)?;
        }
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(dir.join(LOCK_FILE))
}

fn pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    // Bounded: the file may be anything.
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Makes names that were created in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    fs::File::open(dir)?.sync_all()
}
