//! What the owner can be asked, and the handle to ask it with.

use std::{collections::BTreeSet, sync::Arc};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::core::{
    gateway::{End, GatewayId, NewReport, ReportEffect, Source, StreamId},
    name::{Namespace, ToolKey},
    policy::Policy,
    refusal::Refusal,
    registry::{
        Expired, Report,
        access::{Over, PolicyKey},
        plan::{Registered, Registration},
    },
    tool::StoredTool,
};

/// A state of the registry that every later read shows.
pub type Position = u64;
/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// Tools to register.
#[derive(Debug)]
pub struct Registering {
    /// The valid ones, and why the others are not.
    pub items: Vec<Result<Registration, Refusal>>,
    /// If one is rejected, none is registered.
    pub all_or_nothing: bool,
    /// Judge only.
    pub validate_only: bool,
}

/// What became of each tool.
#[derive(Debug)]
pub struct RegisterAnswer {
    /// In the request's order; with what is stored now.
    pub results: Vec<Result<(Registered, Arc<StoredTool>), Refusal>>,
    /// The revision that shows it.
    pub revision: Position,
}

/// Tools to unregister.
#[derive(Debug)]
pub struct Unregistering {
    /// Which.
    pub keys: BTreeSet<ToolKey>,
    /// Who asks.
    pub owner: String,
    /// Others' as well.
    pub force: bool,
}

/// What became of each name.
#[derive(Debug, Default)]
pub struct Cleared {
    /// These are gone.
    pub unregistered: Vec<ToolKey>,
    /// These were not there.
    pub not_found: Vec<ToolKey>,
    /// These are somebody else's, or the manifest's.
    pub denied: Vec<ToolKey>,
    /// How many are gone, where they were not named.
    pub count: u32,
    /// The revision that shows it.
    pub revision: Position,
}

/// A probe's runs are over: the catalog shows them.
pub(super) type ProbeAnswer = ();

/// One report of a gateway.
#[derive(Debug)]
pub struct GatewayReport {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its id.
    pub id: GatewayId,
    /// Unary, or which stream.
    pub source: Source,
    /// What it says.
    pub new: NewReport,
}

/// What the owner can be asked.
#[derive(Debug)]
pub enum Command {
    /// Register tools.
    Register(Registering, Reply<RegisterAnswer>),
    /// Unregister named tools.
    Unregister(Unregistering, Reply<Cleared>),
    /// Unregister all tools of a namespace, or one owner's.
    Clear(Namespace, Option<String>, Reply<Cleared>),
    /// Make the manifest's tools exactly these.
    Declare(Vec<Registration>, Reply<RegisterAnswer>),
    /// Put an agent's policy in.
    SetPolicy(Policy, Over, Reply<Position>),
    /// Delete an agent's policy; with an etag, only that one.
    DeletePolicy(PolicyKey, String, Reply<Position>),
    /// Switch a tool off, for a reason, or on again.
    Switch(ToolKey, Option<Arc<str>>, Reply<Position>),
    /// Approve a tool's labels as they are.
    ApproveLabels(ToolKey, Reply<Position>),
    /// Run a tool's probes now.
    Probe {
        /// The tool.
        key: ToolKey,
        /// When all its runs are over.
        reply: Reply<ProbeAnswer>,
    },
    /// Count a pushed result.
    Report {
        /// The result.
        report: Report,
        /// When reads show it.
        reply: Reply<Position>,
    },
    /// Something of a gateway.
    Gateway(GatewayCommand),
    /// Unregister tools that were unavailable for too long. The owner's own.
    Expire(Vec<Expired>),
    /// All tools that the server starts with are there.
    Started,
}

/// Something of a gateway.
#[derive(Debug)]
pub enum GatewayCommand {
    /// A report.
    Report(GatewayReport, Reply<(ReportEffect, Position)>),
    /// A publish stream begins.
    Opened(Namespace, GatewayId, oneshot::Sender<OpenStream>),
    /// A publish stream ended.
    Ended(Namespace, GatewayId, StreamId, End),
}

/// A publish stream that holds its gateway.
#[derive(Debug)]
pub struct OpenStream {
    /// Names it.
    pub id: StreamId,
    /// Fires when a newer stream takes the gateway.
    pub superseded: CancellationToken,
}

/// Asks the owner; cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle(mpsc::Sender<Command>);

impl Handle {
    pub(super) fn new(sender: mpsc::Sender<Command>) -> Self {
        Self(sender)
    }

    /// Registers tools.
    ///
    /// # Errors
    /// The store refuses, or the server is stopping. What is wrong with single tools is in the answer.
    pub async fn register(&self, registering: Registering) -> Result<RegisterAnswer, Refusal> {
        self.ask(|reply| Command::Register(registering, reply)).await
    }

    /// Unregisters named tools.
    ///
    /// # Errors
    /// The store refuses, or the server is stopping.
    pub async fn unregister(&self, unregistering: Unregistering) -> Result<Cleared, Refusal> {
        self.ask(|reply| Command::Unregister(unregistering, reply)).await
    }

