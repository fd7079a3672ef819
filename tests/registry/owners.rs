//! Who may register, replace and unregister what; batches.

use std::io::Write;

use tonic::{Code, Status};
use toolpulse::proto::v1::{
    ClearToolsRequest, ClearToolsResponse, GetAllowlistDiagnosticsRequest, ListToolsRequest, ProbeOutcome,
    RegisterResult, RegisterToolRequest, RegisterToolResult, RegisterToolsRequest, ToolSpec,
    UnregisterToolsRequest, UnregisterToolsResponse, Verdict,
};

use crate::support::inproc::{InProc, probed, reason, report, tool};

fn spec(name: &str, description: &str) -> ToolSpec {
    ToolSpec { description: description.into(), ..tool(name) }
}

/// The result, or the code and the reason.
async fn register(server: &InProc, owner: &str, description: &str, how: &str) -> String {
    let request = RegisterToolRequest {
        tool: Some(spec("t", description)),
        owner: owner.into(),
        overwrite: how.contains('o'),
        force: how.contains('f'),
        validate_only: how.contains('v'),
        ..Default::default()
    };
    match server.try_register(request).await {
        Ok(reply) => reply.result().as_str_name().trim_start_matches("REGISTER_RESULT_").to_owned(),
        Err(status) => format!("{:?} {}", status.code(), reason(&status)),
    }
}

