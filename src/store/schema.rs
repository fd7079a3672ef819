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
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { to: 1, sql: include_str!("schema.sql") },
    Migration { to: 2, sql: include_str!("schema2.sql") },
    Migration { to: 3, sql: include_str!("schema3.sql") },
];

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

    const NEWEST: u32 = MIGRATIONS.len() as u32;
    const GOOD: Migration = Migration {
        to: NEWEST + 1,
        sql: "ALTER TABLE gateway ADD COLUMN note TEXT NOT NULL DEFAULT 'none'; CREATE TABLE more (x INTEGER) STRICT;",
    };
    const BAD: Migration =
        Migration { to: NEWEST + 1, sql: "CREATE TABLE more (x INTEGER) STRICT; SELECT nonsense;" };

    /// A directory with a store of the newest version that holds one gateway and a revision.
    fn newest() -> (tempfile::TempDir, Loaded) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(dir.path(), MIGRATIONS).unwrap();
        let writes = [Write::Soft(vec![Soft::Gateway(gateway())]), Write::Reserve(7)];
        store.write(&writes.iter().collect::<Vec<_>>()).unwrap();
        let loaded = store.load().unwrap();
        assert_eq!((loaded.gateways.len(), loaded.revision), (1, 7));
        (dir, loaded)
    }

    fn gateway() -> crate::store::SavedGateway {
        crate::store::SavedGateway {
            namespace: crate::core::name::Namespace::default(),
            gateway_id: "g".to_owned(),
            snapshot_json: "{}".to_owned(),
        }
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
    fn a_file_of_version_1_is_upgraded_with_all_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let conn = Connection::open(dir.path().join(FILE)).unwrap();
        // As its build wrote it.
        conn.execute_batch(MIGRATIONS[0].sql).unwrap();
        conn.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        conn.pragma_update(None, "user_version", 1).unwrap();
        conn.execute_batch(
            "UPDATE counter SET generation = 3, revision = 7;
             INSERT INTO gateway VALUES ('default', 'g', '{}');
             INSERT INTO success VALUES ('default', 'a', 'p', 3, 'b', 1, 1, NULL);",
        )
        .unwrap();
        drop(conn);
        let mut store = Sqlite::open(dir.path(), MIGRATIONS).unwrap();
        let loaded = store.load().unwrap();
        assert_eq!((loaded.generation, loaded.revision, loaded.successes.len()), (3, 7, 1));
        assert_eq!(loaded.gateways, [gateway()]);
        assert_eq!((loaded.policies.len(), loaded.switches.len()), (0, 0));
        let key = crate::core::name::ToolKey {
            namespace: crate::core::name::Namespace::default(),
            name: crate::core::name::ToolName::parse("a").unwrap(),
        };
        let off = crate::core::policy::Disabled { message: "m".into(), since_ms: 1 };
        let changes = vec![crate::store::Change::PutSwitch(key.clone(), off.clone())];
        let commit = crate::store::Commit { changes, generation: 0 };
        store.write(&[&Write::Commit(commit)]).unwrap();
        drop(store);
        assert_eq!(version(dir.path()).0, i32::try_from(NEWEST).unwrap());
        assert_eq!(Sqlite::open(dir.path(), MIGRATIONS).unwrap().load().unwrap().switches, [(key, off)]);
    }

    #[test]
    fn a_file_of_version_2_is_upgraded_and_its_labels_are_approved() {
        let dir = tempfile::tempdir().unwrap();
        let conn = Connection::open(dir.path().join(FILE)).unwrap();
        // As its build wrote it.
        MIGRATIONS[..2].iter().for_each(|step| conn.execute_batch(step.sql).unwrap());
        conn.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        conn.pragma_update(None, "user_version", 2).unwrap();
        let name = crate::core::name::ToolName::parse("a").unwrap();
        let mut spec = crate::core::tool::ToolSpec::new(name);
        spec.labels.insert("team".to_owned(), "x".to_owned());
        let columns = "namespace, name, spec, spec_hash, owner, generation, from_manifest, create_time_ms, update_time_ms";
        conn.execute(
            &format!(
                "INSERT INTO tool ({columns}) VALUES ('default', 'a', ?1, 'sha256:1', 'me', 3, 1, 4, 5)"
            ),
            [serde_json::to_string(&spec).unwrap()],
        )
        .unwrap();
        drop(conn);
        let mut store = Sqlite::open(dir.path(), MIGRATIONS).unwrap();
        let mut tool = store.load().unwrap().tools.remove(0);
        assert_eq!((*tool.spec).clone(), spec);
        assert_eq!((&*tool.owner, tool.generation, tool.from_manifest), ("me", 3, true));
        assert_eq!((tool.create_time_ms, tool.update_time_ms), (4, 5));
        assert_eq!(tool.approved, None, "those that it had are approved");
        for approved in [Some(std::sync::Arc::new(spec.labels.clone())), None] {
            tool.approved = approved;
            let changes = vec![crate::store::Change::Put(tool.clone())];
            store.write(&[&Write::Commit(crate::store::Commit { changes, generation: 3 })]).unwrap();
            drop(store);
            store = Sqlite::open(dir.path(), MIGRATIONS).unwrap();
            assert_eq!(store.load().unwrap().tools, [tool.clone()]);
        }
    }

    #[test]
    fn an_older_file_is_upgraded_with_all_it_holds() {
        let (dir, before) = newest();
        let newer_version = i32::try_from(NEWEST).unwrap() + 1;
        let newer = [MIGRATIONS, &[GOOD]].concat();
        for start in ["upgrade", "already upgraded"] {
            let store = Sqlite::open(dir.path(), &newer).unwrap();
            assert_eq!(store.load().unwrap(), before, "{start}");
            drop(store);
            assert_eq!(version(dir.path()), (newer_version, 1), "{start}");
        }
        let error = Sqlite::open(dir.path(), MIGRATIONS).unwrap_err();
        let OpenError::Newer { found, known, .. } = error else { panic!("{error}") };
        assert_eq!((found, known), (NEWEST + 1, NEWEST));
    }

    #[test]
    fn a_fresh_file_takes_all_steps() {
        let dir = tempfile::tempdir().unwrap();
        let newer = [MIGRATIONS, &[GOOD]].concat();
        assert_eq!(Sqlite::open(dir.path(), &newer).unwrap().load().unwrap(), Loaded::default());
        assert_eq!(version(dir.path()), (i32::try_from(NEWEST).unwrap() + 1, 1));
    }

    #[test]
    fn a_failed_upgrade_leaves_the_file_as_it_was() {
        let (dir, before) = newest();
        let error = Sqlite::open(dir.path(), &[MIGRATIONS, &[BAD]].concat()).unwrap_err();
        let OpenError::Upgrade { from, to, .. } = error else { panic!("{error}") };
        assert_eq!((from, to), (NEWEST, NEWEST + 1));
        assert_eq!(version(dir.path()), (i32::try_from(NEWEST).unwrap(), 0));
        assert_eq!(Sqlite::open(dir.path(), MIGRATIONS).unwrap().load().unwrap(), before);
    }
}
