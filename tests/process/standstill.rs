//! A process that stood still knows nothing of the present: it asks before it judges.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep};
use toolpulse::proto::v1::{
    GetToolRequest, ListAvailableToolsRequest, RegisterToolRequest, ToolSpec, Verdict,
};

use crate::support::{
    SOON, Server, eventually,
    inproc::{between, http, probed, seconds},
    targets::{Answer, HttpTarget},
};

async fn status(server: &Server) -> toolpulse::proto::v1::ToolStatus {
    let request = GetToolRequest { name: "t".into(), ..Default::default() };
    server.tools().get_tool(request).await.unwrap().into_inner().tool.unwrap().status.unwrap()
}

#[tokio::test]
async fn windows_that_ended_while_it_stood_still_hide_nothing() {
    let server = Server::start(|config| {
        config.store("memory");
    })
    .await;
    let target = HttpTarget::start(Answer::Status(200)).await;
    let spec = ToolSpec {
        interval: Some(seconds(1)),
        ttl: Some(seconds(2)),
        grace: Some(seconds(2)),
        ..probed("t", [http(target.url("/"))])
    };
    let wait_for_probe = Some(seconds(20));
    let request = RegisterToolRequest { tool: Some(spec), wait_for_probe, ..Default::default() };
    server.tools().register_tool(request).await.unwrap();
    let before = status(&server).await;
    assert_eq!(before.verdict(), Verdict::Available);

    server.signal(Signal::STOP);
    let hits = target.hits();
    // Longer than both windows. This is the passing of time itself, not a wait for something.
    sleep(Duration::from_secs(5)).await;
    let resumed = Instant::now();
    server.signal(Signal::CONT);
    let list = server.tools().list_available_tools(ListAvailableToolsRequest::default()).await;
    assert_eq!(list.unwrap().into_inner().tools.len(), 1, "{}", server.log());
    eventually("asked anew", SOON, async || (target.hits() > hits).then_some(())).await;
    assert!(resumed.elapsed() < Duration::from_secs(3), "{:?}", resumed.elapsed());
    let newer = eventually("a new result", SOON, async || {
        let status = status(&server).await;
        (status.last_probe_time != before.last_probe_time).then_some(status)
    });
    let after = newer.await;
    assert_eq!((after.verdict(), &after.since), (Verdict::Available, &before.since), "it never flipped");
    assert!(server.log().contains("stood still"), "{}", server.log());
    assert!(
        between(before.last_probe_time.as_ref(), after.last_probe_time.as_ref()) > Duration::from_secs(3)
    );
    eventually("ready again", SOON, async || {
        (server.admin_get("/readyz").await.unwrap().0 == 200).then_some(())
    })
    .await;
}