#[tokio::test(start_paused = true)]
async fn the_rules_of_owners() {
    const TAKEN: &str = "AlreadyExists ALREADY_EXISTS";
    const OTHERS: &str = "PermissionDenied OWNER_MISMATCH";
    // Against a tool `t` of `ann` with the spec `one`: who, spec, o(verwrite) f(orce) v(alidate_only), result.
    for (owner, description, how, expected) in [
        ("ann", "one", "", "UNCHANGED"),
        ("ann", "one", "of", "UNCHANGED"),
        ("ann", "two", "", TAKEN),
        ("ann", "two", "f", TAKEN),
        ("ann", "two", "o", "REPLACED"),
        ("bob", "one", "", TAKEN),
        ("bob", "two", "", TAKEN),
        ("bob", "two", "f", TAKEN),
        ("bob", "two", "o", OTHERS),
        ("bob", "one", "o", OTHERS),
        ("bob", "two", "of", "REPLACED"),
        ("bob", "one", "of", "REPLACED"),
        ("", "two", "o", OTHERS),
        ("ann", "two", "v", TAKEN),
        ("ann", "two", "ov", "VALID"),
        ("bob", "two", "ov", OTHERS),
        ("bob", "two", "ofv", "VALID"),
    ] {
        let server = InProc::start().await;
        assert_eq!(register(&server, "ann", "one", "").await, "CREATED");
        let before = server.get("t").await;
        let got = register(&server, owner, description, how).await;
        assert_eq!(got, expected, "{owner} {description} {how}");
        let after = server.get("t").await;
        if got == "REPLACED" {
            assert_eq!(
                (after.owner.as_str(), after.spec.unwrap().description.as_str()),
                (owner, description)
            );
            assert!(after.generation > before.generation);
            assert_eq!(after.create_time, before.create_time);
        } else {
            assert_eq!(after, before, "{owner} {description} {how}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_two_want_is_told_with_its_owner_and_listed() {
    let server = InProc::start().await;
    register(&server, "ann", "one", "").await;
    for how in ["", "o"] {
        let request = RegisterToolRequest {
            tool: Some(spec("t", "two")),
            owner: "bob".into(),
            overwrite: how == "o",
            ..Default::default()
        };
        let refused = server.try_register(request).await.unwrap_err();
        assert!(refused.message().contains("'ann'"), "{}", refused.message());
    }
    let ask = GetAllowlistDiagnosticsRequest::default();
    let found = server.tools().get_allowlist_diagnostics(ask).await.unwrap().into_inner();
    let collisions: Vec<_> = found
        .collisions
        .iter()
        .map(|c| (c.namespace.as_str(), c.name.as_str(), c.owner.as_str(), c.offered_by.as_str()))
        .collect();
    assert_eq!(collisions, [("default", "t", "ann", "bob")]);
    assert_eq!((found.env_var_name.as_str(), found.env_value, found.is_ci), ("ALLOWED_TOOLS", None, false));
    assert_eq!((found.whitelist, found.registered_before_filter), (None, vec!["t".to_owned()]));
}

fn told(results: &[RegisterToolResult]) -> Vec<(String, RegisterResult, String)> {
    let why = |r: &RegisterToolResult| {
        r.error.as_ref().map_or_else(String::new, |error| {
            let details = prost::Message::encode_to_vec(error);
            reason(&Status::with_details(Code::from_i32(error.code), error.message.clone(), details.into()))
        })
    };
    results.iter().map(|r| (r.name.clone(), r.result(), why(r))).collect()
}

#[tokio::test(start_paused = true)]
async fn each_tool_of_a_batch_has_its_own_result() {
    use RegisterResult::{Created, Rejected, Replaced, Unchanged, Valid};
    let row = |name: &str, result, why: &str| (name.to_owned(), result, why.to_owned());
    let server = InProc::start().await;
    server.register_many(vec![tool("same"), tool("old")]).await;
    let batch = || RegisterToolsRequest {
        tools: vec![
            tool("new"),
            tool("bad name"),
            tool("same"),
            spec("old", "changed"),
            tool("twice"),
            tool("twice"),
        ],
        ..Default::default()
    };
    let send = async |request| server.tools().register_tools(request).await.unwrap().into_inner();

    let all_or_nothing = send(RegisterToolsRequest { all_or_nothing: true, ..batch() }).await;
    assert_eq!(
        told(&all_or_nothing.results),
        [
            row("new", Rejected, "BATCH_REJECTED"),
            row("bad name", Rejected, "INVALID_FIELDS"),
            row("same", Rejected, "BATCH_REJECTED"),
            row("old", Rejected, "ALREADY_EXISTS"),
            row("twice", Rejected, "INVALID_FIELDS"),
            row("twice", Rejected, "INVALID_FIELDS"),
        ]
    );
    assert_eq!(server.list().await, ["old", "same"]);

    let trial = send(RegisterToolsRequest { validate_only: true, overwrite: true, ..batch() }).await;
    assert_eq!(
        told(&trial.results)[..4],
        [
            row("new", Valid, ""),
            row("bad name", Rejected, "INVALID_FIELDS"),
            row("same", Valid, ""),
            row("old", Valid, ""),
        ]
    );
    assert!(trial.results.iter().all(|r| r.generation == 0 && r.verdict() == Verdict::Unspecified));
    assert_eq!(server.list().await, ["old", "same"]);

    let done = send(RegisterToolsRequest { overwrite: true, ..batch() }).await;
    assert_eq!(
        told(&done.results),
        [
            row("new", Created, ""),
            row("bad name", Rejected, "INVALID_FIELDS"),
            row("same", Unchanged, ""),
            row("old", Replaced, ""),
            row("twice", Rejected, "INVALID_FIELDS"),
            row("twice", Rejected, "INVALID_FIELDS"),
        ]
    );
    for result in done.results.iter().filter(|r| r.result() != Rejected) {
        assert_eq!(result.generation, server.get(&result.name).await.generation);
        assert_eq!(result.verdict(), Verdict::Available);
    }
    assert_eq!(server.list().await, ["new", "old", "same"]);
    assert_eq!(server.available(Default::default()).await.revision, done.revision);
    // A good batch, all or nothing.
    let tools = vec![tool("x"), tool("y")];
    let good = send(RegisterToolsRequest { tools, all_or_nothing: true, ..Default::default() }).await;
    assert_eq!(told(&good.results), [row("x", Created, ""), row("y", Created, "")]);
    // Nothing is fine too.
    assert!(send(RegisterToolsRequest::default()).await.results.is_empty());
}

#[tokio::test(start_paused = true)]
async fn validation_of_a_new_tool_leaves_nothing_behind() {
    let server = InProc::start().await;
    let request = RegisterToolRequest { tool: Some(tool("t")), validate_only: true, ..Default::default() };
    let reply = server.try_register(request).await.unwrap();
    assert_eq!((reply.result(), reply.tool), (RegisterResult::Valid, None));
    assert_eq!(reason(&server.try_get("t").await.unwrap_err()), "TOOL_NOT_FOUND");
}

async fn registry(server: &InProc) -> Vec<String> {
    let all = server.tools().list_tools(ListToolsRequest::default()).await.unwrap().into_inner();
    all.tools.into_iter().map(|t| t.spec.unwrap().name).collect()
}

async fn with_owners() -> (InProc, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    file.write_all(b"owner: ann\ntools: [{name: declared}]").unwrap();
    let path = file.path().to_owned();
    let server = InProc::start_with(|settings| settings.manifest = Some(path)).await;
    for (owner, names) in [("ann", ["a1", "a2"]), ("bob", ["b1", "b2"])] {
        let tools = names.map(|name| probed(name, [report()])).to_vec();
        let request = RegisterToolsRequest { tools, owner: owner.into(), ..Default::default() };
        server.tools().register_tools(request).await.unwrap();
        for name in names {
            server.report(name, ProbeOutcome::Pass).await;
        }
    }
    assert_eq!(server.list().await, ["a1", "a2", "b1", "b2", "declared"]);
    (server, file)
}

#[tokio::test(start_paused = true)]
async fn unregistering_says_what_became_of_each_name() {
    let (server, _file) = with_owners().await;
    let ask = async |names: &[&str], owner: &str, force| {
        let names = names.iter().map(|n| (*n).to_owned()).collect();
        let request = UnregisterToolsRequest { names, owner: owner.into(), force, ..Default::default() };
        let UnregisterToolsResponse { unregistered, not_found, denied, .. } =
            server.tools().unregister_tools(request).await.unwrap().into_inner();
        (unregistered.join(" "), not_found.join(" "), denied.join(" "))
    };
    let told = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    let names = ["b1", "zz", "a2", "a1", "declared", "a1"];
    assert_eq!(ask(&names, "ann", false).await, told("a1 a2", "zz", "b1 declared"));
    assert_eq!(registry(&server).await, ["b1", "b2", "declared"]);
    assert_eq!(ask(&["a1", "b1"], "", false).await, told("", "a1", "b1"));
    assert_eq!(ask(&["b1", "declared"], "", true).await, told("b1", "", "declared"));
    assert_eq!(server.list().await, ["b2", "declared"]);
    // Everything known of it is forgotten.
    server.register(probed("b1", [report()])).await;
    assert_eq!(server.status("b1").await.last_success_time, None);
}

#[tokio::test(start_paused = true)]
async fn clearing_takes_one_owners_tools_or_all_but_the_manifests() {
    let (server, _file) = with_owners().await;
    let clear = async |namespace: &str, owner: &str, all| {
        let request = ClearToolsRequest { namespace: namespace.into(), owner: owner.into(), all };
        let reply: Result<_, Status> = server.tools().clear_tools(request).await;
        reply.map(|reply| {
            let ClearToolsResponse { unregistered, .. } = reply.into_inner();
            unregistered
        })
    };
    for (owner, all) in [("", false), ("ann", true)] {
        let refused = clear("", owner, all).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "INVALID_FIELDS"));
    }
    assert_eq!(clear("elsewhere", "", true).await.unwrap(), 0);
    assert_eq!(clear("", "nobody", false).await.unwrap(), 0);
    assert_eq!(registry(&server).await.len(), 5);
    assert_eq!(clear("", "ann", false).await.unwrap(), 2);
    assert_eq!(registry(&server).await, ["b1", "b2", "declared"]);
    assert_eq!(clear("", "", true).await.unwrap(), 2);
    assert_eq!(registry(&server).await, ["declared"]);
    assert_eq!(server.list().await, ["declared"]);
}
