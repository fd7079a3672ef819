//! ProbeTool and ReportProbeResult.

use super::{ToolService, check, key};
use crate::{
    core::{
        probe::{ErrorClass, Outcome},
        refusal::{Fault, Refusal},
        registry::{Report, not_found},
    },
    proto::v1,
    service::convert,
};

/// Code of a `NO` that the owner reported.
const SAID_NO: &str = "PROBE_SAID_NO";
/// Longest name of a probe in a request.
const MAX_PROBE_NAME: usize = 63;

impl ToolService {
    pub(super) async fn probe(
        &self,
        request: &v1::ProbeToolRequest,
    ) -> Result<v1::ProbeToolResponse, Refusal> {
        let key = key(&request.namespace, &request.name)?;
        self.handle.probe(key.clone()).await?;
        let catalog = self.reader.load();
        let tool = catalog.get(&key).ok_or_else(|| not_found(&key))?;
        let runs = tool.status.probes.iter().zip(&tool.stored.spec.probes);
        Ok(v1::ProbeToolResponse {
            results: runs.map(|(probe, spec)| convert::status::run(probe, spec)).collect(),
            status: Some(convert::status::status(tool, &self.clock)),
        })
    }

    pub(super) async fn report(
        &self,
        request: v1::ReportProbeResultRequest,
    ) -> Result<v1::ReportProbeResultResponse, Refusal> {
        let v1::ReportProbeResultRequest { namespace, name, probe, outcome, message, ttl, generation } =
            request;
        let mut faults = Vec::new();
        let key = match key(&namespace, &name) {
            Ok(key) => Some(key),
            Err(Refusal::Invalid(wrong)) => {
                faults.extend(wrong);
                None
            }
            Err(other) => return Err(other),
        };
        if probe.len() > MAX_PROBE_NAME {
            faults.push(Fault::new("probe", format!("must be at most {MAX_PROBE_NAME} characters")));
        }
        let outcome = convert::outcome(outcome).map_err(|f| faults.push(f)).ok();
        let ttl = ttl
            .map(|ttl| convert::duration("ttl", &ttl, convert::REPORT_TTL))
            .transpose()
            .map_err(|f| faults.push(f))
            .ok()
            .flatten();
        check(faults)?;
        let (Some(key), Some(outcome)) = (key, outcome) else {
            return Err(Refusal::invalid("outcome", "must be given"));
        };
        let outcome = match outcome {
            v1::ProbeOutcome::Pass => Outcome::Pass,
            v1::ProbeOutcome::No => Outcome::no(SAID_NO, &message),
            v1::ProbeOutcome::Error | v1::ProbeOutcome::Unspecified => {
                Outcome::error(ErrorClass::Reported, &message)
            }
        };
        let generation = (generation != 0).then_some(generation);
        self.handle.report(Report { key: key.clone(), probe, outcome, ttl, generation }).await?;
        let catalog = self.reader.load();
        let tool = catalog.get(&key).ok_or_else(|| not_found(&key))?;
        Ok(v1::ReportProbeResultResponse { status: Some(convert::status::status(tool, &self.clock)) })
    }
}
