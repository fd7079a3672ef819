//! A spec from a reply, registered again: what the reply hides stays as it was, and goes nowhere else.

use tonic::Code;
use toolpulse::proto::v1::{
    HttpMethod, HttpProbe, McpProbe, ProbeBody, ProbeHeader, ProbeSpec, RegisterResult, RegisterToolRequest,
    RegisterToolsRequest, ToolSpec, Verdict, probe_body, probe_header::Content, probe_spec::Kind,
};

use crate::support::{
    inproc::{InProc, probed},
    targets::{Answer, HttpTarget},
};

fn header(name: &str, value: &str) -> ProbeHeader {
    ProbeHeader { name: name.into(), content: Some(Content::Value(value.into())) }
}

fn secretive(target: &HttpTarget) -> ToolSpec {
    let post = HttpProbe {
        url: target.url("/post?token=s3cret"),
        method: HttpMethod::Post.into(),
        headers: vec![header("x-b", "s3cret"), header("x-a", "s3cret")],
        body: Some(ProbeBody { content: Some(probe_body::Content::Text("s3cret".into())) }),
        ..Default::default()
    };
    let mcp = McpProbe {
        url: target.url("/mcp?token=s3cret"),
        headers: vec![header("authorization", "s3cret")],
        ..Default::default()
    };
    let of = |name: &str, kind| ProbeSpec { name: name.into(), kind: Some(kind) };
    ToolSpec { probes: vec![of("post", Kind::Http(post)), of("mcp", Kind::Mcp(mcp))], ..probed("t", []) }
}

/// The spec as a reply shows it.
async fn shown(server: &InProc) -> ToolSpec {
    let spec = server.get("t").await.spec.unwrap();
    let Some(Kind::Http(post)) = &spec.probes[0].kind else { panic!("{spec:?}") };
    assert!(post.url.ends_with("/post?\u{2026}") && post.headers[0].content == Some(Content::Hidden(true)));
    spec
}

async fn again(server: &InProc, tool: ToolSpec, owner: &str) -> Result<RegisterResult, tonic::Status> {
    let request = RegisterToolRequest {
        tool: Some(tool),
        owner: owner.into(),
        overwrite: true,
        force: true,
        ..Default::default()
    };
    server.try_register(request).await.map(|reply| reply.result())
}

#[tokio::test(start_paused = true)]
async fn an_owner_registers_again_what_a_reply_shows_and_nothing_hidden_goes_elsewhere() {
    let server = InProc::start().await;
    let target = HttpTarget::start(Answer::Status(200)).await;
    let other = HttpTarget::start(Answer::Status(200)).await;
    assert_eq!(again(&server, secretive(&target), "me").await.unwrap(), RegisterResult::Created);
    let spec = shown(&server).await;
    assert_eq!(again(&server, spec.clone(), "me").await.unwrap(), RegisterResult::Unchanged);

    // What is around the probes may change; with or without them in their order; one by one or in a batch.
    let mut changed = ToolSpec { description: "new".into(), ..spec.clone() };
    changed.probes.reverse();
    assert_eq!(again(&server, changed, "me").await.unwrap(), RegisterResult::Replaced);
    let batch = RegisterToolsRequest {
        tools: vec![ToolSpec { description: "newer".into(), ..spec.clone() }],
        owner: "me".into(),
        overwrite: true,
        ..Default::default()
    };
    let reply = server.tools().register_tools(batch).await.unwrap().into_inner();
    assert_eq!(reply.results[0].result(), RegisterResult::Replaced);
    // The probes carry what they carried: it is the same spec as the one with all its values.
    let whole = ToolSpec { description: "newer".into(), ..secretive(&target) };
    assert_eq!(again(&server, whole, "me").await.unwrap(), RegisterResult::Unchanged);
    assert_eq!(server.probe("t").await.unwrap().status.unwrap().probes[0].verdict(), Verdict::Available);

    // Any other place, method, header, name or owner: what is hidden has to be written again.
    type Change<'a> = &'a dyn Fn(&mut HttpProbe);
    let elsewhere = other.url("/post?\u{2026}");
    let changes: [Change<'_>; 7] = [
        &|p| p.url = elsewhere.clone(),
        &|p| p.url = p.url.replace("/post", "/echo"),
        &|p| p.url = p.url.replace("http://", "https://"),
        &|p| p.headers[0].name = "x-echo".into(),
        &|p| p.headers.swap(0, 1),
        &|p| p.expected_statuses = vec![404],
        &|p| p.method = HttpMethod::Get.into(),
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut spec = spec.clone();
        let Some(Kind::Http(post)) = &mut spec.probes[0].kind else { panic!() };
        change(post);
        let refused = again(&server, spec, "me").await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{i}");
        assert!(refused.message().contains("write the"), "{i}: {refused:?}");
        assert!(!format!("{refused:?}").contains("s3cret"), "{i}: {refused:?}");
    }
    let mut renamed = spec.clone();
    renamed.probes[0].name = "else".into();
    for (spec, owner) in
        [(renamed, "me"), (spec.clone(), "you"), (ToolSpec { name: "u".into(), ..spec.clone() }, "me")]
    {
        assert_eq!(again(&server, spec, owner).await.unwrap_err().code(), Code::InvalidArgument, "{owner}");
    }
    assert_eq!(other.hits(), 0);
}
