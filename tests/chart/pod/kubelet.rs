//! What a cluster does with the chart's pod: addresses, Services, names, mounts, probes. The test's own network is the node's;
//! the pod has one of its own, so that it may listen where a Service does.

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{Instant, sleep},
};
use tonic::transport::Endpoint;
use toolpulse::proto::health::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::volumes::{Objects, Volumes};
use crate::{
    helm::{Rendered, list, named, text},
    support::{
        container::{Container, Image, Process},
        names::NameServer,
    },
};

/// What `helm template` renders for where nobody says.
const NAMESPACE: &str = "default";
/// The address of the pod.
pub(crate) const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 10);
/// The address of the node, where the pod finds what it probes.
const NODE: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);
const DNS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

/// A cluster of one node, with room for one pod.
#[derive(Debug)]
pub(crate) struct Cluster {
    image: Image,
    dir: PathBuf,
    /// What was installed.
    pub(crate) rendered: Rendered,
    /// What pods can mount.
    pub(crate) objects: Objects,
    /// Addresses and ports of the Services, by name.
    pub(crate) services: BTreeMap<String, (Ipv4Addr, Vec<u16>)>,
    /// User, group and group of volumes that are given to a pod that names none, as OpenShift does.
    pub(crate) assigned: Option<(u32, u32, u32)>,
    /// More of the environment of each container.
    pub(crate) env: Vec<(String, String)>,
    forwarders: Vec<JoinHandle<()>>,
    _names: NameServer,
}

impl Cluster {
    /// Installs what was rendered.
    pub(crate) async fn new(
        image: Image,
        dir: &Path,
        rendered: Rendered,
        given: &[(&str, &[(&str, &str)])],
    ) -> Self {
        let (mut names, mut services, mut forwarders) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        connect(&dir.join("network"));
        add_address(DNS);
        for (n, service) in (20..).zip(rendered.all("Service")) {
            let (name, spec) = (text(&service["metadata"]["name"]), &service["spec"]);
            let labels = &rendered.set()["template"]["metadata"]["labels"];
            for (key, value) in spec["selector"].as_object().unwrap() {
                assert_eq!(&labels[key], value, "{name} does not select the pod");
            }
            let mut address = POD;
            if spec["clusterIP"] != "None" {
                address = Ipv4Addr::new(10, 96, 0, n);
                add_address(address);
                for port in list(&spec["ports"]) {
                    let target = container_port(rendered.container(), &port["targetPort"]);
                    let from = SocketAddr::from((address, number(&port["port"])));
                    forwarders.push(forward(from, SocketAddr::from((POD, target))).await);
                }
            }
            for suffix in ["", ".svc", ".svc.cluster.local"] {
                let of_namespace = if suffix.is_empty() { String::new() } else { format!(".{NAMESPACE}") };
                names.insert(format!("{name}{of_namespace}{suffix}"), address);
            }
            let ports = list(&spec["ports"]).iter().map(|port| number(&port["port"])).collect();
            services.insert(name.to_owned(), (address, ports));
        }
        // A resolver never asks for a short name: its search list makes it a full one.
        names.retain(|name, _| name.contains('.'));
        let objects = Objects::new(&rendered, given);
        let _names = NameServer::start(DNS, names).await;
        let (assigned, env) = (None, Vec::new());
        Self { image, dir: dir.to_owned(), rendered, objects, services, assigned, env, forwarders, _names }
    }

    /// Starts the pod of the StatefulSet, on the claims that it had before. `attempt` names its directory.
    pub(crate) async fn start(&self, attempt: &str) -> Pod {
        let mut spec = self.rendered.pod().clone();
        self.admit(&mut spec);
        let claims = &self.rendered.set()["volumeClaimTemplates"];
        let volumes = Volumes::new(&self.dir.join("volumes"), &spec, claims, &self.objects);
        assert!(list(&spec["initContainers"]).is_empty() && list(&spec["containers"]).len() == 1);
        let container = named(&spec["containers"], "toolpulse").clone();
        let (mut made, command) = self.container(attempt, &spec, &container, &volumes);
        made.network = Some(self.dir.join("network"));
        let process = made.start(&command);
        Pod { process, volumes, spec, container }
    }

