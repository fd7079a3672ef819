//! Values to rows and back.

use std::{sync::Arc, time::Duration};

use rusqlite::{Connection, Row, Statement, params};

use super::{
    Change, Loaded, SavedGateway, SavedSuccess, Soft, Stamp, Write,
    stamp::{age, boot_id},
};
use crate::core::{
    name::{Namespace, ToolKey, ToolName},
    policy::{AgentId, Disabled, Policy},
    tool::{StoredTool, ToolSpec},
};

/// Why a write can't be done.
#[derive(Debug)]
pub(super) enum WriteError {
    Sql(rusqlite::Error),
    /// A value that the file can't hold.
    Content(String),
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Why the rows can't be read.
#[derive(Debug)]
pub(super) enum LoadError {
    Sql(rusqlite::Error),
    /// A row that no version of this program wrote.
    Content(String),
}

impl From<rusqlite::Error> for LoadError {
    fn from(error: rusqlite::Error) -> Self {
        match error {
            rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..) => Self::Content(error.to_string()),
            rusqlite::Error::QueryReturnedNoRows => Self::Content("no row of counters".to_owned()),
            error => Self::Sql(error),
        }
    }
}

/// The statements of one transaction, each parsed once however many writes share it.
pub(super) struct Statements<'c> {
    count: Statement<'c>,
    reserve: Statement<'c>,
    put: Statement<'c>,
    delete: Statement<'c>,
    evict: Statement<'c>,
    succeed: Statement<'c>,
    clear: Statement<'c>,
    gateway: Statement<'c>,
    drop_gateway: Statement<'c>,
    put_policy: Statement<'c>,
    delete_policy: Statement<'c>,
    put_switch: Statement<'c>,
    delete_switch: Statement<'c>,
}

