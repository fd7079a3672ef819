//! WatchAvailableTools and WatchTools: the reads, as streams.

mod agent;
mod operator;

use std::sync::Arc;

use tonic::{Request, Response, Status};

use self::{
    agent::AgentCursor,
    operator::{Asked, OperatorCursor},
};
pub(super) use self::{agent::AgentFeed, operator::OperatorFeed};
use super::{ToolService, check};
use crate::{
    core::refusal::Refusal,
    proto::v1,
    service::{convert, convert::selection, prepared, watch::peer_of},
};

/// The streams that tonic is shown; the true ones are of frames.
pub(super) type Hidden<M> = tokio_stream::Empty<Result<M, Status>>;

/// Room in a part for its fields that are set last.
const LAST_FIELDS: usize = 64;

/// Where a reader stands.
#[derive(Debug)]
enum Standing {
    /// It has nothing.
    Nothing,
    /// It has what an earlier watch gave it.
    Resume(v1::Position),
    /// It has what was looked at.
    Here,
}

impl Standing {
    fn new(resume: Option<v1::Position>) -> Self {
        resume.map_or(Self::Nothing, Self::Resume)
    }
}

impl ToolService {
    pub(super) fn watch_available(
        &self,
        request: Request<v1::WatchAvailableToolsRequest>,
    ) -> Result<Response<Hidden<v1::WatchAvailableToolsResponse>>, Refusal> {
        let peer = peer_of(&request);
        let request = request.into_inner();
        let asked = selection::Asked {
            namespace: &request.namespace,
            agent_id: &request.agent_id,
            allowed_tools: request.allowed_tools.as_ref(),
            label_selector: &request.label_selector,
            format: request.format,
            visibility: request.visibility,
            max_tools: request.max_tools,
            max_tokens: request.max_tokens,
        };
        let cursor = AgentCursor::new(Arc::clone(&self.agents), asked.selection()?, request.resume);
        Ok(prepared::stream(self.watches.open(peer, &self.reader, cursor)?))
    }

    pub(super) fn watch_all(
        &self,
        request: Request<v1::WatchToolsRequest>,
    ) -> Result<Response<Hidden<v1::WatchToolsResponse>>, Refusal> {
        let peer = peer_of(&request);
        let v1::WatchToolsRequest { namespace, label_selector, owner, resume } = request.into_inner();
        let mut faults = Vec::new();
        let namespace = convert::namespace(&namespace).map_err(|f| faults.push(f)).unwrap_or_default();
        let labels = selection::selector("label_selector", &label_selector);
        let labels = labels.map_err(|f| faults.push(f)).unwrap_or_default();
        check(faults)?;
        let cursor =
            OperatorCursor::new(Arc::clone(&self.operators), Asked { namespace, owner, labels }, resume);
        Ok(prepared::stream(self.watches.open(peer, &self.reader, cursor)?))
    }
}
