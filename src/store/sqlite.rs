//! The store in an SQLite file: one connection on one thread, WAL, a commit waits for fsync.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, Row, TransactionBehavior};

use super::{
    FILE, Loaded, OpenError, StoreError, Write,
    lock::{Lock, sync_dir},
    rows::{self, Statements},
    schema::{Migration, explain, identify, migrate},
    worker::Engine,
};

/// Waits this long for a lock. Only a backup can hold one, and only for moments.
const BUSY: Duration = Duration::from_secs(5);
/// Pages in the write-ahead log from which on they are moved to the file: 4 MiB.
const CHECKPOINT_PAGES: i64 = 1000;
/// The log is cut down to this once a backup that kept it growing is done.
const MAX_IDLE_WAL: u64 = 16 << 20;

/// An open store.
#[derive(Debug)]
pub(super) struct Sqlite {
    /// None after an I/O error, until `recover`.
    conn: Option<Connection>,
    file: PathBuf,
    inode: u64,
    /// Whether the last checkpoint failed, so that only the first of many is logged.
    behind: bool,
    /// Last: dropped after the connection.
    _lock: Lock,
}

impl Sqlite {
    /// Takes the directory, checks the file, and brings it to the newest of `migrations`.
    pub(super) fn open(dir: &Path, migrations: &[Migration]) -> Result<Self, OpenError> {
        let lock = Lock::take(dir)?;
        let file = dir.join(FILE);
        let directory = |source| OpenError::Directory { dir: dir.to_owned(), source };
        refuse_lost(&file)?;
        if !file.exists() {
            // Before SQLite does: for this user alone, and with its name on disk.
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).map_err(directory)?;
            sync_dir(dir).map_err(directory)?;
        }
        let mut conn = connect(&file).map_err(|error| explain(&error, &file))?;
        let version = identify(&conn, &file)?;
        let known = migrations.last().map_or(0, |m| m.to);
        if version > known {
            return Err(OpenError::Newer { file, found: version, known });
        }
        if let Some(what) = quick_check(&conn).map_err(|error| explain(&error, &file))? {
            return Err(OpenError::Damaged { file, what });
        }
        configure(&conn).map_err(|error| explain(&error, &file))?;
        migrate(&mut conn, &file, version, migrations)?;
        let inode = fs::metadata(&file).map_err(directory)?.ino();
        Ok(Self { conn: Some(conn), file, inode, behind: false, _lock: lock })
    }

    /// Reads everything.
    pub(super) fn load(&self) -> Result<Loaded, OpenError> {
        let failed = |what| OpenError::Failed { file: self.file.clone(), what };
        let conn = self.conn.as_ref().ok_or_else(|| failed("it had an I/O error".to_owned()))?;
        rows::load(conn).map_err(|error| match error {
            rows::LoadError::Sql(error) => explain(&error, &self.file),
            rows::LoadError::Content(what) => OpenError::Damaged { file: self.file.clone(), what },
        })
    }

    /// SQLite writes on happily into a file that has no name any more; that must not be answered OK.
    fn check_place(&self) -> Result<(), StoreError> {
        match fs::metadata(&self.file) {
            Ok(metadata) if metadata.ino() == self.inode => Ok(()),
            Ok(_) => Err(StoreError::Failed(format!("{} was replaced while in use", self.file.display()))),
            Err(error) => Err(StoreError::Failed(format!("{}: {error}", self.file.display()))),
        }
    }

    fn reopen(&self) -> rusqlite::Result<Connection> {
        let conn = connect(&self.file)?;
        configure(&conn)?;
        // After a failed fsync the kernel may call pages clean that never reached the disk. Moving the whole log
        // to the file writes and syncs all of it anew; only then may a commit build on it.
        let busy: i64 = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        if busy != 0 {
            return Err(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
                Some("a backup is running".to_owned()),
            ));
        }
        Ok(conn)
    }

    /// Notes what an error means for later writes, and what to answer.
    fn failed(&mut self, error: rusqlite::Error) -> StoreError {
        use ErrorCode::{CannotOpen, DatabaseCorrupt, DiskFull, NotADatabase, ReadOnly, SystemIoFailure};
        match error.sqlite_error_code() {
            Some(DiskFull) => {
                self.give_back();
                StoreError::Full
            }
            Some(SystemIoFailure | DatabaseCorrupt | NotADatabase | CannotOpen | ReadOnly) => {
                self.conn = None;
                if disk_is_full(&self.file) {
                    StoreError::Full
                } else {
                    StoreError::Failed(error.to_string())
                }
            }
            _ => StoreError::Failed(error.to_string()),
        }
    }

    /// The refused transaction left its pages in the log: a full disk needs that space, and so do later writes.
    fn give_back(&self) {
        let Some(conn) = &self.conn else { return };
        // Without waiting for a backup; and where the file can't grow either, nothing is worse than before.
        let _ = conn.busy_timeout(Duration::ZERO);
        let _ = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let _ = conn.busy_timeout(BUSY);
    }

    fn checkpoint(&self) -> rusqlite::Result<()> {
        let Some(conn) = &self.conn else { return Ok(()) };
        let state = |row: &Row<'_>| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
        let (logged, moved) = conn.query_row("PRAGMA wal_checkpoint(NOOP)", [], state)?;
        if logged >= CHECKPOINT_PAGES && logged > moved {
            conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        }
        Ok(())
    }
}