impl<'c> Statements<'c> {
    pub(super) fn new(conn: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            count: conn.prepare("UPDATE counter SET generation = max(generation, ?1)")?,
            reserve: conn.prepare("UPDATE counter SET revision = max(revision, ?1)")?,
            put: conn.prepare(
                "INSERT INTO tool (namespace, name, spec, spec_hash, owner, generation, from_manifest, \
                 approved_labels, create_time_ms, update_time_ms) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
                 ON CONFLICT DO UPDATE SET spec = excluded.spec, spec_hash = excluded.spec_hash, \
                 owner = excluded.owner, generation = excluded.generation, \
                 from_manifest = excluded.from_manifest, \
                 approved_labels = excluded.approved_labels, create_time_ms = excluded.create_time_ms, \
                 update_time_ms = excluded.update_time_ms",
            )?,
            delete: conn.prepare("DELETE FROM tool WHERE namespace = ?1 AND name = ?2")?,
            evict: conn
                .prepare("DELETE FROM success WHERE namespace = ?1 AND name = ?2 AND generation IS NOT ?3")?,
            // Only for the tool as it is: a late success of a replaced one finds no row to go with.
            succeed: conn.prepare(
                "INSERT INTO success (namespace, name, probe, generation, boot_id, boot_ns, wall_ms, ttl_ns) \
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM tool \
                 WHERE namespace = ?1 AND name = ?2 AND generation = ?4 \
                 ON CONFLICT DO UPDATE SET generation = excluded.generation, boot_id = excluded.boot_id, \
                 boot_ns = excluded.boot_ns, wall_ms = excluded.wall_ms, ttl_ns = excluded.ttl_ns",
            )?,
            clear: conn.prepare("DELETE FROM success WHERE namespace = ?1 AND name = ?2 AND probe = ?3")?,
            gateway: conn.prepare(
                "INSERT INTO gateway (namespace, gateway_id, snapshot) VALUES (?1, ?2, ?3) \
                 ON CONFLICT DO UPDATE SET snapshot = excluded.snapshot",
            )?,
            drop_gateway: conn.prepare("DELETE FROM gateway WHERE namespace = ?1 AND gateway_id = ?2")?,
            put_policy: conn.prepare(
                "INSERT INTO policy (namespace, agent_id, rules) VALUES (?1, ?2, ?3) \
                 ON CONFLICT DO UPDATE SET rules = excluded.rules",
            )?,
            delete_policy: conn.prepare("DELETE FROM policy WHERE namespace = ?1 AND agent_id = ?2")?,
            put_switch: conn.prepare(
                "INSERT INTO switch (namespace, name, message, since_ms) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT DO UPDATE SET message = excluded.message, since_ms = excluded.since_ms",
            )?,
            delete_switch: conn.prepare("DELETE FROM switch WHERE namespace = ?1 AND name = ?2")?,
        })
    }

    /// Does one write.
    pub(super) fn write(&mut self, write: &Write) -> Result<(), WriteError> {
        match write {
            Write::Commit(commit) => {
                self.count.execute([integer(commit.generation)?])?;
                commit.changes.iter().try_for_each(|change| self.change(change))
            }
            Write::Soft(changes) => changes.iter().try_for_each(|change| self.soft(change)),
            Write::Reserve(up_to) => {
                self.reserve.execute([integer(*up_to)?])?;
                Ok(())
            }
        }
    }

    fn change(&mut self, change: &Change) -> Result<(), WriteError> {
        match change {
            Change::Put(tool) => {
                let (namespace, name) = texts(&tool.key);
                let wrong = |error| WriteError::Content(format!("tool {}: {error}", tool.key));
                let spec = serde_json::to_string(&*tool.spec).map_err(wrong)?;
                let approved = tool.approved.as_deref().map(serde_json::to_string);
                let approved = approved.transpose().map_err(wrong)?;
                let generation = integer(tool.generation)?;
                self.count.execute([generation])?;
                self.put.execute(params![
                    namespace,
                    name,
                    spec,
                    &*tool.spec_hash,
                    &*tool.owner,
                    generation,
                    tool.from_manifest,
                    approved,
                    tool.create_time_ms,
                    tool.update_time_ms
                ])?;
                self.evict.execute(params![namespace, name, generation])?;
            }
            Change::Delete(key) => {
                let (namespace, name) = texts(key);
                self.delete.execute([namespace, name])?;
                self.evict.execute(params![namespace, name, None::<i64>])?;
            }
            Change::PutPolicy(Policy { namespace, agent, rules }) => {
                let rules = serde_json::to_string(&**rules)
                    .map_err(|error| WriteError::Content(format!("policy of agent {agent}: {error}")))?;
                self.put_policy.execute([namespace.as_str(), agent.as_str(), &rules])?;
            }
            Change::DeletePolicy(namespace, agent) => {
                self.delete_policy.execute([namespace.as_str(), agent.as_str()])?;
            }
            Change::PutSwitch(key, Disabled { message, since_ms }) => {
                let (namespace, name) = texts(key);
                self.put_switch.execute(params![namespace, name, &**message, since_ms])?;
            }
            Change::DeleteSwitch(key) => {
                let (namespace, name) = texts(key);
                self.delete_switch.execute([namespace, name])?;
            }
        }
        Ok(())
    }

    fn soft(&mut self, change: &Soft) -> Result<(), WriteError> {
        match change {
            Soft::Success { key, generation, probe, at, ttl } => {
                let (namespace, name) = texts(key);
                let ttl = ttl.map(|ttl| i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX));
                let generation = integer(*generation)?;
                self.succeed.execute(params![
                    namespace,
                    name,
                    &**probe,
                    generation,
                    boot_id(),
                    at.boot,
                    at.wall_ms,
                    ttl
                ])?;
            }
            Soft::ClearSuccess { key, probe } => {
                let (namespace, name) = texts(key);
                self.clear.execute([namespace, name, probe])?;
            }
            Soft::Gateway(SavedGateway { namespace, gateway_id, snapshot_json }) => {
                self.gateway.execute([namespace.as_str(), gateway_id, snapshot_json])?;
            }
            Soft::DropGateway { namespace, gateway_id } => {
                self.drop_gateway.execute([namespace.as_str(), gateway_id])?;
            }
        }
        Ok(())
    }
}

