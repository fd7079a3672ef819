//! The least that Helm 3 takes for a cluster when it is asked for a dry run: a version, and which kinds there are.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    thread,
};

use serde_json::{Value, json};

/// Group, kind and name of what the chart renders.
const KINDS: [(&str, &str, &str); 9] = [
    ("", "ConfigMap", "configmaps"),
    ("", "Pod", "pods"),
    ("", "Service", "services"),
    ("", "ServiceAccount", "serviceaccounts"),
    ("apps", "StatefulSet", "statefulsets"),
    ("gateway.networking.k8s.io", "GRPCRoute", "grpcroutes"),
    ("networking.k8s.io", "Ingress", "ingresses"),
    ("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
    ("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
];

/// Answers until the test's process ends. Its URL.
pub(crate) fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // Nothing that is asked has a body, so the first line is the question and the empty one its end.
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let request: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let path = request.first().and_then(|line| line.split([' ', '?']).nth(1)).unwrap_or_default();
            let (status, body) = answer(path).map_or((404, json!({})), |body| (200, body));
            let body = body.to_string();
            let head = format!("HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nConnection: close");
            let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    url
}

fn answer(path: &str) -> Option<Value> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    Some(match parts.as_slice() {
        ["version"] => json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0"}),
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"]}),
        ["apis"] => {
            let mut groups: Vec<&str> =
                KINDS.iter().map(|kind| kind.0).filter(|group| !group.is_empty()).collect();
            groups.dedup();
            let version = |group: &str| json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
            let groups: Vec<Value> = groups
                .into_iter()
                .map(|g| json!({"name": g, "versions": [version(g)], "preferredVersion": version(g)}))
                .collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["api", "v1"] => resources("", "v1"),
        ["apis", group, "v1"] => resources(group, &format!("{group}/v1")),
        _ => return None,
    })
}

fn resources(group: &str, version: &str) -> Value {
    let resources: Vec<Value> = KINDS
        .iter()
        .filter(|kind| kind.0 == group)
        .map(|(_, kind, name)| json!({"name": name, "kind": kind, "namespaced": true, "verbs": ["get", "create"]}))
        .collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources})
}
