//! What makes an SQLite file ours, and how an older one becomes a newer one.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::OpenError;

/// `TPLS`, in the file's header: tells our files from those of others.
pub(super) const APPLICATION_ID: i32 = 0x5450_4c53;

/// One step from a schema to the next, done in one transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Migration {
    /// The version that it leads to; the list counts up from 1 without gaps.
    pub(super) to: u32,
    /// What it does.
    pub(super) sql: &'static str,
}

/// All steps of this build. Append; never change one that was released.
pub(super) const MIGRATIONS: &[Migration] = &[Migration { to: 1, sql: include_str!("schema.sql") }];

/// Reads the schema version without writing anything; 0 for a file with nothing in it.
pub(super) fn identify(conn: &Connection, file: &Path) -> Result<u32, OpenError> {
    let read = |pragma: &str| {
        conn.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i32>(0))
            .map_err(|error| explain(&error, file))
    };
    let application_id = read("application_id")?;
    let version = read("user_version")?;
    let objects: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| explain(&error, file))?;
    if application_id == APPLICATION_ID {
        return u32::try_from(version).ok().filter(|v| *v > 0).ok_or_else(|| OpenError::Damaged {
            file: file.to_owned(),
            what: format!("schema version {version}"),
        });
    }
    if application_id != 0 || version != 0 || objects != 0 {
        return Err(OpenError::Foreign { file: file.to_owned(), application_id });
    }
    Ok(0)
}

/// Brings a file from schema `from` to the newest of `migrations`.
pub(super) fn migrate(
    conn: &mut Connection,
    file: &Path,
    mut from: u32,
    migrations: &[Migration],
) -> Result<(), OpenError> {
    for migration in migrations.iter().filter(|m| m.to > from).copied().collect::<Vec<_>>() {
        step(conn, migration).map_err(|error| match from {
            // Nothing to upgrade: the first start failed to create it.
            0 => explain(&error, file),
            _ => {
                OpenError::Upgrade { file: file.to_owned(), from, to: migration.to, what: error.to_string() }
            }
        })?;
        from = migration.to;
    }
    Ok(())
}

fn step(conn: &mut Connection, migration: Migration) -> rusqlite::Result<()> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(migration.sql)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", migration.to)?;
    tx.commit()
}

/// An error of SQLite at opening, told by what it means for the file.
pub(super) fn explain(error: &rusqlite::Error, file: &Path) -> OpenError {
    let file = file.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotSqlite { file },
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Damaged { file, what: error.to_string() },
        _ => OpenError::Failed { file, what: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{FILE, Loaded, Soft, Write, sqlite::Sqlite, worker::Engine};

    const GOOD: Migration = Migration {
        to: 2,
        sql: "ALTER TABLE gateway ADD COLUMN note TEXT NOT NULL DEFAULT 'none'; CREATE TABLE more (x INTEGER) STRICT;",
    };
    const BAD: Migration = Migration { to: 2, sql: "CREATE TABLE more (x INTEGER) STRICT; SELECT nonsense;" };

    /// A directory with a version 1 store that holds one gateway and a revision.
    fn version_1() -> (tempfile::TempDir, Loaded) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(dir.path(), MIGRATIONS).unwrap();
        let gateway = crate::store::SavedGateway {
            namespace: crate::core::name::Namespace::default(),
            gateway_id: "g".to_owned(),
            snapshot_json: "{}".to_owned(),
        };
        let writes = [Write::Soft(vec![Soft::Gateway(gateway)]), Write::Reserve(7)];
        store.write(&writes.iter().collect::<Vec<_>>()).unwrap();
        let loaded = store.load().unwrap();
        assert_eq!((loaded.gateways.len(), loaded.revision), (1, 7));
        (dir, loaded)
    }

    fn version(dir: &Path) -> (i32, i64) {
        let conn = Connection::open(dir.join(FILE)).unwrap();
        let more = "SELECT count(*) FROM sqlite_schema WHERE name = 'more'";
        (
            conn.query_row("PRAGMA user_version", [], |r| r.get(0)).unwrap(),
            conn.query_row(more, [], |r| r.get(0)).unwrap(),
        )
    }

    #[test]
    fn migrations_count_up_from_one() {
        let versions: Vec<u32> = MIGRATIONS.iter().map(|m| m.to).collect();
        assert_eq!(versions, (1..=u32::try_from(MIGRATIONS.len()).unwrap()).collect::<Vec<_>>());
    }

    #[test]
    fn an_older_file_is_upgraded_with_all_it_holds() {
        let (dir, before) = version_1();
        let newer = [MIGRATIONS, &[GOOD]].concat();
        for start in ["upgrade", "already upgraded"] {
            let store = Sqlite::open(dir.path(), &newer).unwrap();
            assert_eq!(store.load().unwrap(), before, "{start}");
            drop(store);
            assert_eq!(version(dir.path()), (2, 1), "{start}");
        }
        let error = Sqlite::open(dir.path(), MIGRATIONS).unwrap_err();
        assert!(matches!(error, OpenError::Newer { found: 2, known: 1, .. }), "{error}");
    }

    #[test]
    fn a_fresh_file_takes_all_steps() {
        let dir = tempfile::tempdir().unwrap();
        let newer = [MIGRATIONS, &[GOOD]].concat();
        assert_eq!(Sqlite::open(dir.path(), &newer).unwrap().load().unwrap(), Loaded::default());
        assert_eq!(version(dir.path()), (2, 1));
    }

    #[test]
    fn a_failed_upgrade_leaves_the_file_as_it_was() {
        let (dir, before) = version_1();
        let error = Sqlite::open(dir.path(), &[MIGRATIONS, &[BAD]].concat()).unwrap_err();
        assert!(matches!(error, OpenError::Upgrade { from: 1, to: 2, .. }), "{error}");
        assert_eq!(version(dir.path()), (1, 0));
        assert_eq!(Sqlite::open(dir.path(), MIGRATIONS).unwrap().load().unwrap(), before);
    }
}