/// Reads everything.
pub(super) fn load(conn: &Connection) -> Result<Loaded, LoadError> {
    let counters = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let (generation, revision) = conn.query_row("SELECT generation, revision FROM counter", [], counters)?;
    Ok(Loaded {
        tools: all(
            conn,
            "SELECT namespace, name, spec, spec_hash, owner, generation, from_manifest, approved_labels, \
             create_time_ms, update_time_ms FROM tool ORDER BY namespace, name",
            tool,
        )?,
        generation: number(generation)?,
        revision: number(revision)?,
        successes: {
            let now = Stamp::now();
            all(
                conn,
                "SELECT namespace, name, generation, probe, boot_id, boot_ns, wall_ms, ttl_ns FROM success \
                 ORDER BY namespace, name, probe",
                |row| success(row, now),
            )?
        },
        gateways: all(
            conn,
            "SELECT namespace, gateway_id, snapshot FROM gateway ORDER BY namespace, gateway_id",
            gateway,
        )?,
        policies: all(
            conn,
            "SELECT namespace, agent_id, rules FROM policy ORDER BY namespace, agent_id",
            policy,
        )?,
        switches: all(
            conn,
            "SELECT namespace, name, message, since_ms FROM switch ORDER BY namespace, name",
            |row| Ok((key(row)?, Disabled { message: text(row, 2)?.into(), since_ms: row.get(3)? })),
        )?,
    })
}

fn all<T>(
    conn: &Connection,
    sql: &str,
    read: impl Fn(&Row<'_>) -> Result<T, LoadError>,
) -> Result<Vec<T>, LoadError> {
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        out.push(read(row)?);
    }
    Ok(out)
}

fn tool(row: &Row<'_>) -> Result<StoredTool, LoadError> {
    let key = key(row)?;
    let spec: ToolSpec = serde_json::from_str(text(row, 2)?)
        .map_err(|error| LoadError::Content(format!("the spec of tool {key}: {error}")))?;
    let approved: Option<String> = row.get(7)?;
    let approved = approved.map(|json| serde_json::from_str(&json).map(Arc::new)).transpose();
    let approved = approved
        .map_err(|error| LoadError::Content(format!("the approved labels of tool {key}: {error}")))?;
    Ok(StoredTool {
        key,
        spec: Arc::new(spec),
        spec_hash: text(row, 3)?.into(),
        owner: text(row, 4)?.into(),
        generation: number(row.get(5)?)?,
        from_manifest: row.get(6)?,
        approved,
        create_time_ms: row.get(8)?,
        update_time_ms: row.get(9)?,
    })
}

fn success(row: &Row<'_>, now: Stamp) -> Result<SavedSuccess, LoadError> {
    let at = Stamp { boot: row.get(5)?, wall_ms: row.get(6)? };
    let ttl: Option<i64> = row.get(7)?;
    Ok(SavedSuccess {
        key: key(row)?,
        generation: number(row.get(2)?)?,
        probe: text(row, 3)?.into(),
        age: age(at, text(row, 4)?, now, boot_id()),
        ttl: ttl.map(number).transpose()?.map(Duration::from_nanos),
    })
}

fn gateway(row: &Row<'_>) -> Result<SavedGateway, LoadError> {
    Ok(SavedGateway {
        namespace: Namespace::parse(text(row, 0)?).map_err(LoadError::Content)?,
        gateway_id: row.get(1)?,
        snapshot_json: row.get(2)?,
    })
}

fn policy(row: &Row<'_>) -> Result<Policy, LoadError> {
    let agent = AgentId::parse(text(row, 1)?).map_err(LoadError::Content)?;
    let rules = serde_json::from_str(text(row, 2)?)
        .map_err(|error| LoadError::Content(format!("the policy of agent {agent}: {error}")))?;
    let namespace = Namespace::parse(text(row, 0)?).map_err(LoadError::Content)?;
    Ok(Policy { namespace, agent, rules: Arc::new(rules) })
}

fn key(row: &Row<'_>) -> Result<ToolKey, LoadError> {
    Ok(ToolKey {
        namespace: Namespace::parse(text(row, 0)?).map_err(LoadError::Content)?,
        name: ToolName::parse(text(row, 1)?).map_err(LoadError::Content)?,
    })
}

fn text<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r str, LoadError> {
    let wrong = |error: &dyn std::fmt::Display| LoadError::Content(format!("column {column}: {error}"));
    row.get_ref(column)?.as_str().map_err(|error| wrong(&error))
}

fn texts(key: &ToolKey) -> (&str, &str) {
    (key.namespace.as_str(), key.name.as_str())
}

/// SQLite's integers have a sign.
fn integer(n: u64) -> Result<i64, WriteError> {
    i64::try_from(n).map_err(|_| WriteError::Content(format!("{n} is above {}", i64::MAX)))
}

fn number(n: i64) -> Result<u64, LoadError> {
    u64::try_from(n).map_err(|_| LoadError::Content(format!("the negative number {n}")))
}
