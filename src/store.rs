//! Durable state behind one handle: tools, policies, counters, and what a restart wants to know of probes and gateways.
//!
//! The owner task is the only caller and never waits here: a call hands its message over at once, in order, and
//! gives back a future of the answer. An answer of OK to a commit means that it is on disk.

mod backup;
mod error;
mod lock;
mod memory;
mod rows;
mod schema;
mod sqlite;
mod stamp;
mod worker;

use std::{
    fmt,
    future::Future,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};

use crate::core::{
    name::{Namespace, ToolKey},
    policy::{AgentId, Disabled, Policy},
    tool::StoredTool,
};

pub use self::{
    backup::{BackupError, backup_file},
    error::{OpenError, StoreError},
    stamp::Stamp,
};

/// The store's file in the data directory.
pub const FILE: &str = "toolpulse.db";
/// The file whose lock says that a process uses the data directory.
pub const LOCK_FILE: &str = "toolpulse.lock";
/// Most messages that wait for the store's thread. Commits are bounded by the calls in flight and soft changes are
/// sent in batches, so more than this means that the disk hangs: better refuse than pile up.
const QUEUE: usize = 4096;

/// Where the state lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In this process alone: gone when it ends.
    Memory,
    /// In an SQLite file in a directory that one process uses at a time.
    Sqlite {
        /// The data directory; created if it is missing.
        dir: PathBuf,
    },
}

/// What the store holds at start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// All tools, by key.
    pub tools: Vec<StoredTool>,
    /// The highest generation ever used.
    pub generation: u64,
    /// The highest revision ever reserved: the next one is above it.
    pub revision: u64,
    /// Last successes, by key and probe.
    pub successes: Vec<SavedSuccess>,
    /// Gateway snapshots, by namespace and id.
    pub gateways: Vec<SavedGateway>,
    /// Policies, by namespace and agent.
    pub policies: Vec<Policy>,
    /// Tools that are switched off, by key.
    pub switches: Vec<(ToolKey, Disabled)>,
}

/// A probe's last success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedSuccess {
    /// The tool.
    pub key: ToolKey,
    /// The generation it belongs to; always the stored tool's.
    pub generation: u64,
    /// The probe.
    pub probe: Arc<str>,
    /// How long ago it was; none if the clocks can't tell.
    pub age: Option<Duration>,
    /// The TTL that the result carried, if any.
    pub ttl: Option<Duration>,
}

/// A gateway's last snapshot; opaque to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedGateway {
    /// The gateway's namespace.
    pub namespace: Namespace,
    /// The gateway.
    pub gateway_id: String,
    /// Its snapshot.
    pub snapshot_json: String,
}

/// Changes that become durable together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// The highest generation ever used; the stored one is never lowered.
    pub generation: u64,
}

/// One change of the tools, or of what operators say about them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Creates or replaces a tool. Successes of another generation go with the tool that had them.
    Put(StoredTool),
    /// Removes a tool and its successes. Its switch stays.
    Delete(ToolKey),
    /// Creates or replaces an agent's policy.
    PutPolicy(Policy),
    /// Removes an agent's policy.
    DeletePolicy(Namespace, AgentId),
    /// Switches a tool off, or changes why. The tool need not be there.
    PutSwitch(ToolKey, Disabled),
    /// Switches a tool on again.
    DeleteSwitch(ToolKey),
}

/// A change that may be lost in a power cut, but not by the end of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Soft {
    /// A probe passed. Ignored unless `generation` is the stored tool's.
    Success {
        /// The tool.
        key: ToolKey,
        /// The generation that was probed.
        generation: u64,
        /// The probe.
        probe: Arc<str>,
        /// When.
        at: Stamp,
        /// The TTL that the result carried, if any.
        ttl: Option<Duration>,
    },
    /// A probe's success no longer counts.
    ClearSuccess {
        /// The tool.
        key: ToolKey,
        /// The probe.
        probe: Arc<str>,
    },
    /// A gateway's newest snapshot.
    Gateway(SavedGateway),
    /// A gateway is gone.
    DropGateway {
        /// The gateway's namespace.
        namespace: Namespace,
        /// The gateway.
        gateway_id: String,
    },
}

/// One message's worth of writing: done as a whole or not at all.
#[derive(Clone, Debug)]
enum Write {
    Commit(Commit),
    Soft(Vec<Soft>),
    Reserve(u64),
}

/// A cheap handle to the store.
#[derive(Clone)]
pub struct Store(Engine);

