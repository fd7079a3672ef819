//! The image at work, in a root that holds nothing else.

use std::{collections::BTreeMap, fs, net::Ipv4Addr, time::Duration};

use rustix::process::Signal;
use toolpulse::proto::v1::{
    HttpProbe, ListAvailableToolsRequest, ProbeSpec, RegisterToolRequest, ToolSpec, probe_spec::Kind,
    tool_registry_service_client::ToolRegistryServiceClient,
};

use crate::support::{
    SOON,
    apart::with_own_mounts_and_network,
    container::{Container, Image},
    eventually, http_get,
    names::NameServer,
    targets::{Answer, HttpTarget},
};
const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// No /etc, no /dev, no /proc, no /tmp: an address can be probed all the same.
#[tokio::test(flavor = "multi_thread")]
async fn it_serves_in_an_empty_root() {
    let Some(image) = Image::get() else { return };
    let Some(dir) = with_own_mounts_and_network("running::it_serves_in_an_empty_root") else { return };
    let container = Container::new(&image, &dir.join("container"));
    serves(&image, container, &["127.0.0.1"]).await;
}

/// With the two files that every runtime provides, names of either are resolved without a library.
#[tokio::test(flavor = "multi_thread")]
async fn it_resolves_names_by_the_files_that_a_runtime_provides() {
    let Some(image) = Image::get() else { return };
    let test = "running::it_resolves_names_by_the_files_that_a_runtime_provides";
    let Some(dir) = with_own_mounts_and_network(test) else { return };
    let _server = NameServer::start(LOOPBACK, BTreeMap::from([("target.test".to_owned(), LOOPBACK)])).await;
    let container = Container::new(&image, &dir.join("container"));
    container.write("/etc/hosts", "127.0.0.1 localhost from-hosts\n");
    container.write("/etc/resolv.conf", "nameserver 127.0.0.1\noptions ndots:5\n");
    serves(&image, container, &["127.0.0.1", "localhost", "from-hosts", "target.test"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_tells_its_version() {
    let Some(image) = Image::get() else { return };
    let Some(dir) = with_own_mounts_and_network("running::it_tells_its_version") else { return };
    let container = Container::new(&image, &dir.join("container"));
    let (status, output) = container.run(&["toolpulse", "--version"].map(str::to_owned)).await;
    assert!(status.success(), "{output}");
    assert_eq!(output, concat!("toolpulse ", env!("CARGO_PKG_VERSION"), "\n"));
}

/// It is what somebody who finds the image tries first, and it needs a directory for temporary files.
#[tokio::test(flavor = "multi_thread")]
async fn the_demo_runs_in_it() {
    let Some(image) = Image::get() else { return };
    let Some(dir) = with_own_mounts_and_network("running::the_demo_runs_in_it") else { return };
    let container = Container::new(&image, &dir.join("container"));
    container.volume("/data");
    let mut demo = container.start(&["toolpulse", "demo", "--once"].map(str::to_owned));
    let status = demo.ended(3 * SOON).await;
    assert!(status.success(), "{}", demo.log());
}

/// From the start to the end: health, a tool for each host, nothing written but data, exit 0.
async fn serves(image: &Image, mut container: Container, hosts: &[&str]) {
    let target = HttpTarget::start(Answer::Status(200)).await;
    for (name, value) in [("TOOLPULSE_ALLOW_PLAINTEXT", "true"), ("TOOLPULSE_PROBE_ALLOW", "127.0.0.0/8")] {
        container.env.push((name.to_owned(), value.to_owned()));
    }
    let data = container.volume("/data");
    let mut server = container.start(&[image.texts("Entrypoint"), image.texts("Cmd")].concat());

    let pid = server.pid().await;
    for (field, value) in [
        ("Uid", "65532 65532 65532 65532"),
        ("Gid", "65532 65532 65532 65532"),
        ("Groups", "65532"),
        ("CapPrm", "0000000000000000"),
        ("CapEff", "0000000000000000"),
        ("NoNewPrivs", "1"),
    ] {
        let is = server.status_of(pid, field).unwrap();
        // coreutils' chroot leaves no further group where none is named.
        assert!(is == value || (field == "Groups" && is.is_empty()), "{field}: {is}");
    }

    let check = image.texts_of_healthcheck();
    eventually("the image's own health check passes", SOON, || async {
        container.run(&check).await.0.success().then_some(())
    })
    .await;
    assert_eq!(http_get("127.0.0.1:9091", "/readyz").await.unwrap().0, 200);

    let mut tools = ToolRegistryServiceClient::connect("http://127.0.0.1:50051").await.unwrap();
    for host in hosts {
        let url = target.url("/").replace("127.0.0.1", host);
        let probe = ProbeSpec {
            kind: Some(Kind::Http(HttpProbe { url, ..HttpProbe::default() })),
            ..ProbeSpec::default()
        };
        let tool = ToolSpec { name: (*host).to_owned(), probes: vec![probe], ..ToolSpec::default() };
        let request = RegisterToolRequest { tool: Some(tool), ..RegisterToolRequest::default() };
        tools.register_tool(request).await.unwrap();
    }
    let mut expected: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
    expected.sort();
    eventually("every tool is available", SOON, || {
        let (mut tools, expected) = (tools.clone(), &expected);
        async move {
            let request = ListAvailableToolsRequest::default();
            let reply = tools.list_available_tools(request).await.unwrap().into_inner();
            let mut names: Vec<_> = reply.tools.into_iter().map(|tool| tool.name).collect();
            names.sort();
            (names == *expected).then_some(())
        }
    })
    .await;

    server.signal(Signal::TERM).await;
    let status = server.ended(Duration::from_secs(15)).await;
    let log = server.log();
    assert_eq!(status.code(), Some(0), "{log}");
    let is_wrong = |line: &&str| line.contains("WARN") || line.contains("ERROR");
    let wrong: Vec<_> = log.lines().filter(is_wrong).filter(|l| !l.contains("whitelist is unset")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    for entry in fs::read_dir(data).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.starts_with("toolpulse."), "{name} is left in the data directory");
    }
}
