//! `serve --manifest`: declared tools are registered at the start and followed on change; others' tools are never touched.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use support::{SOON, Server, eventually};
use tempfile::TempDir;
use tonic_types::StatusExt;
use toolpulse::proto::v1::{
    ClearToolsRequest, GetAllowlistDiagnosticsRequest, ListToolsRequest, RegisterToolRequest, Tool, ToolSpec,
    UnregisterToolsRequest,
};

/// A file that a server follows.
struct File {
    path: PathBuf,
    _dir: TempDir,
}

impl File {
    fn new(content: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tools.yaml");
        fs::write(&path, content).unwrap();
        Self { path, _dir: dir }
    }

    fn write(&self, content: &str) {
        fs::write(&self.path, content).unwrap();
    }
}

/// A manifest of tools: name and description.
fn manifest(tools: &[(&str, &str)]) -> String {
    let tool = |(name, description)| format!("  - name: {name}\n    description: {description}\n");
    let tools: String = tools.iter().copied().map(tool).collect();
    format!("owner: platform\ntools:\n{tools}")
}

async fn start(path: &Path) -> Server {
    Server::start(|c| _ = c.args(["--manifest".as_ref(), path.as_os_str()])).await
}

async fn list(server: &Server) -> BTreeMap<String, Tool> {
    let request = ListToolsRequest { page_size: 1000, ..ListToolsRequest::default() };
    let reply = server.tools().list_tools(request).await.unwrap().into_inner();
    reply.tools.into_iter().map(|t| (t.spec.as_ref().unwrap().name.clone(), t)).collect()
}

/// Names and descriptions of all tools.
async fn described(server: &Server) -> Vec<(String, String)> {
    list(server).await.into_values().map(|t| t.spec.unwrap()).map(|s| (s.name, s.description)).collect()
}

async fn until_described(server: &Server, want: &[(&str, &str)]) {
    let want: Vec<_> = want.iter().map(|(n, d)| (n.to_string(), d.to_string())).collect();
    eventually("the manifest is followed", SOON, || async {
        let found = described(server).await;
        (found == want).then_some(())
    })
    .await;
}

/// A warning with all of `parts`, in what the server logs after the first `seen` bytes.
async fn until_warned(server: &Server, seen: usize, parts: &[&str]) -> String {
    eventually(&format!("a warning with {parts:?}"), SOON, || async {
        let log = server.log();
        let said = |line: &&str| line.contains(" WARN ") && parts.iter().all(|part| line.contains(part));
        log[seen..].lines().find(said).map(str::to_owned)
    })
    .await
}

