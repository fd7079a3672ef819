//! What only a file can suffer.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rusqlite::Connection;
use tempfile::TempDir;
use toolpulse::store::{
    BackupError, Change, Commit, FILE, LOCK_FILE, Loaded, Location, OpenError, Store, backup_file,
};

use crate::values::{names, put, tool};

pub(crate) async fn open(dir: &Path) -> Result<(Store, Loaded), OpenError> {
    Store::open(&Location::Sqlite { dir: dir.to_owned() }).await
}

/// A closed store with the tool `kept`.
pub(crate) async fn filled() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path()).await.unwrap();
    store.commit(put(&tool("kept", 1))).await.unwrap();
    store.close().await;
    let file = dir.path().join(FILE);
    (dir, file)
}

/// A store's bytes after some SQL.
fn patched(store: &[u8], sql: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x");
    fs::write(&file, store).unwrap();
    let conn = Connection::open(&file).unwrap();
    conn.execute_batch(sql).unwrap();
    conn.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).unwrap();
    drop(conn);
    fs::read(&file).unwrap()
}

#[tokio::test]
async fn a_file_that_is_no_store_is_refused_and_left_alone() {
    let foreign = |sql: &str| {
        let dir = tempfile::tempdir().unwrap();
        Connection::open(dir.path().join("x")).unwrap().execute_batch(sql).unwrap();
        fs::read(dir.path().join("x")).unwrap()
    };
    let (_dir, file) = filled().await;
    let good = fs::read(&file).unwrap();
    let mut damaged = good.clone();
    damaged[4096..].fill(0x55);
    // Nothing reads this page before the next write needs it.
    let mut unused =
        patched(&good, "CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(99999)); DROP TABLE t");
    let page = u32::from_be_bytes(unused[32..36].try_into().unwrap()) as usize;
    assert!(page > 1);
    unused[(page - 1) * 4096..page * 4096].fill(0x55);
    let cut = good[..good.len() - 4096].to_vec();
    // What is ours may get the write-ahead mode into its header before its rows are read; what is not stays to the
    // byte.
    let (theirs, ours) = (false, true);
    let cases: Vec<(&str, Vec<u8>, &str, bool)> = vec![
        ("short text", b"hello\n".to_vec(), "it is not an SQLite file", theirs),
        ("long text", b"hello\n".repeat(3000), "it is not an SQLite file", theirs),
        ("zeros", vec![0; 8192], "it is not an SQLite file", theirs),
        ("foreign", foreign("CREATE TABLE t (x); PRAGMA application_id = 77"), "(application id 77)", theirs),
        ("foreign without id", foreign("CREATE TABLE t (x)"), "(application id 0)", theirs),
        ("foreign without tables", foreign("PRAGMA application_id = 78"), "(application id 78)", theirs),
        ("pages overwritten", damaged, "is damaged", theirs),
        ("cut short", cut, "is damaged", theirs),
        ("list of free pages overwritten", unused, "is damaged", theirs),
        ("no version", patched(&good, "PRAGMA user_version = 0"), "is damaged: schema version 0", theirs),
        (
            "newer",
            patched(&good, "PRAGMA user_version = 4"),
            "newer toolpulse: schema 4, this one knows up to 3",
            theirs,
        ),
        ("no counters", patched(&good, "DELETE FROM counter"), "is damaged: no row of counters", ours),
        (
            "broken spec",
            patched(&good, "UPDATE tool SET spec = '{'"),
            "is damaged: the spec of tool default/kept",
            ours,
        ),
        (
            "broken approved labels",
            patched(&good, "UPDATE tool SET approved_labels = '{'"),
            "is damaged: the approved labels of tool default/kept",
            ours,
        ),
        ("impossible name", patched(&good, "UPDATE tool SET name = 'a b'"), "is damaged: name 'a b'", ours),
        (
            "negative",
            patched(&good, "UPDATE tool SET generation = -1"),
            "is damaged: the negative number -1",
            ours,
        ),
        ("lost table", patched(&good, "DROP TABLE success"), "no such table", ours),
    ];
    for (name, bytes, want, ours) in cases {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        fs::write(&file, &bytes).unwrap();
        let error = open(dir.path()).await.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(want) && error.contains(&file.display().to_string()), "{name}: {error}");
        assert!(!error.contains('\n'), "{name}: {error}");
        let after = fs::read(&file).unwrap();
        assert_eq!(after.len(), bytes.len(), "{name}");
        assert!(after == bytes || ours, "{name}");
    }
}

#[tokio::test]
async fn a_first_start_that_was_cut_off_is_fresh() {
    for step in ["nothing", "lock file", "empty file", "wal header"] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        if step != "nothing" {
            fs::write(dir.path().join(LOCK_FILE), "").unwrap();
        }
        if step == "empty file" {
            fs::write(&file, "").unwrap();
        }
        if step == "wal header" {
            let conn = Connection::open(&file).unwrap();
            conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        }
        let (store, loaded) = open(dir.path()).await.unwrap();
        assert_eq!(loaded, Loaded::default(), "{step}");
        store.commit(put(&tool("a", 1))).await.unwrap();
        store.close().await;
        assert_eq!(names(&open(dir.path()).await.unwrap().1), ["a"], "{step}");
    }
}

