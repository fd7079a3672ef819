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

/// Tools of one server, each with a target and windows as short as they may be.
const CROWD: usize = 30;

#[tokio::test]
async fn a_crowd_is_not_turned_by_a_stop_however_short_or_long_and_what_died_is_not_shown() {
    let server = Server::start(|config| {
        config.store("memory");
    })
    .await;
    let mut targets = Vec::new();
    for i in 0..CROWD {
        let target = HttpTarget::start(Answer::Status(200)).await;
        let window = Some(prost_types::Duration { seconds: 1, nanos: 600_000_000 });
        let spec = ToolSpec {
            interval: Some(seconds(1)),
            ttl: window,
            grace: window,
            ..probed(&format!("t{i:02}"), [http(target.url("/"))])
        };
        let wait_for_probe = Some(seconds(20));
        let request = RegisterToolRequest { tool: Some(spec), wait_for_probe, ..Default::default() };
        server.tools().register_tool(request).await.unwrap();
        targets.push(target);
    }
    let hits = |targets: &[HttpTarget]| targets.iter().map(HttpTarget::hits).sum::<usize>();
    // Too short to ask everything anew, and as much longer than the windows as a minute is than 30 s.
    for stop in [700, 1_300, 1_900, 3_200] {
        sleep(Duration::from_millis(2_300)).await;
        server.signal(Signal::STOP);
        sleep(Duration::from_millis(stop)).await;
        let before = hits(&targets);
        server.signal(Signal::CONT);
        sleep(Duration::from_millis(500)).await;
        let burst = hits(&targets) - before;
        assert!(burst <= 2 * CROWD, "{burst} runs within half a second after {stop} ms");
        let list = server.tools().list_available_tools(ListAvailableToolsRequest::default()).await;
        assert_eq!(list.unwrap().into_inner().tools.len(), CROWD, "after {stop} ms: {}", server.log());
    }
    for i in 0..CROWD {
        let request = GetToolRequest { name: format!("t{i:02}"), ..Default::default() };
        let tool = server.tools().get_tool(request).await.unwrap().into_inner().tool.unwrap();
        assert_eq!(tool.transitions.len(), 1, "{tool:#?}");
    }

    server.signal(Signal::STOP);
    targets[0].stop().await;
    sleep(Duration::from_millis(3_200)).await;
    server.signal(Signal::CONT);
    let list = server.tools().list_available_tools(ListAvailableToolsRequest::default()).await;
    let names: Vec<_> = list.unwrap().into_inner().tools.into_iter().map(|tool| tool.name).collect();
    assert!(names.len() == CROWD - 1 && !names.contains(&"t00".to_owned()), "{names:?}");
}