impl Engine for Sqlite {
    fn recover(&mut self) -> Result<(), StoreError> {
        self.check_place()?;
        if self.conn.is_none() {
            self.conn = Some(self.reopen().map_err(|error| self.failed(error))?);
        }
        Ok(())
    }

    fn write(&mut self, writes: &[&Write]) -> Result<(), StoreError> {
        let Some(conn) = &mut self.conn else {
            return Err(StoreError::Failed(
                "the last write failed and the file is not open again".to_owned(),
            ));
        };
        let durable = writes.iter().any(|write| !matches!(write, Write::Soft(_)));
        match transaction(conn, writes, durable) {
            Ok(()) => Ok(()),
            Err(rows::WriteError::Content(what)) => Err(StoreError::Failed(what)),
            Err(rows::WriteError::Sql(error)) => Err(self.failed(error)),
        }
    }

    fn load(&mut self) -> Result<Loaded, StoreError> {
        Self::load(self).map_err(|error| StoreError::Failed(error.to_string()))
    }

    fn tidy(&mut self) {
        let result = self.checkpoint();
        let was_behind = std::mem::replace(&mut self.behind, result.is_err());
        if let Err(error) = result {
            // The next write recovers or is refused; nothing that was answered is lost.
            let error = self.failed(error);
            if !was_behind {
                tracing::warn!(%error, "store checkpoint failed");
            }
        }
    }
}

fn transaction(conn: &mut Connection, writes: &[&Write], durable: bool) -> Result<(), rows::WriteError> {
    // NORMAL, not OFF: no fsync at a commit, but a checkpoint still syncs the log before the file, without which
    // a power cut could take durable commits along.
    conn.pragma_update(None, "synchronous", if durable { "FULL" } else { "NORMAL" })?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut statements = Statements::new(&tx)?;
    for write in writes {
        statements.write(write)?;
    }
    drop(statements);
    Ok(tx.commit()?)
}

fn connect(file: &Path) -> rusqlite::Result<Connection> {
    // Never CREATE: a file that vanished must not come back empty.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(file, flags)?;
    conn.busy_timeout(BUSY)?;
    Ok(conn)
}

fn configure(conn: &Connection) -> rusqlite::Result<()> {
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN),
            Some(format!("the file system allows no write-ahead log (journal mode {mode})")),
        ));
    }
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "cell_size_check", true)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    // Ours to do, in `tidy`, where its errors are seen.
    conn.query_row("PRAGMA wal_autocheckpoint = 0", [], |_| Ok(()))?;
    conn.query_row(&format!("PRAGMA journal_size_limit = {MAX_IDLE_WAL}"), [], |_| Ok(()))
}

/// The first thing that is wrong with the file, if any.
pub(super) fn quick_check(conn: &Connection) -> rusqlite::Result<Option<String>> {
    let first: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((first != "ok").then(|| first.lines().last().unwrap_or_default().to_owned()))
}

/// An empty or missing file beside a log with content is no fresh store: SQLite would throw the log away.
fn refuse_lost(file: &Path) -> Result<(), OpenError> {
    let len = |path: &Path| fs::metadata(path).map_or(0, |m| m.len());
    let mut wal = file.as_os_str().to_owned();
    wal.push("-wal");
    if len(file) == 0 && len(Path::new(&wal)) > 0 {
        return Err(OpenError::Damaged {
            file: file.to_owned(),
            what: "it is empty or missing, but its write-ahead log (-wal) is not".to_owned(),
        });
    }
    Ok(())
}

