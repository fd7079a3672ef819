//! The rendered pod at work: the image's own binary with the rendered arguments, environment, mounts, user and rights, asked by
//! the rendered probes, tested by the rendered `helm test`, ended as rendered.

mod kubelet;
mod volumes;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;
use toolpulse::proto::v1::{
    GetToolRequest, ListToolsRequest, RegisterToolRequest, ToolSpec, Verdict, WatchAvailableToolsRequest,
    tool_registry_service_client::ToolRegistryServiceClient,
};

use self::{
    kubelet::{Cluster, POD, Pod},
    volumes::Objects,
};
use crate::{
    helm::{Helm, RELEASE, value_files},
    support::{
        SOON,
        apart::with_own_mounts_and_network,
        container::Image,
        eventually, http_get,
        targets::{Answer, HttpTarget},
    },
};

/// A Secret that the full set of values expects.
const GIVEN: &[(&str, &[(&str, &str)])] =
    &[("probe-tokens", &[("docs-token", "a-token"), ("docs-token.hosts", "docs.internal")])];

#[tokio::test(flavor = "multi_thread")]
async fn it_runs_with_the_default_values() {
    // By default there are no tools: a list of none would not tell that they arrive.
    lives("it_runs_with_the_default_values", &["--set-json", r#"tools=[{"name":"current_time"}]"#], "{}")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_runs_with_the_minimal_values() {
    let args = ["--set-json", r#"tools=[{"name":"current_time"}]"#, "--set", "tests.enabled=true"];
    lives("it_runs_with_the_minimal_values", &args, &values_of("values-minimal")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_runs_with_everything_set() {
    lives("it_runs_with_everything_set", &[], &values_of("full")).await;
}

/// kubestellar/console#20824, Kong/charts#1457, goharbor/harbor-helm#874: OpenShift chooses user and groups itself.
#[tokio::test(flavor = "multi_thread")]
async fn h8_it_runs_as_the_user_that_openshift_assigns() {
    let values = values_of("openshift");
    let test = "h8_it_runs_as_the_user_that_openshift_assigns";
    let Some(mut cluster) = cluster(test, &[], &values).await else { return };
    cluster.assigned = Some((1_000_660_000, 0, 1_000_660_000));
    let mut pod = cluster.start("pod").await;
    pod.until_ready().await;
    let pid = pod.process.pid().await;
    assert_eq!(pod.process.status_of(pid, "Uid").unwrap(), ["1000660000"; 4].join(" "));
    stops(&mut pod).await;
}

/// sequinstream/sequin#2155, ScreamingFace/screamingface#538, permitio/opal-helm-chart#30: a Service that is called like our
/// prefix puts an address where a setting would be. The chart keeps them out, and the server knows them where they are not kept
/// out: they change nothing, while a setting that is misspelt is still told of.
#[tokio::test(flavor = "multi_thread")]
async fn h10_service_links_change_nothing() {
    let values = "{fullnameOverride: toolpulse, log: {format: text}}";
    let Some(mut cluster) = cluster("h10_service_links_change_nothing", &[], values).await else { return };
    for (name, (address, ports)) in &cluster.services {
        let (name, port) = (name.to_uppercase().replace('-', "_"), ports[0]);
        let links = [
            (format!("{name}_PORT"), format!("tcp://{address}:{port}")),
            (format!("{name}_PORT_{port}_TCP"), format!("tcp://{address}:{port}")),
            (format!("{name}_PORT_{port}_TCP_ADDR"), address.to_string()),
            (format!("{name}_SERVICE_HOST"), address.to_string()),
            (format!("{name}_SERVICE_PORT"), port.to_string()),
        ];
        cluster.env.extend(links);
    }
    assert!(cluster.env.iter().any(|(name, _)| name == "TOOLPULSE_PORT"), "{:?}", cluster.env);
    cluster.env.push(("TOOLPULSE_PROBE_GRAVE".to_owned(), "1m".to_owned()));
    let mut pod = cluster.start("pod").await;
    pod.until_ready().await;
    let log = pod.process.log();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("environment variable")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("did you mean TOOLPULSE_PROBE_GRACE"), "{log}");
    stops(&mut pod).await;
}

/// alphagov/govuk-helm-charts#132, GoogleCloudPlatform/alloydb-auth-proxy#641, avelino/mcp#68: a dependency that fails takes
/// down what depends on it, or has it restarted for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn h25_the_pod_stays_ready_when_every_target_is_gone() {
    let test = "h25_the_pod_stays_ready_when_every_target_is_gone";
    let tool = |target: &str| {
        let probe = json!({"http": {"url": target}});
        json!({"name": "probed", "probes": [probe], "interval": "1s", "timeout": "300ms", "ttl": "2s", "grace": "2s"})
    };
    // The target's address is known only in there, so that the tool is published afterwards.
    let Some(mut cluster) = cluster(test, &[], "{tools: [{name: probed}]}").await else { return };
    let mut target = HttpTarget::start(Answer::Status(200)).await;
    let node = cluster.expose(&target.address()).await.to_string();
    let manifest = json!({"tools": [tool(&target.url("/").replace("127.0.0.1", &node))]}).to_string();
    cluster.objects.0.get_mut("rel-toolpulse-tools").unwrap().insert("tools.yaml".to_owned(), manifest);
    let mut pod = cluster.start("pod").await;
    pod.until_ready().await;
    until(&cluster, "probed", Verdict::Available).await;

    target.stop().await;
    until(&cluster, "probed", Verdict::Unavailable).await;
    for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
        assert_eq!(pod.passes(probe).await, Ok(()), "{probe}");
    }
    let admin = format!("{POD}:9091");
    assert_eq!(http_get(&admin, "/readyz").await.unwrap().0, 200);
    assert_eq!(http_get(&admin, "/livez").await.unwrap().0, 200);
    stops(&mut pod).await;
}

/// The kubelet swaps a link when a ConfigMap changes. The running server takes it over.
#[tokio::test(flavor = "multi_thread")]
async fn new_tools_reach_the_running_pod() {
    let Some(mut cluster) = cluster("new_tools_reach_the_running_pod", &[], "{tools: [{name: old}]}").await
    else {
        return;
    };
    let mut pod = cluster.start("pod").await;
    pod.until_ready().await;
    let pid = pod.process.pid().await;
    assert_eq!(names(&cluster).await, ["old"]);
    let upgraded = Helm::newest().unwrap().render("{tools: [{name: new}]}");
    cluster.objects = Objects::new(&upgraded, &[]);
    pod.publish(&cluster.objects);
    eventually("the new tool is there", SOON, || async { (names(&cluster).await == ["new"]).then_some(()) })
        .await;
    assert_eq!(pod.process.pid().await, pid);
    stops(&mut pod).await;
}

/// From the installation to the end of the pod, and of the one that comes after it.
async fn lives(test: &str, args: &[&str], values: &str) {
    let Some(cluster) = cluster(test, args, values).await else { return };
    let mut pod = cluster.start("first").await;
    pod.until_ready().await;
    let pid = pod.process.pid().await;
    for (field, value) in
        [("Uid", "65532 65532 65532 65532"), ("CapEff", "0000000000000000"), ("NoNewPrivs", "1")]
    {
        assert_eq!(pod.process.status_of(pid, field).unwrap(), value, "{field}");
    }

    // `helm test`.
    let hooks = cluster.rendered.all("Pod");
    let is_test = |pod: &&Value| pod["metadata"]["annotations"]["helm.sh/hook"] == "test";
    assert!(!hooks.is_empty() && hooks.iter().all(is_test));
    for hook in hooks {
        let output = cluster.run_to_its_end(hook).await;
        assert!(output.contains("SERVING") && output.contains("current_time"), "{output}");
    }

    let mut client = client(&cluster).await;
    assert!(names(&cluster).await.contains(&"current_time".to_owned()));
    let spec = ToolSpec { name: "registered".to_owned(), ..ToolSpec::default() };
    client
        .register_tool(RegisterToolRequest { tool: Some(spec), ..RegisterToolRequest::default() })
        .await
        .unwrap();

    let request = WatchAvailableToolsRequest::default();
    let mut watch = client.watch_available_tools(request).await.unwrap().into_inner();
    ends(&mut pod).await;
    let mut goodbye = false;
    while let Ok(Some(message)) = watch.message().await {
        goodbye |= message.goodbye.is_some();
    }
    assert!(goodbye, "an open watch is told that the server goes");

    let mut pod = cluster.start("second").await;
    pod.until_ready().await;
    let is_kept = cluster.rendered.args().contains(&"--store=sqlite");
    assert_eq!(names(&cluster).await.contains(&"registered".to_owned()), is_kept);
    stops(&mut pod).await;
}

/// The end as Kubernetes makes it: the hook first, then SIGTERM, and SIGKILL when the time is over.
async fn ends(pod: &mut Pod) {
    let (pause, altogether) = pod.times();
    assert_eq!(pod.passes("readinessProbe").await, Ok(()));
    let began = Instant::now();
    sleep(pause).await;
    assert_eq!(pod.passes("readinessProbe").await, Ok(()), "it serves until it is asked to end");
    pod.process.signal(Signal::TERM).await;
    let status = pod.process.ended(altogether.saturating_sub(began.elapsed())).await;
    assert_eq!(status.code(), Some(0), "{}", pod.process.log());
}

/// The end without the hook, for what is not about the end.
async fn stops(pod: &mut Pod) {
    let (pause, altogether) = pod.times();
    pod.process.signal(Signal::TERM).await;
    let status = pod.process.ended(altogether - pause).await;
    assert_eq!(status.code(), Some(0), "{}", pod.process.log());
}

/// The chart, installed in a cluster of the test's own; nothing outside of it.
async fn cluster(test: &str, args: &[&str], values: &str) -> Option<Cluster> {
    let (image, helm) = (Image::get()?, Helm::newest()?);
    let dir = with_own_mounts_and_network(&format!("pod::{test}"))?;
    let rendered = helm.template_as(RELEASE, args, values).unwrap();
    Some(Cluster::new(image, &dir, rendered, GIVEN).await)
}

fn values_of(file: &str) -> String {
    value_files().into_iter().find(|(name, _)| name == file).unwrap().1
}

/// A client of the Service.
async fn client(cluster: &Cluster) -> ToolRegistryServiceClient<Channel> {
    let of_clients = |(name, _): &(&String, &_)| !name.ends_with("-headless");
    let (_, (address, ports)) = cluster.services.iter().find(of_clients).unwrap();
    ToolRegistryServiceClient::connect(format!("http://{address}:{}", ports[0])).await.unwrap()
}

/// The names of all tools.
async fn names(cluster: &Cluster) -> Vec<String> {
    let reply = client(cluster).await.list_tools(ListToolsRequest::default()).await.unwrap().into_inner();
    reply.tools.into_iter().map(|tool| tool.spec.unwrap().name).collect()
}

async fn until(cluster: &Cluster, name: &str, verdict: Verdict) {
    let request = GetToolRequest { name: name.to_owned(), ..GetToolRequest::default() };
    let what = format!("{name} is {verdict:?}");
    eventually(&what, SOON, || async {
        let tool = client(cluster).await.get_tool(request.clone()).await.unwrap().into_inner().tool.unwrap();
        (tool.status.unwrap().verdict() == verdict).then_some(())
    })
    .await;
}
