//! GatewayStatusService: reports in, snapshots and watches out.

mod convert;
mod cursor;
mod hidden;
mod publish;

use std::sync::Arc;

use tonic::{Request, Response, Status};

use self::{
    cursor::GatewayCursor,
    hidden::{Hidden, Joined},
};
use super::{
    convert::{field_len, namespace, page_size},
    page::{self, Filter},
    watch::{WatchStream, Watches, peer_of},
};
use crate::{
    catalog::{Catalog, Reader},
    clock::Clock,
    core::{
        gateway::{Choice, GatewayId, NO_GATEWAY, ReportEffect, Source, choose, name_one_of},
        name::Namespace,
        refusal::{Fault, Refusal},
    },
    owner::{GatewayReport, Handle},
    proto::v1::{
        self, GetGatewayStatusRequest, GetGatewayStatusResponse, ListGatewayStatusesRequest,
        ListGatewayStatusesResponse, PublishGatewayStatusRequest, PublishGatewayStatusResponse,
        ReportGatewayStatusRequest, ReportGatewayStatusResponse, WatchGatewayStatusRequest,
        gateway_status_service_server::GatewayStatusService,
    },
};

/// Most bytes of one page: default clients refuse more than 4 MiB.
const MAX_PAGE_BYTES: usize = 3_584 * 1024;

/// Most ids that one watch names.
const MAX_WATCHED_IDS: usize = 1_000;

/// The service.
#[derive(Debug)]
pub struct GatewayService {
    handle: Handle,
    view: Arc<View>,
    watches: Watches,
}

/// How gateways are shown.
#[derive(Debug)]
struct View {
    reader: Reader,
    clock: Clock,
    hidden: Option<Hidden>,
}

impl GatewayService {
    /// A service over the owner and its catalogs. `watches` are those of the whole server. `degraded_capabilities`: a status
    /// names the tools of its namespace that are hidden because they do not work.
    pub fn new(
        handle: Handle,
        reader: Reader,
        clock: Clock,
        watches: Watches,
        degraded_capabilities: bool,
    ) -> Self {
        let hidden = degraded_capabilities.then(Hidden::default);
        Self { handle, view: Arc::new(View { reader, clock, hidden }), watches }
    }
}

#[tonic::async_trait]
impl GatewayStatusService for GatewayService {
    async fn report_gateway_status(
        &self,
        request: Request<ReportGatewayStatusRequest>,
    ) -> Result<Response<ReportGatewayStatusResponse>, Status> {
        let (namespace, id, new) = convert::report(request.into_inner()).map_err(Refusal::Invalid)?;
        let report = GatewayReport { namespace, id, source: Source::Unary, new };
        let (effect, revision) = self.handle.gateway_report(report).await?;
        Ok(Response::new(ReportGatewayStatusResponse {
            accepted: effect != ReportEffect::Dropped,
            epoch: self.view.reader.load().epoch.to_string(),
            revision,
        }))
    }

    async fn publish_gateway_status(
        &self,
        request: Request<tonic::Streaming<PublishGatewayStatusRequest>>,
    ) -> Result<Response<PublishGatewayStatusResponse>, Status> {
        let goodbye = self.watches.signal().goodbye();
        publish::run(self.handle.clone(), goodbye, request.into_inner()).await.map(Response::new)
    }

    async fn get_gateway_status(
        &self,
        request: Request<GetGatewayStatusRequest>,
    ) -> Result<Response<GetGatewayStatusResponse>, Status> {
        let GetGatewayStatusRequest { namespace: ns, gateway_id } = request.into_inner();
        let id = (!gateway_id.is_empty()).then(|| gateway(&gateway_id)).transpose();
        let mut faults = Vec::new();
        let (ns, id) = (keep(&mut faults, namespace(&ns)), keep(&mut faults, id));
        let (Some(namespace), Some(id)) = (ns, id) else { return Err(Refusal::Invalid(faults).into()) };
        let snapshot = self.view.get(&namespace, id.as_ref());
        Ok(Response::new(GetGatewayStatusResponse { snapshot: Some(snapshot) }))
    }

    async fn list_gateway_statuses(
        &self,
        request: Request<ListGatewayStatusesRequest>,
    ) -> Result<Response<ListGatewayStatusesResponse>, Status> {
        let ListGatewayStatusesRequest { namespace: ns, page_size: size, page_token } = request.into_inner();
        let mut faults = Vec::new();
        let ns = keep(&mut faults, namespace(&ns));
        let size = keep(&mut faults, page_size(size));
        // A token belongs to a namespace; where that is wrong, nothing can be said of the token.
        let after = ns.as_ref().and_then(|ns| keep(&mut faults, page_after(&page_token, ns)));
        let (Some(ns), Some(size), Some(after)) = (ns, size, after) else {
            return Err(Refusal::Invalid(faults).into());
        };
        Ok(Response::new(self.view.page(&ns, after.as_ref(), size)))
    }

