//! Readers of watches: what they know by the messages alone, and what holds for each message.

use std::{collections::BTreeMap, time::Duration};

use prost::Message;
use tokio::time::timeout;
use tonic::{Status, Streaming, transport::Channel};
use toolpulse::proto::v1::{
    AvailableTool, Goodbye, ListAvailableToolsRequest, ListToolsRequest, Position, SchemaFormat, Tool,
    WatchAvailableToolsRequest, WatchAvailableToolsResponse, WatchToolsRequest, WatchToolsResponse,
    tool_registry_service_client::ToolRegistryServiceClient,
};

use crate::support::inproc::InProc;

/// Most bytes of one message.
const MAX_PART: usize = 256 * 1024;

/// One watch of an agent's tools.
#[derive(Debug)]
pub(crate) struct Agent {
    stream: Streaming<WatchAvailableToolsResponse>,
    asked: WatchAvailableToolsRequest,
    /// By exposed name.
    pub(crate) known: BTreeMap<String, AvailableTool>,
    pub(crate) position: Position,
    etag: String,
    allowed: String,
    /// It comes back and has not caught up yet.
    resuming: bool,
}

impl Agent {
    pub(crate) async fn open(server: &InProc, asked: WatchAvailableToolsRequest) -> Self {
        Self::try_open(server, asked).await.unwrap()
    }

    pub(crate) async fn try_open(server: &InProc, asked: WatchAvailableToolsRequest) -> Result<Self, Status> {
        Self::on(server.tools(), asked).await
    }

    pub(crate) async fn on(
        mut client: ToolRegistryServiceClient<Channel>,
        asked: WatchAvailableToolsRequest,
    ) -> Result<Self, Status> {
        let stream = client.watch_available_tools(asked.clone()).await?.into_inner();
        let position = asked.resume.clone().unwrap_or_default();
        Ok(Self {
            stream,
            resuming: asked.resume.is_some(),
            asked,
            known: BTreeMap::new(),
            position,
            etag: String::new(),
            allowed: String::new(),
        })
    }

    /// Comes back on a new stream with what it knows.
    pub(crate) async fn resume(self, server: &InProc) -> Self {
        let asked = WatchAvailableToolsRequest { resume: Some(self.position), ..self.asked };
        let new = Self::open(server, asked).await;
        Self { known: self.known, etag: self.etag, allowed: self.allowed, ..new }
    }

    /// The next message, applied, after what holds for each. None: the stream ended well.
    pub(crate) async fn next(&mut self) -> Result<Option<WatchAvailableToolsResponse>, Status> {
        let Some(message) = self.stream.message().await? else { return Ok(None) };
        assert!(
            message.encoded_len() <= MAX_PART || message.upserts.len() == 1,
            "{} bytes",
            message.encoded_len()
        );
        let heartbeat = message.synced && message.etag.is_empty();
        assert_eq!(message.synced, message.revision > 0, "a revision belongs to synced alone: {message:?}");
        assert!(!heartbeat || message.upserts.is_empty() && message.removed.is_empty(), "{message:?}");
        if message.reset {
            self.known.clear();
        }
        for name in &message.removed {
            self.known.remove(name);
        }
        for tool in &message.upserts {
            let same = self.known.insert(tool.exposed_name.clone(), tool.clone()).as_ref() == Some(tool);
            assert!(!same || self.resuming, "an unchanged state is sent again: {tool:?}");
        }
        if message.synced {
            self.resuming = false;
            let back = message.epoch == self.position.epoch && message.revision < self.position.revision;
            assert!(!back, "revisions never go back: {} after {:?}", message.revision, self.position);
            self.position = Position { epoch: message.epoch.clone(), revision: message.revision };
            if !heartbeat {
                self.etag.clone_from(&message.etag);
                self.allowed.clone_from(&message.allowed_json);
            }
        }
        Ok(Some(message))
    }

    /// The messages up to the next state that is whole.
    pub(crate) async fn batch(&mut self) -> Vec<WatchAvailableToolsResponse> {
        let mut batch = Vec::new();
        loop {
            let message = self.next().await.unwrap().expect("a stream that goes on");
            let whole = message.synced && !message.etag.is_empty();
            if !(message.synced && message.etag.is_empty()) {
                batch.push(message);
            }
            if whole {
                return batch;
            }
        }
    }

    /// The messages that come within a time, heartbeats left out.
    pub(crate) async fn within(&mut self, time: Duration) -> Vec<WatchAvailableToolsResponse> {
        let mut all = Vec::new();
        let read = async {
            loop {
                let message = self.next().await.unwrap().expect("a stream that goes on");
                if !(message.synced && message.etag.is_empty()) {
                    all.push(message);
                }
            }
        };
        assert!(timeout(time, read).await.is_err());
        all
    }

    pub(crate) async fn goodbye(&mut self) -> Goodbye {
        loop {
            if let Some(goodbye) = self.next().await.unwrap().expect("a goodbye").goodbye {
                return goodbye;
            }
        }
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.known.values().map(|tool| tool.name.as_str()).collect()
    }