    /// Unregisters all tools of a namespace, or one owner's, except the manifest's.
    ///
    /// # Errors
    /// The store refuses, or the server is stopping.
    pub async fn clear(&self, namespace: Namespace, owner: Option<String>) -> Result<Cleared, Refusal> {
        self.ask(|reply| Command::Clear(namespace, owner, reply)).await
    }

    /// Makes the manifest's tools exactly these.
    ///
    /// # Errors
    /// The store refuses, or the server is stopping.
    pub async fn declare(&self, tools: Vec<Registration>) -> Result<RegisterAnswer, Refusal> {
        self.ask(|reply| Command::Declare(tools, reply)).await
    }

    /// Says that all tools that the server starts with are there: settling may end once they had their turn.
    ///
    /// # Errors
    /// The server is stopping.
    pub async fn started(&self) -> Result<(), Refusal> {
        self.0.send(Command::Started).await.map_err(|_| Refusal::Draining)
    }

    /// Puts an agent's policy in.
    ///
    /// # Errors
    /// It may not be put over what is in force, there are too many, the store refuses, or the server is stopping.
    pub async fn set_policy(&self, policy: Policy, over: Over) -> Result<Position, Refusal> {
        self.ask(|reply| Command::SetPolicy(policy, over, reply)).await
    }

    /// Deletes an agent's policy. With an etag: only if that is the etag of the policy in force.
    ///
    /// # Errors
    /// There is none, the policy in force is another one, the store refuses, or the server is stopping.
    pub async fn delete_policy(&self, key: PolicyKey, etag: String) -> Result<Position, Refusal> {
        self.ask(|reply| Command::DeletePolicy(key, etag, reply)).await
    }

    /// Switches a tool off, for a reason, or on again.
    ///
    /// # Errors
    /// No such tool, too many are off, the store refuses, or the server is stopping.
    pub async fn switch(&self, key: ToolKey, off: Option<Arc<str>>) -> Result<Position, Refusal> {
        self.ask(|reply| Command::Switch(key, off, reply)).await
    }

    /// Approves a tool's labels as they are.
    ///
    /// # Errors
    /// No such tool, the store refuses, or the server is stopping.
    pub async fn approve_labels(&self, key: ToolKey) -> Result<Position, Refusal> {
        self.ask(|reply| Command::ApproveLabels(key, reply)).await
    }

    /// Runs a tool's probes now and waits for them; the catalog shows the results.
    ///
    /// # Errors
    /// No such tool, or it has no probes.
    pub async fn probe(&self, key: ToolKey) -> Result<(), Refusal> {
        self.ask(|reply| Command::Probe { key, reply }).await
    }

    /// Counts a pushed result.
    ///
    /// # Errors
    /// No such tool or probe, not a report probe, or another generation.
    pub async fn report(&self, report: Report) -> Result<Position, Refusal> {
        self.ask(|reply| Command::Report { report, reply }).await
    }

    /// Takes a gateway's report.
    ///
    /// # Errors
    /// A newer stream holds the gateway, or there are too many.
    pub async fn gateway_report(&self, report: GatewayReport) -> Result<(ReportEffect, Position), Refusal> {
        self.ask(|reply| Command::Gateway(GatewayCommand::Report(report, reply))).await
    }

    /// Begins a publish stream, which holds the gateway from now on.
    ///
    /// # Errors
    /// The server is stopping.
    pub async fn open_stream(
        &self,
        namespace: Namespace,
        id: GatewayId,
    ) -> Result<(OpenStream, StreamGuard), Refusal> {
        let (sender, opened) = oneshot::channel();
        let command = GatewayCommand::Opened(namespace.clone(), id.clone(), sender);
        self.0.send(Command::Gateway(command)).await.map_err(|_| Refusal::Draining)?;
        let stream = opened.await.map_err(|_| Refusal::Draining)?;
        let guard = StreamGuard { handle: self.clone(), namespace, id, stream: stream.id, end: End::Lost };
        Ok((stream, guard))
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.0.send(command(reply)).await.map_err(|_| Refusal::Draining)?;
        answer.await.unwrap_or(Err(Refusal::Draining))
    }
}

/// Ends a publish stream when it is dropped: as lost, unless it was said to be clean.
#[derive(Debug)]
pub struct StreamGuard {
    handle: Handle,
    namespace: Namespace,
    id: GatewayId,
    stream: StreamId,
    end: End,
}

impl StreamGuard {
    /// The stream ends as its gateway wants it: the gateway is gone.
    pub fn clean(mut self) {
        self.end = End::Clean;
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let command = GatewayCommand::Ended(self.namespace.clone(), self.id.clone(), self.stream, self.end);
        let sender = self.handle.0.clone();
        match sender.try_send(Command::Gateway(command)) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            // The owner is busy; the end must reach it all the same.
            Err(mpsc::error::TrySendError::Full(command)) => {
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { sender.send(command).await });
                }
            }
        }
    }
}