#[tokio::test]
async fn a_log_without_its_file_is_not_an_empty_registry() {
    let (dir, file) = filled().await;
    let (store, _) = open(dir.path()).await.unwrap();
    store.commit(put(&tool("log", 2))).await.unwrap();
    // As a crash leaves it.
    let crashed = tempfile::tempdir().unwrap();
    let wal = format!("{FILE}-wal");
    fs::copy(dir.path().join(&wal), crashed.path().join(&wal)).unwrap();
    for missing in [true, false] {
        if !missing {
            fs::write(crashed.path().join(FILE), "").unwrap();
        }
        let error = open(crashed.path()).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
    fs::copy(&file, crashed.path().join(FILE)).unwrap();
    assert_eq!(names(&open(crashed.path()).await.unwrap().1), ["kept", "log"], "with its file it is whole");
    store.close().await;
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for bad in [dir.path().join("file"), dir.path().join("file/under"), PathBuf::from("/proc/self")] {
        let error = open(&bad).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::Directory { .. }), "{error}");
        let want = format!("cannot create or write the data directory {}: ", bad.display());
        assert!(error.to_string().starts_with(&want), "{error}");
    }
}

#[tokio::test]
async fn the_files_are_for_their_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("a");
    let (_store, _) = open(&data).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&data), mode(&data.join(FILE)), mode(&data.join(LOCK_FILE))), (0o700, 0o600, 0o600));
}

#[tokio::test]
async fn a_store_in_memory_has_no_backup() {
    let (store, _) = Store::open(&Location::Memory).await.unwrap();
    let error = store.backup(Path::new("/never/written")).await.unwrap_err();
    assert!(matches!(error, BackupError::InMemory), "{error}");
}

#[tokio::test]
async fn a_backup_never_overwrites_and_never_lies() {
    let (dir, _) = filled().await;
    let to = tempfile::tempdir().unwrap();
    let exists = to.path().join("exists");
    fs::write(&exists, "precious").unwrap();
    let error = backup_file(dir.path(), &exists).unwrap_err();
    assert!(matches!(&error, BackupError::Exists(file) if *file == exists), "{error}");
    assert_eq!(fs::read(&exists).unwrap(), b"precious");
    let error = backup_file(to.path(), &to.path().join("new")).unwrap_err();
    assert!(matches!(error, BackupError::NoStore(_)), "{error}");
    let error = backup_file(dir.path(), &to.path().join("no/such/dir")).unwrap_err();
    assert!(matches!(error, BackupError::Target { .. }), "{error}");
    fs::write(dir.path().join(FILE), "something else, long enough to look at").unwrap();
    let error = backup_file(dir.path(), &to.path().join("new")).unwrap_err();
    assert!(matches!(error, BackupError::Source(OpenError::NotSqlite { .. })), "{error}");
    let left: Vec<_> = fs::read_dir(to.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["exists"], "nothing half done stays");
}

/// Puts a backup in a store's place and reads it.
pub(crate) async fn restored(backup: &Path) -> Loaded {
    let header = fs::read(backup).unwrap();
    assert_eq!(header[18..20], [1, 1], "a single file, that needs no log beside it");
    let dir = tempfile::tempdir().unwrap();
    fs::copy(backup, dir.path().join(FILE)).unwrap();
    let (store, loaded) = open(dir.path()).await.unwrap();
    store.commit(put(&tool("writable", 9))).await.unwrap();
    store.close().await;
    loaded
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_store_that_is_being_written_is_consistent() {
    let (dir, _) = filled().await;
    let (store, _) = open(dir.path()).await.unwrap();
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            // Both or none: a copy with one of a pair is torn.
            for n in 2.. {
                let changes = vec![Change::Put(tool("left", n)), Change::Put(tool("right", n))];
                if store.commit(Commit { changes, generation: n }).await.is_err() {
                    return n;
                }
            }
            0
        })
    };
    for n in 0..10 {
        store.commit(put(&tool("acknowledged", n))).await.unwrap();
        let to = dir.path().join(format!("backup-{n}"));
        store.backup(&to).await.unwrap();
        let loaded = restored(&to).await;
        let generation =
            |name: &str| loaded.tools.iter().find(|t| t.key.name.as_str() == name).map(|t| t.generation);
        assert_eq!(generation("left"), generation("right"));
        assert_eq!(generation("acknowledged"), Some(n));
        assert_eq!(loaded.generation.max(1), generation("left").unwrap_or(1).max(n));
    }
    store.close().await;
    assert!(writer.await.unwrap() > 2, "it wrote meanwhile");
}