    type WatchGatewayStatusStream = WatchStream<GatewayCursor>;

    async fn watch_gateway_status(
        &self,
        request: Request<WatchGatewayStatusRequest>,
    ) -> Result<Response<Self::WatchGatewayStatusStream>, Status> {
        let peer = peer_of(&request);
        let WatchGatewayStatusRequest { namespace: ns, gateway_ids, resume } = request.into_inner();
        let mut faults = Vec::new();
        let ns = keep(&mut faults, namespace(&ns));
        let only = watched_ids(&mut faults, &gateway_ids);
        let (Some(namespace), true) = (ns, faults.is_empty()) else {
            return Err(Refusal::Invalid(faults).into());
        };
        let cursor = GatewayCursor::new(Arc::clone(&self.view), namespace, only, resume);
        let watch = self.watches.open(peer, &self.view.reader, cursor)?;
        Ok(Response::new(watch))
    }
}

impl View {
    fn get(&self, namespace: &Namespace, id: Option<&GatewayId>) -> v1::GatewaySnapshot {
        let catalog = self.reader.load();
        let joined = self.joined(&catalog, namespace);
        let none = |text: String| v1::GatewaySnapshot {
            gateway_id: id.map_or_else(String::new, GatewayId::to_string),
            namespace: namespace.to_string(),
            text,
            ..Default::default()
        };
        if let Some(id) = id {
            return match catalog.gateways.get(namespace, id) {
                Some(entry) => convert::snapshot(&entry.snapshot, &joined, &self.clock),
                None => none(NO_GATEWAY.to_owned()),
            };
        }
        match choose(catalog.gateways.list(namespace).map(|entry| &entry.snapshot)) {
            Choice::None => none(NO_GATEWAY.to_owned()),
            Choice::One(snapshot) => convert::snapshot(snapshot, &joined, &self.clock),
            Choice::Several(ids) => none(name_one_of(&ids)),
        }
    }

    fn page(
        &self,
        namespace: &Namespace,
        after: Option<&GatewayId>,
        size: usize,
    ) -> ListGatewayStatusesResponse {
        let catalog = self.reader.load();
        let joined = self.joined(&catalog, namespace);
        let mut page = ListGatewayStatusesResponse::default();
        let mut bytes = 0;
        for entry in catalog.gateways.after(namespace, after) {
            let snapshot = convert::snapshot(&entry.snapshot, &joined, &self.clock);
            bytes += field_len(&snapshot);
            if let Some(last) = page.snapshots.last()
                && (page.snapshots.len() >= size || bytes > MAX_PAGE_BYTES)
            {
                page.next_page_token = page::encode(&page_filter(namespace), &last.gateway_id);
                break;
            }
            page.snapshots.push(snapshot);
        }
        page
    }

    /// What joins the statuses of the namespace.
    fn joined(&self, catalog: &Catalog, namespace: &Namespace) -> Joined {
        match &self.hidden {
            Some(hidden) => hidden.of(catalog, namespace, self.reader.allowlist()),
            None => Joined { suspect: catalog.prober_suspicion.is_some(), ..Joined::default() },
        }
    }
}

fn gateway(text: &str) -> Result<GatewayId, Fault> {
    GatewayId::parse(text).map_err(|message| Fault::new("gateway_id", message))
}

/// The value, or its fault noted.
fn keep<T>(faults: &mut Vec<Fault>, judged: Result<T, Fault>) -> Option<T> {
    judged.map_err(|fault| faults.push(fault)).ok()
}

fn page_filter(namespace: &Namespace) -> Filter<'_> {
    Filter { rpc: "ListGatewayStatuses", namespace: namespace.as_str(), ..Filter::default() }
}

/// The gateway after which a page begins.
fn page_after(token: &str, namespace: &Namespace) -> Result<Option<GatewayId>, Fault> {
    let last = page::decode(token, &page_filter(namespace))?;
    last.map(|last| GatewayId::parse(&last).map_err(|message| Fault::new("page_token", message))).transpose()
}

/// The ids of a watch, sorted; none where it watches all.
fn watched_ids(faults: &mut Vec<Fault>, given: &[String]) -> Option<Arc<[GatewayId]>> {
    if given.is_empty() {
        return None;
    }
    if given.len() > MAX_WATCHED_IDS {
        let message = format!("has {} ids; at most {MAX_WATCHED_IDS} are allowed", given.len());
        faults.push(Fault::new("gateway_ids", message));
        return None;
    }
    let mut ids = Vec::with_capacity(given.len());
    for (i, text) in given.iter().enumerate() {
        let id = GatewayId::parse(text).map_err(|message| Fault::new(format!("gateway_ids[{i}]"), message));
        ids.extend(keep(faults, id));
    }
    ids.sort_unstable();
    ids.dedup();
    Some(ids.into())
}
