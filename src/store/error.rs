//! What can go wrong, told so that a person knows what to do.

use std::{io, path::PathBuf};

use super::QUEUE;

/// Why the store could not be opened. The file is left as it was.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory can't be used.
    #[error("cannot create or write the data directory {dir}: {source}", dir = .dir.display())]
    Directory {
        /// The data directory.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error(
        "the store in {dir} is in use by {holder}; stop it or use another data directory",
        dir = .dir.display(),
        holder = holder(*.pid)
    )]
    InUse {
        /// The data directory.
        dir: PathBuf,
        /// The process, if the lock file names it.
        pid: Option<u32>,
    },
    /// Not an SQLite file.
    #[error("{file} is not a toolpulse store: it is not an SQLite file; move it away or use another data directory", file = .file.display())]
    NotSqlite {
        /// The file.
        file: PathBuf,
    },
    /// Another application's SQLite file.
    #[error(
        "{file} is not a toolpulse store: it is an SQLite file of another application (application id {application_id}); \
         move it away or use another data directory",
        file = .file.display()
    )]
    Foreign {
        /// The file.
        file: PathBuf,
        /// The id that it carries.
        application_id: i32,
    },
    /// The file's content is broken.
    #[error(
        "the store {file} is damaged: {what}; restore a backup of it, or move it away to start empty",
        file = .file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is broken.
        what: String,
    },
    /// The file is from a newer version.
    #[error(
        "the store {file} was written by a newer toolpulse: schema {found}, this one knows up to {known}; \
         downgrades are refused, run the newer version or restore an older backup",
        file = .file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its schema version.
        found: u32,
        /// The newest that this build knows.
        known: u32,
    },
    /// A schema upgrade failed and was rolled back.
    #[error(
        "cannot upgrade the store {file} to schema {to}: {what}; it is left at schema {from}",
        file = .file.display()
    )]
    Upgrade {
        /// The file.
        file: PathBuf,
        /// The version it has.
        from: u32,
        /// The version that it should have got.
        to: u32,
        /// What went wrong.
        what: String,
    },
    /// SQLite can't read or write the file.
    #[error("cannot open the store {file}: {what}", file = .file.display())]
    Failed {
        /// The file.
        file: PathBuf,
        /// What SQLite says.
        what: String,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// Why a write was refused. Nothing of it is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No space left.
    #[error("the disk is full")]
    Full,
    /// The write failed.
    #[error("{0}")]
    Failed(String),
    /// Too many writes wait.
    #[error("too many writes wait for the disk (at most {QUEUE})")]
    Busy,
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}