    /// Runs a pod of `helm test` to its end: its containers one after the other, as Kubernetes does with those that come
    /// first. What they printed.
    pub(crate) async fn run_to_its_end(&self, pod: &Value) -> String {
        let mut spec = pod["spec"].clone();
        self.admit(&mut spec);
        let within = Duration::from_secs(spec["activeDeadlineSeconds"].as_u64().unwrap());
        let name = text(&pod["metadata"]["name"]);
        let volumes =
            Volumes::new(&self.dir.join(format!("{name}-volumes")), &spec, &Value::Null, &self.objects);
        let mut all = String::new();
        for container in list(&spec["initContainers"]).iter().chain(list(&spec["containers"])) {
            let dir = format!("{name}-{}", text(&container["name"]));
            let (made, command) = self.container(&dir, &spec, container, &volumes);
            let mut process = made.start(&command);
            let status = process.ended(within).await;
            assert!(status.success(), "{dir} ended with {status}:\n{}", process.log());
            all.push_str(&process.log());
        }
        all
    }

    /// Makes what listens on the test's loopback reachable for the pod, at the same port of this address.
    pub(crate) async fn expose(&mut self, loopback: &str) -> Ipv4Addr {
        let loopback: SocketAddr = loopback.parse().unwrap();
        self.forwarders.push(forward(SocketAddr::from((NODE, loopback.port())), loopback).await);
        NODE
    }

    /// What OpenShift's admission adds to a pod.
    fn admit(&self, spec: &mut Value) {
        let Some((user, group, volumes)) = self.assigned else { return };
        let context = &mut spec["securityContext"];
        for (key, value) in [("runAsUser", user), ("runAsGroup", group), ("fsGroup", volumes)] {
            assert!(context[key].is_null(), "restricted-v2 refuses a pod that asks for {key}");
            context[key] = value.into();
        }
    }

    /// Makes a container by its spec: its root with mounts, and its command.
    fn container(&self, dir: &str, pod: &Value, spec: &Value, volumes: &Volumes) -> (Container, Vec<String>) {
        let mut container = Container::new(&self.image, &self.dir.join(dir));
        secure(&mut container, pod, spec);
        let hosts = format!("127.0.0.1 localhost\n{POD} {}\n", "pod-0");
        container.write("/etc/hosts", &hosts);
        let search = ["svc.cluster.local", "cluster.local"];
        let search = format!("{NAMESPACE}.{} {}", search[0], search.join(" "));
        container.write("/etc/resolv.conf", &format!("search {search}\nnameserver {DNS}\noptions ndots:5\n"));
        for mount in list(&spec["volumeMounts"]) {
            assert!(mount["subPath"].is_null(), "not known here: {mount}");
            let from = volumes.path(text(&mount["name"]));
            container.mount(&from, text(&mount["mountPath"]), mount["readOnly"] == true);
        }

        assert!(list(&spec["envFrom"]).is_empty(), "not known here: {}", spec["envFrom"]);
        for variable in list(&spec["env"]) {
            container.env.push((text(&variable["name"]).to_owned(), text(&variable["value"]).to_owned()));
        }
        container.env.extend(self.env.iter().cloned());
        assert_eq!(pod["enableServiceLinks"], false, "it would get the environment of service links");

        let texts = |value: &Value| list(value).iter().map(|t| text(t).to_owned()).collect::<Vec<_>>();
        let given = texts(&spec["command"]);
        let entrypoint = if given.is_empty() { self.image.texts("Entrypoint") } else { given };
        let command = [entrypoint, texts(&spec["args"])].concat();
        assert!(!command.iter().any(|arg| arg.contains("$(")), "not known here: {command:?}");
        (container, command)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.forwarders.iter().for_each(JoinHandle::abort);
    }
}

/// The pod at work.
#[derive(Debug)]
pub(crate) struct Pod {
    /// The server.
    pub(crate) process: Process,
    volumes: Volumes,
    spec: Value,
    container: Value,
}

