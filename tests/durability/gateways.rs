//! What is known of gateways after a restart: their last snapshot, as one that nobody has confirmed since.

use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags};
use tokio_stream::StreamExt;
use toolpulse::{
    proto::v1::{
        GatewaySnapshot, GatewayStatus, GetGatewayStatusRequest, ListGatewayStatusesRequest,
        PublishGatewayStatusRequest, ReportGatewayStatusRequest, publish_gateway_status_request,
        report_gateway_status_request::Report,
    },
    store::FILE,
};

use crate::{
    seconds,
    support::{SOON, Server, eventually},
};

const INSTANCE: &str = "run-1";

fn status(queued: i64) -> GatewayStatus {
    GatewayStatus { run: "busy".into(), queued, detail: "serving".into(), ..GatewayStatus::default() }
}

/// Whether it was accepted.
async fn report(server: &Server, id: &str, sequence: u64, ttl: f64) -> bool {
    let request = ReportGatewayStatusRequest {
        gateway_id: id.into(),
        report: Some(Report::Status(status(sequence.cast_signed()))),
        instance: INSTANCE.into(),
        sequence,
        ttl: Some(seconds(ttl)),
        ..ReportGatewayStatusRequest::default()
    };
    server.gateways().report_gateway_status(request).await.unwrap().into_inner().accepted
}

async fn get(server: &Server, id: &str) -> GatewaySnapshot {
    let request = GetGatewayStatusRequest { gateway_id: id.into(), ..GetGatewayStatusRequest::default() };
    server.gateways().get_gateway_status(request).await.unwrap().into_inner().snapshot.unwrap()
}

/// Ids of the gateways, and whether they are stale.
async fn listed(server: &Server) -> Vec<(String, bool)> {
    let request = ListGatewayStatusesRequest::default();
    let reply = server.gateways().list_gateway_statuses(request).await.unwrap().into_inner();
    reply.snapshots.into_iter().map(|s| (s.gateway_id, s.stale)).collect()
}

/// Waits until the store's file holds these gateways: what a crash right now would leave.
async fn until_saved(server: &Server, want: &[&str]) {
    eventually("the snapshots are checkpointed", SOON, || async {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(server.data_dir().join(FILE), flags).unwrap();
        conn.busy_timeout(SOON).unwrap();
        let mut query = conn.prepare("SELECT gateway_id FROM gateway ORDER BY gateway_id").unwrap();
        let ids: Result<Vec<String>, _> = query.query_map([], |row| row.get(0)).unwrap().collect();
        (ids.unwrap() == want).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_served_stale_after_a_crash() {
    let mut server = Server::start(|_| {}).await;
    assert!(report(&server, "brief", 7, 2.0).await);
    assert!(report(&server, "long", 7, 600.0).await);
    until_saved(&server, &["brief", "long"]).await;
    let before = get(&server, "long").await;
    assert!(!before.stale);

    server.crash_and_restart().await;
    assert_eq!(listed(&server).await, [("brief".into(), true), ("long".into(), true)]);
    let after = get(&server, "long").await;
    assert!(after.stale && after.status.is_none(), "{after:?}");
    assert_eq!((after.sequence, after.ttl), (7, before.ttl));
    assert!(after.text.starts_with("Error reading gateway status: no report since 20"), "{}", after.text);
    let time = |s: &GatewaySnapshot| SystemTime::try_from(s.received_at.unwrap()).unwrap();
    let moved = time(&after).duration_since(time(&before)).unwrap_or_else(|e| e.duration());
    assert!(moved < Duration::from_millis(500), "received {moved:?} apart");

    // A report of before the crash that comes late is old; the next one counts.
    assert!(!report(&server, "long", 7, 600.0).await);
    assert!(get(&server, "long").await.stale);
    assert!(report(&server, "long", 8, 600.0).await);
    let live = get(&server, "long").await;
    assert!(!live.stale && live.status.unwrap().queued == 8);

    // Three of its ttl after its last report it is gone, and stays so.
    eventually("the silent one is gone", SOON, || async {
        (listed(&server).await == [("long".into(), false)]).then_some(())
    })
    .await;
    let age = time(&before).elapsed().unwrap();
    assert!(age > Duration::from_millis(5900), "gone {age:?} after its report");
    until_saved(&server, &["long"]).await;
    server.crash_and_restart().await;
    assert_eq!(listed(&server).await, [("long".into(), true)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_leaves_streams_stale_and_a_clean_end_leaves_nothing() {
    let mut server = Server::start(|_| {}).await;
    let message = |id: &str| PublishGatewayStatusRequest {
        gateway_id: id.into(),
        report: Some(publish_gateway_status_request::Report::Status(status(1))),
        ..PublishGatewayStatusRequest::default()
    };
    let open = tokio_stream::once(message("open")).chain(tokio_stream::pending());
    let mut gateways = server.gateways();
    let publishing = tokio::spawn(async move { gateways.publish_gateway_status(open).await });
    eventually("the stream is heard", SOON, || async {
        (listed(&server).await == [("open".into(), false)]).then_some(())
    })
    .await;
    // Saved while it was live: its end must reach the store as well.
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let mut gateways = server.gateways();
    let ending = tokio::spawn(async move {
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        gateways.publish_gateway_status(stream).await
    });
    sender.send(message("ended")).await.unwrap();
    until_saved(&server, &["ended", "open"]).await;
    drop(sender);
    ending.await.unwrap().unwrap();
    assert_eq!(listed(&server).await, [("open".into(), false)]);

    server.restart().await;
    assert!(publishing.await.unwrap().is_err());
    assert_eq!(listed(&server).await, [("open".into(), true)]);
}
