//! A disk that takes no more: writes are refused with what a client needs to know, everything else goes on, and it heals
//! without a restart.

use std::{fs, io::Write as _, path::Path};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tonic_types::StatusExt;
use toolpulse::proto::{
    health::{HealthCheckRequest, health_check_response::ServingStatus},
    v1::{
        HttpProbe, ProbeSpec, RegisterResult, RegisterToolsRequest, ToolSpec, UnregisterToolsRequest,
        Verdict, probe_spec::Kind,
    },
};

use crate::{
    available, list, named, reason, register,
    restarts::until_saved,
    seconds,
    support::{
        SOON, Server,
        apart::{again, is_child},
        eventually, skip,
        targets::{Answer, HttpTarget},
    },
    verdict,
};

/// A disk that is really full: a small one in memory, in a mount namespace of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_and_heals() {
    let Some(data) = is_child().map(|dir| dir.join("data")) else {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("data")).unwrap();
        let mount =
            "mount -t tmpfs -o size=2m none data || { echo CANNOT MOUNT; exit 0; }; exec \"$0\" \"$@\"";
        let wrap = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount];
        let (success, text) = again("full::a_full_disk_refuses_writes_and_heals", dir.path(), &wrap);
        if !text.contains("HEALED") {
            // Reached the test: then it failed.
            assert!(!text.contains("running 1 test"), "{text}");
            return skip("mount-namespace", "this machine lets nobody mount");
        }
        return assert!(success, "{text}");
    };
    let filler = data.join("filler");
    let fill = || {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&filler).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    };
    refuses_and_heals(&data, |_| fill(), |_| fs::remove_file(&filler).unwrap()).await;
    println!("HEALED");
}

/// The same where writes fail in the middle: the server may not make files any longer.
#[tokio::test(flavor = "multi_thread")]
async fn failing_writes_are_refused_and_heal() {
    let Some(data) = is_child().map(|dir| dir.join("data")) else {
        let dir = tempfile::tempdir().unwrap();
        // The server inherits that the signal of this limit is ignored.
        let wrap = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""];
        let (success, text) = again("full::failing_writes_are_refused_and_heal", dir.path(), &wrap);
        return assert!(success && text.contains("HEALED"), "{text}");
    };
    let limit = |server: &Server, bytes: Option<u64>| {
        let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
        let maximum = rustix::process::getrlimit(Resource::Fsize).maximum;
        prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum }).unwrap();
    };
    let unlimited = rustix::process::getrlimit(Resource::Fsize).current;
    refuses_and_heals(&data, |server| limit(server, Some(0)), |server| limit(server, unlimited)).await;
    println!("HEALED");
}

async fn refuses_and_heals(data: &Path, fill: impl Fn(&Server), free: impl Fn(&Server)) {
    let target = HttpTarget::start(Answer::Status(200)).await;
    let mut server = Server::start(|c| _ = c.data_dir(data)).await;
    let probe = HttpProbe { url: target.url("/"), ..HttpProbe::default() };
    let probed = ToolSpec {
        probes: vec![ProbeSpec { kind: Some(Kind::Http(probe)), ..ProbeSpec::default() }],
        interval: Some(seconds(1.0)),
        ..named("probed")
    };
    register(&server, probed).await.unwrap();
    register(&server, named("kept")).await.unwrap();

    for round in 0..2 {
        fill(&server);
        // What is left of the log's last page may still take a small write or two.
        let mut stored: Vec<String> = list(&server).await.0.into_keys().collect();
        let mut n = 0;
        let refused = loop {
            let spec = ToolSpec { description: "text ".repeat(3000), ..named(&format!("tool-{round}-{n}")) };
            match register(&server, spec).await {
                Ok(tool) => stored.push(tool.spec.unwrap().name),
                Err(status) => break status,
            }
            n += 1;
            assert!(n < 500, "it is never full");
        };
        is_refused(&refused);
        let mut tools = server.tools();
        let names = vec!["kept".to_owned()];
        let request = UnregisterToolsRequest { names, ..UnregisterToolsRequest::default() };
        if let Err(status) = tools.unregister_tools(request).await {
            is_refused(&status);
        } else {
            // The space of a tool that goes is enough for the note that it goes.
            stored.retain(|name| name != "kept");
        }
        let large = |n| ToolSpec { description: "text ".repeat(3000), ..named(&format!("batch-{n}")) };
        let request =
            RegisterToolsRequest { tools: (0..50).map(large).collect(), ..RegisterToolsRequest::default() };
        is_refused(&tools.register_tools(request).await.unwrap_err());

        // Reads and probes go on, and health stays.
        stored.sort();
        assert_eq!(list(&server).await.0.into_keys().collect::<Vec<_>>(), stored);
        assert!(available(&server).await.contains(&"probed".to_owned()));
        target.set(Answer::Status(403));
        eventually("a probe's NO is shown", SOON, || async {
            (verdict(&server, "probed").await == Verdict::Unavailable).then_some(())
        })
        .await;
        let hits = target.hits();
        target.set(Answer::Status(200));
        eventually("the probed tool is back", SOON, || async {
            (verdict(&server, "probed").await == Verdict::Available).then_some(())
        })
        .await;
        assert!(target.hits() > hits);
        let health = server.health().check(HealthCheckRequest::default()).await.unwrap().into_inner();
        assert_eq!(health.status(), ServingStatus::Serving);
        assert_eq!(server.admin_get("/readyz").await.unwrap().0, 200);

        free(&server);
        eventually("it heals", SOON, || async {
            register(&server, named("kept")).await.map_err(|status| is_refused(&status)).ok()
        })
        .await;
        let request =
            RegisterToolsRequest { tools: (0..5).map(large).collect(), ..RegisterToolsRequest::default() };
        let reply = tools.register_tools(request).await.unwrap().into_inner();
        assert!(reply.results.iter().all(|r| r.result() != RegisterResult::Rejected), "{reply:?}");
    }

    // A NO that could not be stored is stored as soon as there is room: a restart must not show the tool again.
    until_saved(&server, 1).await;
    fill(&server);
    target.set(Answer::Status(403));
    eventually("a probe's NO is shown", SOON, || async {
        (verdict(&server, "probed").await == Verdict::Unavailable).then_some(())
    })
    .await;
    target.set(Answer::Status(500));
    free(&server);
    until_saved(&server, 0).await;
    let (before, ..) = list(&server).await;
    server.crash_and_restart().await;
    assert!(!available(&server).await.contains(&"probed".to_owned()));
    let (after, ..) = list(&server).await;
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
}

fn is_refused(status: &tonic::Status) {
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    assert_eq!(reason(status), "STORE_UNAVAILABLE", "{status:?}");
    assert!(status.get_details_retry_info().is_some_and(|r| r.retry_delay.is_some()), "{status:?}");
}
