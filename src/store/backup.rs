//! A copy of a store, with or without a server that uses it.

use std::{
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rusqlite::{
    Connection, OpenFlags,
    backup::{Backup, StepResult},
};

use super::{
    FILE, OpenError,
    lock::sync_dir,
    schema::{explain, identify},
    sqlite::quick_check,
};

/// How often a copy is tried that finds the store locked, which only its opening and closing does for long.
const TRIES: u32 = 50;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The directory holds no store.
    #[error("there is no store in {dir}", dir = .0.display())]
    NoStore(PathBuf),
    /// The store lives in memory.
    #[error("a store in memory has no file to back up; start the server with a data directory")]
    InMemory,
    /// The store can't be read.
    #[error(transparent)]
    Source(#[from] OpenError),
    /// The target exists.
    #[error("{file} exists; a backup never overwrites a file, name a new one", file = .0.display())]
    Exists(PathBuf),
    /// The target can't be written.
    #[error("cannot write the backup {file}: {what}", file = .file.display())]
    Target {
        /// The target.
        file: PathBuf,
        /// What went wrong.
        what: String,
    },
}

/// Copies the store in `dir` to a new file, consistent as of one moment, whether a server runs on it or not.
///
/// The copy is checked, on disk, and a single file that can take the store's place. It appears under its name only
/// when it is complete.
///
/// # Errors
/// There is no new file then.
pub fn backup_file(dir: &Path, file: &Path) -> Result<(), BackupError> {
    let source = dir.join(FILE);
    if !source.exists() {
        return Err(BackupError::NoStore(dir.to_owned()));
    }
    if file.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(file.to_owned()));
    }
    let from = open(&source).map_err(|error| explain(&error, &source))?;
    if identify(&from, &source)? == 0 {
        return Err(BackupError::NoStore(dir.to_owned()));
    }
    let failed = |error: io::Error| BackupError::Target { file: file.to_owned(), what: error.to_string() };
    let parent = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let temp = tempfile::Builder::new().prefix(".toolpulse-backup-").tempfile_in(parent).map_err(failed)?;
    copy(&from, temp.path(), file)?;
    temp.as_file().sync_all().map_err(failed)?;
    temp.persist_noclobber(file).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => BackupError::Exists(file.to_owned()),
        _ => failed(error.error),
    })?;
    sync_dir(parent).map_err(failed)
}

/// Read only: a backup leaves no trace in the store, and WAL lets it read beside the one who writes.
fn open(source: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(source, flags)?;
    conn.busy_timeout(PAUSE * TRIES)?;
    Ok(conn)
}

fn copy(from: &Connection, to: &Path, shown: &Path) -> Result<(), BackupError> {
    let failed = |what: String| BackupError::Target { file: shown.to_owned(), what };
    let sql = |error: rusqlite::Error| failed(error.to_string());
    let mut conn = Connection::open(to).map_err(sql)?;
    {
        let backup = Backup::new(from, &mut conn).map_err(sql)?;
        let mut tries = TRIES;
        // All pages in one step: one read transaction, so writers can't make it start over for ever.
        while backup.step(-1).map_err(sql)? != StepResult::Done {
            tries -= 1;
            if tries == 0 {
                return Err(failed("the store is locked".to_owned()));
            }
            thread::sleep(PAUSE);
        }
    }
    // The copy says WAL in its header, as the store does; a single file must not.
    conn.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).map_err(sql)?;
    match quick_check(&conn).map_err(sql)? {
        None => conn.close().map_err(|(_, error)| sql(error)),
        Some(what) => Err(failed(format!("the copy is damaged: {what}"))),
    }
}