/// SQLite calls some failures of a full disk an I/O error.
fn disk_is_full(file: &Path) -> bool {
    rustix::fs::statvfs(file).is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) < 64 * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        core::name::Namespace,
        store::{Commit, SavedGateway, Soft, schema::MIGRATIONS},
    };

    fn gateway(id: &str, bytes: usize) -> Write {
        Write::Soft(vec![Soft::Gateway(SavedGateway {
            namespace: Namespace::default(),
            gateway_id: id.to_owned(),
            snapshot_json: "x".repeat(bytes),
        })])
    }

    fn ids(store: &Sqlite) -> Vec<String> {
        store.load().unwrap().gateways.into_iter().map(|g| g.gateway_id).collect()
    }

    fn pages(store: &Sqlite, pages: u32) {
        let sql = format!("PRAGMA max_page_count = {pages}");
        store.conn.as_ref().unwrap().query_row(&sql, [], |_| Ok(())).unwrap();
    }

    #[test]
    fn full_is_refused_whole_and_heals() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(dir.path(), MIGRATIONS).unwrap();
        store.write(&[&gateway("before", 10)]).unwrap();
        pages(&store, 20);
        let (small, large) = (gateway("small", 10), gateway("large", 200_000));
        assert_eq!(store.write(&[&small, &large]), Err(StoreError::Full));
        assert_eq!(ids(&store), ["before"], "nothing of a refused write is visible");
        store.recover().unwrap();
        store.write(&[&small]).unwrap();
        pages(&store, 10_000);
        store.write(&[&large]).unwrap();
        drop(store);
        let store = Sqlite::open(dir.path(), MIGRATIONS).unwrap();
        assert_eq!(ids(&store), ["before", "large", "small"]);
    }

    #[test]
    fn a_value_that_does_not_fit_fails_its_write_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(dir.path(), MIGRATIONS).unwrap();
        let bad = Write::Commit(Commit { generation: u64::MAX, ..Commit::default() });
        let error = store.write(&[&gateway("with it", 1), &bad]).unwrap_err();
        assert!(matches!(error, StoreError::Failed(_)), "{error}");
        assert!(ids(&store).is_empty());
        store.recover().unwrap();
        store.write(&[&gateway("after", 1)]).unwrap();
        assert_eq!(ids(&store), ["after"]);
    }

    #[test]
    fn a_file_that_was_taken_away_takes_no_writes() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(dir.path(), MIGRATIONS).unwrap();
        let (file, aside) = (dir.path().join(FILE), dir.path().join("aside"));
        fs::rename(&file, &aside).unwrap();
        assert!(matches!(store.recover(), Err(StoreError::Failed(_))));
        fs::write(&file, "").unwrap();
        assert!(matches!(store.recover(), Err(StoreError::Failed(_))), "another file in its place");
        fs::rename(&aside, &file).unwrap();
        store.recover().unwrap();
    }

    #[test]
    fn an_error_reopens_and_the_log_moves_to_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(dir.path(), MIGRATIONS).unwrap();
        store.write(&[&gateway("a", 100_000)]).unwrap();
        let wal = dir.path().join(format!("{FILE}-wal"));
        assert!(fs::metadata(&wal).unwrap().len() > 100_000);
        let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(1034), None);
        assert!(matches!(store.failed(error), StoreError::Failed(_)), "1034 is SQLITE_IOERR_FSYNC");
        assert!(store.write(&[&gateway("b", 1)]).is_err(), "no write before it is recovered");
        store.recover().unwrap();
        assert_eq!(fs::metadata(&wal).unwrap().len(), 0);
        store.write(&[&gateway("c", 1)]).unwrap();
        assert_eq!(ids(&store), ["a", "c"]);
    }

    #[test]
    fn the_log_does_not_grow_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(dir.path(), MIGRATIONS).unwrap();
        for n in 0..60 {
            // Another size each time: SQLite does not write what is the same.
            store.write(&[&gateway("a", 200_000 + n)]).unwrap();
            store.tidy();
        }
        let wal = fs::metadata(dir.path().join(format!("{FILE}-wal"))).unwrap().len();
        assert!(wal < 6 << 20, "{wal} bytes of log after 12 MB of writes");
    }
}