impl Pod {
    /// Waits until the startup probe passes, for as long as Kubernetes would. Then the others must pass as well.
    pub(crate) async fn until_ready(&mut self) {
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let probe = self.container[probe].clone();
            self.until_passes(&probe).await;
        }
    }

    async fn until_passes(&mut self, probe: &Value) {
        let seconds = |key: &str| probe[key].as_u64().unwrap_or_else(|| panic!("no {key} in {probe}"));
        let within = seconds("initialDelaySeconds") + seconds("periodSeconds") * seconds("failureThreshold");
        let deadline = Instant::now() + Duration::from_secs(within);
        while let Err(why) = self.probe(probe).await {
            let log = || self.process.log();
            assert!(Instant::now() < deadline, "not within {within} s: {probe}: {why}\n{}", log());
            let status = self.process.has_ended();
            assert!(status.is_none(), "it ended with {status:?}:\n{}", self.process.log());
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Runs the probe of that name once.
    pub(crate) async fn passes(&self, name: &str) -> Result<(), String> {
        self.probe(&self.container[name]).await
    }

    /// A gRPC probe, as the kubelet does it: on the pod's address, in plaintext, SERVING or not.
    async fn probe(&self, probe: &Value) -> Result<(), String> {
        let grpc = &probe["grpc"];
        let handlers =
            ["grpc", "exec", "httpGet", "tcpSocket"].into_iter().filter(|kind| !probe[kind].is_null());
        assert_eq!(handlers.count(), 1, "{probe}");
        let within = Duration::from_secs(probe["timeoutSeconds"].as_u64().unwrap());
        let endpoint = Endpoint::from_shared(format!("http://{POD}:{}", number(&grpc["port"]))).unwrap();
        let channel = endpoint.connect_timeout(within).timeout(within).connect().await;
        let mut health = HealthClient::new(channel.map_err(|error| format!("{error:?}"))?);
        let request = HealthCheckRequest { service: text(&grpc["service"]).to_owned() };
        let status = health.check(request).await.map_err(|error| error.to_string())?.into_inner().status();
        if status == ServingStatus::Serving { Ok(()) } else { Err(format!("{status:?}")) }
    }

    /// Shows the pod what its volumes come from, as it is now.
    pub(crate) fn publish(&self, objects: &Objects) {
        self.volumes.publish(objects);
    }

    /// How long it sleeps before it is asked to end, and how long it has altogether.
    pub(crate) fn times(&self) -> (Duration, Duration) {
        let hook = &self.container["lifecycle"]["preStop"];
        assert!(hook.is_null() || hook["sleep"]["seconds"].is_u64(), "the image has no shell: {hook}");
        let seconds = |value: &Value| Duration::from_secs(value.as_u64().unwrap_or(0));
        (seconds(&hook["sleep"]["seconds"]), seconds(&self.spec["terminationGracePeriodSeconds"]))
    }
}

/// User, groups and rights of a container.
fn secure(container: &mut Container, pod: &Value, spec: &Value) {
    let of = |key: &str| match &spec["securityContext"][key] {
        Value::Null => &pod["securityContext"][key],
        own => own,
    };
    let id = |key: &str| of(key).as_u64().map(|id| u32::try_from(id).unwrap());
    container.user.0 = id("runAsUser").unwrap_or(container.user.0);
    container.user.1 = id("runAsGroup").unwrap_or(container.user.1);
    container.groups = id("fsGroup").into_iter().collect();
    container.writable = of("readOnlyRootFilesystem") != true;
    assert!(of("runAsNonRoot") != true || container.user.0 != 0, "root");
    // What every container has here.
    assert_eq!(of("allowPrivilegeEscalation"), false);
    assert_eq!(of("capabilities")["drop"][0], "ALL");
}

fn add_address(address: Ipv4Addr) {
    ip(&format!("address add {address}/32 dev lo"));
}

/// Makes the pod's network, as a file, and a cable to it.
fn connect(network: &Path) {
    fs::write(network, "").unwrap();
    let file = network.display();
    run(&format!("unshare --net={file} true"));
    ip(&format!("link add node type veth peer name eth0 netns {file}"));
    ip(&format!("address add {NODE}/24 dev node"));
    ip("link set node up");
    for args in ["link set lo up", &format!("address add {POD}/24 dev eth0"), "link set eth0 up"] {
        run(&format!("nsenter --net={file} ip {args}"));
    }
    run(&format!("nsenter --net={file} ip route add default via {NODE}"));
}

fn ip(args: &str) {
    run(&format!("ip {args}"));
}

fn run(command: &str) {
    let words: Vec<_> = command.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A port of the container, by number or name.
fn container_port(container: &Value, port: &Value) -> u16 {
    match port.as_str() {
        Some(name) => number(&named(&container["ports"], name)["containerPort"]),
        None => number(port),
    }
}

fn number(value: &Value) -> u16 {
    let number = value.as_u64().and_then(|n| u16::try_from(n).ok());
    number.unwrap_or_else(|| panic!("no port: {value}"))
}

/// What kube-proxy does for one port of a Service.
async fn forward(from: SocketAddr, to: SocketAddr) -> JoinHandle<()> {
    let listener = TcpListener::bind(from).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut pod) = TcpStream::connect(to).await {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut pod).await;
                }
            });
        }
    })
}
