//! ExplainTool, SetToolEnabled and ApproveToolLabels: why an agent sees a tool or not, and what operators do about it.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use super::{ToolService, check, key};
use crate::{
    catalog::{Judged, Since},
    core::{
        refusal::{Fault, Refusal},
        registry::not_found,
    },
    proto::v1,
    service::convert::{self, selection},
};

impl ToolService {
    pub(super) fn explain(
        &self,
        request: &v1::ExplainToolRequest,
    ) -> Result<v1::ExplainToolResponse, Refusal> {
        let mut faults: Vec<Fault> = Vec::new();
        let name = convert::tool_name("name", &request.name).map_err(|f| faults.push(f)).ok();
        let asked = selection::Asked {
            namespace: &request.namespace,
            agent_id: &request.agent_id,
            allowed_tools: request.allowed_tools.as_ref(),
            label_selector: &request.label_selector,
            format: request.format,
            max_tools: request.max_tools,
            max_tokens: request.max_tokens,
            ..selection::Asked::default()
        };
        let selection = asked.parse(&mut faults);
        check(faults)?;
        let Some(name) = name else { return Err(Refusal::invalid("name", "must be given")) };
        let catalog = self.reader.load();
        let explained = catalog.explain(&name, selection, self.reader.allowlist());
        Ok(v1::ExplainToolResponse {
            visible: explained.visible,
            stages: explained.stages.into_iter().map(|stage| self.stage(stage)).collect(),
            epoch: catalog.epoch.to_string(),
            revision: catalog.revision,
        })
    }

    pub(super) async fn set_enabled(
        &self,
        request: v1::SetToolEnabledRequest,
    ) -> Result<v1::SetToolEnabledResponse, Refusal> {
        let v1::SetToolEnabledRequest { namespace, name, enabled, message } = request;
        let message = selection::switch_message(enabled, &message);
        let (key, message) = match (key(&namespace, &name), message) {
            (Ok(key), Ok(message)) => (key, message),
            (Err(Refusal::Invalid(mut faults)), message) => {
                faults.extend(message.err());
                return Err(Refusal::Invalid(faults));
            }
            (Err(other), _) => return Err(other),
            (_, Err(fault)) => return Err(Refusal::Invalid(vec![fault])),
        };
        let off: Option<Arc<str>> = (!enabled).then(|| message.into());
        let revision = self.handle.switch(key.clone(), off).await?;
        let catalog = self.reader.load();
        let tool = catalog.find(&key.namespace, key.name.as_str()).ok_or_else(|| not_found(&key))?;
        Ok(v1::SetToolEnabledResponse {
            status: Some(convert::status::status(tool, &self.clock)),
            epoch: catalog.epoch.to_string(),
            revision: revision.max(catalog.revision),
        })
    }

    pub(super) async fn approve_labels(
        &self,
        request: &v1::ApproveToolLabelsRequest,
    ) -> Result<v1::ApproveToolLabelsResponse, Refusal> {
        let key = key(&request.namespace, &request.name)?;
        let revision = self.handle.approve_labels(key.clone()).await?;
        let catalog = self.reader.load();
        let tool = catalog.get(&key).ok_or_else(|| not_found(&key))?;
        Ok(v1::ApproveToolLabelsResponse {
            tool: Some(convert::status::tool(tool, &self.clock)),
            epoch: catalog.epoch.to_string(),
            revision: revision.max(catalog.revision),
        })
    }

    fn stage(&self, judged: Judged) -> v1::ExplainedStage {
        let Judged { stage, passed, reason, message, since } = judged;
        let since = since.map(|since| match since {
            Since::Moment(at) => self.clock.wall(at),
            Since::WallMs(ms) => UNIX_EPOCH + Duration::from_millis(ms.unsigned_abs()),
        });
        v1::ExplainedStage {
            stage: stage.to_owned(),
            passed,
            reason,
            message,
            since: since.map(convert::timestamp),
        }
    }
}