async fn register(server: &Server, name: &str, owner: &str, force: bool) -> Result<Tool, tonic::Status> {
    let spec = ToolSpec { name: name.into(), description: "by call".into(), ..ToolSpec::default() };
    let request = RegisterToolRequest {
        tool: Some(spec),
        owner: owner.into(),
        overwrite: true,
        force,
        ..RegisterToolRequest::default()
    };
    server.tools().register_tool(request).await.map(|reply| reply.into_inner().tool.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn thresholds_are_declared_and_no_declared_tool_goes_by_itself() {
    let text = "tools:\n- {name: t, probes: [{report: {}}], success_threshold: 2, failure_threshold: 3, unregister_after: 1m}\n";
    let file = File::new(text);
    let server = start(&file.path).await;
    let spec = list(&server).await.remove("t").unwrap().spec.unwrap();
    assert_eq!((spec.success_threshold, spec.failure_threshold), (2, 3));
    assert_eq!(spec.unregister_after.unwrap().seconds, 60);
    until_warned(&server, 0, &["unregister_after is ignored", "default/t"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_followed_and_others_tools_are_left_alone() {
    let file = File::new(&manifest(&[("changed", "one"), ("kept", "one"), ("removed", "one")]));
    let mut server = start(&file.path).await;
    let first = list(&server).await;
    assert_eq!(first.keys().collect::<Vec<_>>(), ["changed", "kept", "removed"]);
    assert!(first.values().all(|t| t.from_manifest && t.owner == "platform"), "{first:?}");
    let mine = register(&server, "mine", "somebody", false).await.unwrap();
    let taken = register(&server, "taken", "somebody", false).await.unwrap();

    file.write(&manifest(&[("added", "two"), ("changed", "two"), ("kept", "one"), ("taken", "two")]));
    let want =
        [("added", "two"), ("changed", "two"), ("kept", "one"), ("mine", "by call"), ("taken", "by call")];
    until_described(&server, &want).await;
    let second = list(&server).await;
    assert!(second["changed"].generation > first["changed"].generation);
    assert_eq!(second["kept"], first["kept"]);
    assert_eq!((&second["mine"], &second["taken"]), (&mine, &taken));
    until_warned(&server, 0, &["skipped", "taken", "somebody"]).await;
    let request = GetAllowlistDiagnosticsRequest::default();
    let diagnostics = server.tools().get_allowlist_diagnostics(request).await.unwrap().into_inner();
    let collisions: Vec<_> = diagnostics
        .collisions
        .iter()
        .map(|c| (c.namespace.as_str(), c.name.as_str(), c.owner.as_str(), c.offered_by.as_str()))
        .collect();
    assert_eq!(collisions, [("default", "taken", "somebody", "platform")]);

    // What changes while the server is down is followed at the start. What did not keeps its generation.
    file.write(&manifest(&[("added", "two"), ("changed", "three")]));
    server.crash_and_restart().await;
    let want = [("added", "two"), ("changed", "three"), ("mine", "by call"), ("taken", "by call")];
    let want = want.map(|(n, d)| (n.to_owned(), d.to_owned()));
    assert_eq!(described(&server).await, want, "at once, when it is ready");
    let third = list(&server).await;
    assert_eq!(third["added"].generation, second["added"].generation);
    assert_eq!(third["mine"].generation, mine.generation);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configmap_is_followed_through_its_symlinks() {
    let dir = tempfile::tempdir().unwrap();
    let version = |n: u32, tools: &[(&str, &str)]| {
        let real = dir.path().join(format!("..2026_{n}"));
        fs::create_dir(&real).unwrap();
        fs::write(real.join("tools.yaml"), manifest(tools)).unwrap();
        // As the kubelet does it: a new link, then renamed over the old one.
        symlink(format!("..2026_{n}"), dir.path().join("..data_tmp")).unwrap();
        fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
        if n > 1 {
            fs::remove_dir_all(dir.path().join(format!("..2026_{}", n - 1))).unwrap();
        }
    };
    version(1, &[("a", "one")]);
    let path = dir.path().join("tools.yaml");
    symlink("..data/tools.yaml", &path).unwrap();
    let server = start(&path).await;
    until_described(&server, &[("a", "one")]).await;
    version(2, &[("a", "two"), ("b", "two")]);
    until_described(&server, &[("a", "two"), ("b", "two")]).await;
    version(3, &[("b", "two")]);
    until_described(&server, &[("b", "two")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_manifest_keeps_the_last_good_one_and_says_the_line() {
    let good = manifest(&[("a", "one"), ("b", "one")]);
    let file = File::new(&good);
    let server = start(&file.path).await;
    let shown = file.path.display().to_string();
    let broken = [
        ("a typo in a key", manifest(&[("a", "two")]) + "    descripion: x\n", "line 5"),
        ("no YAML", manifest(&[("a", "two")]) + "  - }{\n", "line 5"),
        ("no tools, as in a file that is being written", "owner: platform\n".to_owned(), "line 1"),
        ("empty", String::new(), "line 1"),
        ("a name twice", manifest(&[("a", "two"), ("a", "three")]), "line 5"),
    ];
    for (what, content, line) in broken {
        let seen = server.log().len();
        file.write(&content);
        let logged = until_warned(&server, seen, &["the manifest is broken", &shown, line]).await;
        assert!(logged.contains("last good"), "{what}: {logged}");
        until_described(&server, &[("a", "one"), ("b", "one")]).await;
    }
    // Well-formed, and no tool that could be registered. Nothing of such a file counts.
    file.write(&manifest(&[("a", "two"), ("b c", "two")]));
    until_warned(&server, 0, &["the manifest is broken", "line 5: tool 'b c': "]).await;
    until_described(&server, &[("a", "one"), ("b", "one")]).await;
    // A file that is gone is no file without tools.
    fs::remove_file(&file.path).unwrap();
    until_warned(&server, 0, &["cannot read", &shown]).await;
    until_described(&server, &[("a", "one"), ("b", "one")]).await;

    file.write(&manifest(&[("b", "three")]));
    until_described(&server, &[("b", "three")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_broken_at_the_start_ends_it() {
    let missing = PathBuf::from("/nowhere/tools.yaml");
    let typo = File::new("tools:\n  - name: a\n    probe: []\n");
    let wrong = File::new("tools:\n  - name: a\n    probes:\n      - http: {url: no-scheme}\n");
    let windows =
        File::new("tools:\n  - name: a\n    interval: 10s\n    ttl: 5s\n    probes: [{report: {}}]\n");
    let cases = [
        (&missing, "cannot read /nowhere/tools.yaml"),
        (&typo.path, "line 3"),
        (&wrong.path, "line 2: tool 'a': "),
        (&windows.path, "line 2: tool 'a': "),
    ];
    for (path, want) in cases {
        let ended = Server::refuse(|c| _ = c.args(["--manifest".as_ref(), path.as_os_str()])).await;
        assert_eq!(ended.status.code(), Some(2), "{}", ended.log);
        let errors: Vec<_> = ended.log.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(errors.len() == 1 && errors[0].contains(want), "{}", ended.log);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_do_not_take_the_manifests_tools_away() {
    let file = File::new(&manifest(&[("a", "one"), ("b", "one")]));
    let mut server = start(&file.path).await;
    let before = list(&server).await;
    register(&server, "mine", "platform", false).await.unwrap();
    let cleared =
        server.tools().clear_tools(ClearToolsRequest { all: true, ..ClearToolsRequest::default() }).await;
    assert_eq!(cleared.unwrap().into_inner().unregistered, 1);
    let by_owner = ClearToolsRequest { owner: "platform".into(), ..ClearToolsRequest::default() };
    assert_eq!(server.tools().clear_tools(by_owner).await.unwrap().into_inner().unregistered, 0);
    for (owner, force) in [("somebody", false), ("platform", false), ("somebody", true)] {
        let request = UnregisterToolsRequest {
            names: vec!["a".into()],
            owner: owner.into(),
            force,
            ..UnregisterToolsRequest::default()
        };
        let reply = server.tools().unregister_tools(request).await.unwrap().into_inner();
        assert_eq!(reply.denied, ["a"], "{owner}, force {force}");
        let refused = register(&server, "a", owner, force).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{owner}, force {force}: {refused:?}");
        let reason = refused.get_details_error_info().map(|info| info.reason);
        assert_eq!(reason.as_deref(), Some("DECLARED_TOOL"), "{owner}, force {force}");
    }
    assert_eq!(list(&server).await, before);
    server.restart().await;
    assert_eq!(described(&server).await, [("a", "one"), ("b", "one")].map(|(n, d)| (n.into(), d.into())));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_manifest_what_an_earlier_one_declared_is_ordinary() {
    let file = File::new(&manifest(&[("a", "one"), ("b", "one")]));
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(|c| {
        c.data_dir(data.path()).args(["--manifest".as_ref(), file.path.as_os_str()]);
    })
    .await;
    server.kill9();
    drop(server);
    let server = Server::start(|c| _ = c.data_dir(data.path())).await;
    let tools = list(&server).await;
    assert_eq!(tools.len(), 2, "they are kept");
    assert!(tools.values().all(|tool| !tool.from_manifest));
    let request = UnregisterToolsRequest {
        names: vec!["a".into()],
        owner: "platform".into(),
        ..UnregisterToolsRequest::default()
    };
    let reply = server.tools().unregister_tools(request).await.unwrap().into_inner();
    assert_eq!(reply.unregistered, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manifests_tools_may_change_their_owner_but_not_to_a_bad_one() {
    let file = File::new(&manifest(&[("a", "one")]));
    let server = start(&file.path).await;
    file.write("owner: team-b\ntools:\n  - name: a\n    description: two\n");
    until_described(&server, &[("a", "two")]).await;
    assert_eq!(list(&server).await["a"].owner, "team-b");
    let seen = server.log().len();
    file.write("owner: \"a\\tb\"\ntools:\n  - name: a\n    description: three\n");
    until_warned(&server, seen, &["owner", "control characters"]).await;
    assert_eq!(list(&server).await["a"].owner, "team-b");
}