    /// Compares what it knows to what a list says now, byte for byte.
    pub(crate) async fn check(&self, server: &InProc) {
        let WatchAvailableToolsRequest { namespace, agent_id, allowed_tools, label_selector, .. } =
            self.asked.clone();
        let list = ListAvailableToolsRequest {
            namespace,
            agent_id,
            allowed_tools,
            label_selector,
            format: self.asked.format,
            visibility: self.asked.visibility,
            max_tools: self.asked.max_tools,
            max_tokens: self.asked.max_tokens,
            max_reply_bytes: 64 << 20,
            ..Default::default()
        };
        let list = server.available(list).await;
        let mut known: Vec<AvailableTool> = self.known.values().cloned().collect();
        let (open, close) = match self.asked.format() {
            SchemaFormat::Gemini | SchemaFormat::GeminiOpenapi if !known.is_empty() => {
                ("[{\"functionDeclarations\":[", "]}]")
            }
            _ => ("[", "]"),
        };
        let definitions: Vec<&str> = known.iter().map(|tool| tool.definition_json.as_str()).collect();
        assert_eq!(format!("{open}{}{close}", definitions.join(",")), list.tools_json);
        known.iter_mut().for_each(|tool| tool.definition_json.clear());
        assert_eq!(known, list.tools);
        assert_eq!((&self.etag, &self.allowed), (&list.etag, &list.allowed_json));
        assert_eq!(self.position.epoch, list.epoch);
        assert!(self.position.revision <= list.revision);
    }
}

/// One watch of all tools.
#[derive(Debug)]
pub(crate) struct Operator {
    stream: Streaming<WatchToolsResponse>,
    asked: WatchToolsRequest,
    /// By name.
    pub(crate) known: BTreeMap<String, Tool>,
    pub(crate) position: Position,
    /// It comes back and has not caught up yet.
    resuming: bool,
}

impl Operator {
    pub(crate) async fn open(server: &InProc, asked: WatchToolsRequest) -> Self {
        let stream = server.tools().watch_tools(asked.clone()).await.unwrap().into_inner();
        let position = asked.resume.clone().unwrap_or_default();
        let resuming = asked.resume.is_some();
        Self { stream, asked, known: BTreeMap::new(), position, resuming }
    }

    pub(crate) async fn resume(self, server: &InProc) -> Self {
        let asked = WatchToolsRequest { resume: Some(self.position), ..self.asked };
        Self { known: self.known, ..Self::open(server, asked).await }
    }

    /// The next message, applied; none: a heartbeat.
    pub(crate) async fn next(&mut self) -> Option<WatchToolsResponse> {
        let message = self.stream.message().await.unwrap().expect("a stream that goes on");
        assert!(
            message.encoded_len() <= MAX_PART || message.upserts.len() == 1,
            "{} bytes",
            message.encoded_len()
        );
        assert_eq!(message.synced, message.revision > 0, "a revision belongs to synced alone: {message:?}");
        if message.reset {
            self.known.clear();
        }
        for name in &message.removed {
            self.known.remove(name);
        }
        for tool in &message.upserts {
            let before = self.known.insert(tool.spec.as_ref().unwrap().name.clone(), tool.clone());
            let same = before.is_some_and(|before| shown(&before) == shown(tool));
            assert!(!same || self.resuming, "an unchanged state is sent again: {tool:?}");
        }
        if message.synced {
            self.resuming = false;
            let back = message.epoch == self.position.epoch && message.revision < self.position.revision;
            assert!(!back, "revisions never go back: {} after {:?}", message.revision, self.position);
            self.position = Position { epoch: message.epoch.clone(), revision: message.revision };
        }
        let first = self.position.revision == 0 || message.reset;
        let says = first || !message.upserts.is_empty() || !message.removed.is_empty();
        says.then_some(message)
    }

    /// The messages that come within a time, heartbeats and what says that nothing changed left out.
    pub(crate) async fn within(&mut self, time: Duration) -> Vec<WatchToolsResponse> {
        let mut all = Vec::new();
        let read = async {
            loop {
                all.extend(self.next().await);
            }
        };
        assert!(timeout(time, read).await.is_err());
        all
    }

    /// Compares what it knows to what a list says now.
    pub(crate) async fn check(&self, server: &InProc) {
        let WatchToolsRequest { namespace, label_selector, owner, .. } = self.asked.clone();
        let mut request =
            ListToolsRequest { namespace, label_selector, owner, page_size: 1_000, ..Default::default() };
        let mut all = Vec::new();
        loop {
            let page = server.tools().list_tools(request.clone()).await.unwrap().into_inner();
            all.extend(page.tools.iter().map(shown));
            if page.next_page_token.is_empty() {
                break;
            }
            request.page_token = page.next_page_token;
        }
        assert_eq!(self.known.values().map(shown).collect::<Vec<_>>(), all);
    }
}

/// What of a tool is a change when it changes.
pub(crate) fn shown(tool: &Tool) -> Tool {
    let mut tool = tool.clone();
    if let Some(status) = &mut tool.status {
        (status.last_success_time, status.last_probe_time, status.next_probe_time) = (None, None, None);
        status.last_probe_duration = None;
        status.consecutive_errors = 0;
        for probe in &mut status.probes {
            (probe.last_success_time, probe.last_probe_time, probe.next_probe_time) = (None, None, None);
            probe.last_probe_duration = None;
            (probe.consecutive_errors, probe.consecutive_passes, probe.noes) = (0, 0, 0);
        }
    }
    tool
}