#[derive(Clone)]
enum Engine {
    /// Answers on the spot, without a thread: a paused tokio clock would run away while it waits for one.
    Memory(Arc<Mutex<memory::Memory>>),
    Sqlite {
        dir: PathBuf,
        queue: mpsc::Sender<worker::Message>,
    },
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Engine::Memory(_) => f.write_str("Store(memory)"),
            Engine::Sqlite { dir, .. } => write!(f, "Store({})", dir.display()),
        }
    }
}

impl Store {
    /// Opens the store, upgrades its schema if need be, and reads all of it.
    ///
    /// # Errors
    /// Whatever is wrong with the directory or the file; never an empty registry in place of a broken one.
    pub async fn open(location: &Location) -> Result<(Self, Loaded), OpenError> {
        match location {
            Location::Memory => Ok((Self(Engine::Memory(Arc::default())), Loaded::default())),
            Location::Sqlite { dir } => {
                let (queue, messages) = mpsc::channel(QUEUE);
                let loaded = worker::start(dir.clone(), messages).await?;
                Ok((Self(Engine::Sqlite { dir: dir.clone(), queue }), loaded))
            }
        }
    }

    /// Makes changes durable. Sent when called, answered by the future.
    ///
    /// # Errors
    /// The changes are not stored, none of them.
    pub fn commit(&self, commit: Commit) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        self.write(Write::Commit(commit))
    }

    /// Stores changes without waiting for the disk; in order with commits. Sent when called.
    ///
    /// # Errors
    /// The changes are not stored, none of them.
    pub fn soft(&self, changes: Vec<Soft>) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        self.write(Write::Soft(changes))
    }

    /// Makes sure that no later start hands out a revision of `up_to` or below. Sent when called.
    ///
    /// # Errors
    /// The revisions are not reserved.
    pub fn reserve_revisions(
        &self,
        up_to: u64,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        self.write(Write::Reserve(up_to))
    }

    /// What a start would load now, after all writes that were sent before.
    ///
    /// # Errors
    /// The store is closed or unreadable.
    pub async fn load(&self) -> Result<Loaded, StoreError> {
        match &self.0 {
            Engine::Memory(memory) => memory.lock().unwrap_or_else(PoisonError::into_inner).load(),
            Engine::Sqlite { queue, .. } => {
                let (answer, loaded) = oneshot::channel();
                queue.send(worker::Message::Load(answer)).await.map_err(|_| StoreError::Closed)?;
                loaded.await.unwrap_or(Err(StoreError::Closed))
            }
        }
    }

    /// Copies the live store, as of now, to a new file. Writes go on meanwhile.
    ///
    /// # Errors
    /// There is no such file then: it appears only when it is complete.
    pub async fn backup(&self, file: &Path) -> Result<(), BackupError> {
        match &self.0 {
            Engine::Memory(_) => Err(BackupError::InMemory),
            Engine::Sqlite { dir, .. } => {
                let (dir, to) = (dir.clone(), file.to_owned());
                let copied = tokio::task::spawn_blocking(move || backup_file(&dir, &to)).await;
                copied.unwrap_or_else(|panic| {
                    Err(BackupError::Target { file: file.to_owned(), what: panic.to_string() })
                })
            }
        }
    }

    /// Finishes what was sent and lets go of the file. Other handles are refused from then on.
    pub async fn close(self) {
        match self.0 {
            Engine::Memory(memory) => memory.lock().unwrap_or_else(PoisonError::into_inner).close(),
            Engine::Sqlite { queue, .. } => {
                let (answer, closed) = oneshot::channel();
                if queue.send(worker::Message::Close(answer)).await.is_ok() {
                    let _ = closed.await;
                }
            }
        }
    }

    fn write(&self, write: Write) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        match &self.0 {
            Engine::Memory(memory) => {
                let result = memory.lock().unwrap_or_else(PoisonError::into_inner).write(&write);
                let _ = answer.send(result);
            }
            Engine::Sqlite { queue, .. } => {
                use mpsc::error::TrySendError::{Closed, Full};
                match queue.try_send(worker::Message::Write(write, answer)) {
                    Ok(()) => {}
                    Err(Full(worker::Message::Write(_, answer))) => {
                        let _ = answer.send(Err(StoreError::Busy));
                    }
                    // The dropped answer says so.
                    Err(Full(_) | Closed(_)) => {}
                }
            }
        }
        async move { answered.await.unwrap_or(Err(StoreError::Closed)) }
    }
}
