//! `tools register`: files of tools to the server, in requests that fit.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use prost::Message;
use serde_json::json;

use super::{
    Failure,
    client::{self, CALL, request},
    definitions,
    failure::describe,
    json, print,
};
use crate::{
    config::{self, ClientSettings},
    manifest::{Defaults, MAX_BYTES},
    proto::v1::{
        McpProbe, ProbeSpec, RegisterResult, RegisterToolResult, RegisterToolsRequest, ToolSpec,
        probe_spec::Kind,
    },
};

/// Tools in one request: the most it may hold.
const MAX_TOOLS: usize = 10_000;
/// Bytes in one request: any server's limit is above.
const MAX_REQUEST: usize = 3 << 20;
/// The longest wait that the server takes.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// What to register, and how.
#[derive(Clone, Debug, Args)]
pub struct RegisterArgs {
    /// YAML or JSON in the manifest's form, or a tools/list result of MCP; - for stdin
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Replace tools of the same name and another spec
    #[arg(long)]
    pub overwrite: bool,
    /// With --overwrite: other owners' tools as well
    #[arg(long)]
    pub force: bool,
    /// Who registers; else the file's owner
    #[arg(long)]
    pub owner: Option<String>,
    /// Give each tool without a probe one that asks this MCP server (Streamable HTTP)
    #[arg(long, value_name = "URL")]
    pub mcp: Option<String>,
    /// Only judge, change nothing
    #[arg(long)]
    pub validate_only: bool,
    /// Wait for the first results of the probes, at most this long
    #[arg(long, value_name = "DURATION", value_parser = wait)]
    pub wait: Option<Duration>,
    /// Register none if one is rejected
    #[arg(long)]
    pub all_or_nothing: bool,
}

fn wait(text: &str) -> Result<Duration, String> {
    let wait = config::duration(text)?;
    if wait <= MAX_WAIT { Ok(wait) } else { Err("at most 60s".to_owned()) }
}

/// The tools of one request.
#[derive(Debug, PartialEq)]
struct Batch {
    namespace: String,
    owner: String,
    tools: Vec<ToolSpec>,
}

pub(super) async fn run(args: RegisterArgs, settings: &ClientSettings) -> Result<(), Failure> {
    let mut given = Vec::new();
    for file in &args.files {
        given.extend(read(file, args.owner.as_deref(), settings)?);
    }
    if let Some(url) = &args.mcp {
        probe(given.iter_mut().map(|(_, _, spec)| spec), url);
    }
    let batches = if args.all_or_nothing { whole(given)? } else { split(given) };
    let mut client = client::tools(settings).await?;
    let wait = args.wait.unwrap_or_default();
    let mut results: Vec<(String, RegisterToolResult)> = Vec::new();
    for batch in batches {
        let message = RegisterToolsRequest {
            namespace: batch.namespace.clone(),
            tools: batch.tools,
            overwrite: args.overwrite,
            force: args.force,
            owner: batch.owner,
            validate_only: args.validate_only,
            wait_for_probe: args.wait.and_then(|wait| wait.try_into().ok()),
            all_or_nothing: args.all_or_nothing,
        };
        let reply = client.register_tools(request(message, CALL + wait)).await;
        match reply {
            Ok(reply) => {
                results.extend(reply.into_inner().results.into_iter().map(|r| (batch.namespace.clone(), r)));
            }
            Err(status) => {
                // What was registered before stays, so it has to be told.
                print_results(&results, settings)?;
                return Err(Failure::call(&status));
            }
        }
    }
    print_results(&results, settings)?;
    let rejected = results.iter().any(|(_, r)| r.result() == RegisterResult::Rejected);
    if rejected { Err(Failure::Silent(1)) } else { Ok(()) }
}

/// The tools of a file: namespace, owner, spec.
pub(super) fn read(
    file: &Path,
    owner: Option<&str>,
    settings: &ClientSettings,
) -> Result<Vec<(String, String, ToolSpec)>, Failure> {
    let stdin = file == Path::new("-");
    let name = if stdin { "stdin".to_owned() } else { file.display().to_string() };
    let mut text = String::new();
    let done = if stdin {
        io::stdin().lock().take(MAX_BYTES + 1).read_to_string(&mut text)
    } else {
        fs::File::open(file).and_then(|f| f.take(MAX_BYTES + 1).read_to_string(&mut text))
    };
    done.map_err(|e| Failure::Failed(format!("cannot read {name}: {e}")))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Failure::Failed(format!("{name} is larger than {} MiB", MAX_BYTES >> 20)));
    }
    let defaults = Defaults { owner: "", namespace: settings.namespace.as_str() };
    let manifest = definitions::parse(&name, &text, defaults).map_err(Failure::Failed)?;
    let owner = owner.map_or(manifest.owner, str::to_owned);
    Ok(manifest.tools.into_iter().map(|(namespace, spec)| (namespace, owner.clone(), spec)).collect())
}

/// Adds an MCP probe where there is none.
fn probe<'a>(tools: impl Iterator<Item = &'a mut ToolSpec>, url: &str) {
    for tool in tools.filter(|tool| tool.probes.is_empty()) {
        let kind = Kind::Mcp(McpProbe { url: url.to_owned(), ..McpProbe::default() });
        tool.probes.push(ProbeSpec { kind: Some(kind), ..ProbeSpec::default() });
    }
}

/// One request, or an error where that can't be.
fn whole(given: Vec<(String, String, ToolSpec)>) -> Result<Vec<Batch>, Failure> {
    let mut batches: Vec<Batch> = Vec::new();
    for (namespace, owner, spec) in given {
        match batches.first_mut() {
            None => batches.push(Batch { namespace, owner, tools: vec![spec] }),
            Some(batch) if batch.namespace == namespace && batch.owner == owner => batch.tools.push(spec),
            Some(_) => {
                let text = "--all-or-nothing takes tools of one namespace and one owner only";
                return Err(Failure::Usage(text.to_owned()));
            }
        }
    }
    Ok(batches)
}

/// Requests that fit, each of one namespace and one owner, in the files' order.
fn split(given: Vec<(String, String, ToolSpec)>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut bytes = 0;
    for (namespace, owner, spec) in given {
        let size = spec.encoded_len();
        let fits = |b: &Batch| {
            b.namespace == namespace
                && b.owner == owner
                && b.tools.len() < MAX_TOOLS
                && bytes + size <= MAX_REQUEST
        };
        match batches.last_mut().filter(|b| fits(b)) {
            Some(batch) => {
                batch.tools.push(spec);
                bytes += size;
            }
            None => {
                batches.push(Batch { namespace, owner, tools: vec![spec] });
                bytes = size;
            }
        }
    }
    batches
}

fn print_results(results: &[(String, RegisterToolResult)], settings: &ClientSettings) -> Result<(), Failure> {
    if settings.json {
        let results: Vec<_> = results.iter().map(|(namespace, r)| json::registered(namespace, r)).collect();
        return print::json(&json!({"results": results}));
    }
    for (_, result) in results {
        for warning in &result.warnings {
            let (name, place) = (&result.name, &warning.pointer);
            print::warn(&format!("{name}: {place}: {} ({})", warning.message, warning.code));
        }
    }
    let rows: Vec<Vec<String>> = results.iter().map(|(namespace, r)| row(namespace, r)).collect();
    print::table(&["NAMESPACE", "NAME", "RESULT", "GENERATION", "VERDICT", "ERROR"], &rows)
}

fn row(namespace: &str, r: &RegisterToolResult) -> Vec<String> {
    let known = r.generation > 0;
    let verdict = json::verdict(r.verdict).trim_start_matches("VERDICT_");
    vec![
        namespace.to_owned(),
        r.name.clone(),
        json::result(r.result).trim_start_matches("REGISTER_RESULT_").to_owned(),
        if known { r.generation.to_string() } else { String::new() },
        if known { verdict.to_owned() } else { String::new() },
        r.error.as_ref().map(|e| describe(&json::rejection(e))).unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use tonic_types::{ErrorDetails, StatusExt};

    use super::*;
    use crate::proto::v1::Verdict;

    fn tool(namespace: &str, owner: &str, name: &str, bytes: usize) -> (String, String, ToolSpec) {
        let spec = ToolSpec { name: name.to_owned(), description: "x".repeat(bytes), ..Default::default() };
        (namespace.to_owned(), owner.to_owned(), spec)
    }

    #[test]
    fn requests_fit() {
        let given = vec![
            tool("a", "o", "1", 10),
            tool("a", "o", "2", 2 << 20),
            tool("a", "o", "3", 2 << 20),
            tool("a", "p", "4", 10),
            tool("b", "p", "5", 10),
        ];
        let names = |batch: &Batch| batch.tools.iter().map(|t| t.name.clone()).collect::<String>();
        let batches = split(given.clone());
        assert_eq!(batches.iter().map(names).collect::<Vec<_>>(), ["12", "3", "4", "5"]);
        assert!(matches!(whole(given.clone()), Err(Failure::Usage(_))));
        assert_eq!(whole(given[..3].to_vec()).unwrap().iter().map(names).collect::<Vec<_>>(), ["123"]);
        let many = (0..MAX_TOOLS + 1).map(|n| tool("a", "o", &n.to_string(), 0)).collect();
        assert_eq!(split(many).iter().map(|b| b.tools.len()).collect::<Vec<_>>(), [MAX_TOOLS, 1]);
    }

    #[test]
    fn rejections_are_told_with_their_details() {
        let mut details = ErrorDetails::with_error_info("ALREADY_EXISTS", "toolpulse.dev", []);
        details.add_bad_request_violation("tool.name", "taken");
        let status = tonic::Status::with_error_details(Code::AlreadyExists, "no", details);
        let error: tonic_types::Status = Message::decode(status.details()).unwrap();
        let rejected = RegisterToolResult {
            name: "a".to_owned(),
            result: RegisterResult::Rejected.into(),
            error: Some(error),
            ..Default::default()
        };
        let text = "no; tool.name: taken (ALREADY_EXISTS, ALREADY_EXISTS)";
        assert_eq!(row("default", &rejected), ["default", "a", "REJECTED", "", "", text]);
        let created = RegisterToolResult {
            name: "a".to_owned(),
            result: RegisterResult::Created.into(),
            generation: 7,
            verdict: Verdict::Pending.into(),
            ..Default::default()
        };
        assert_eq!(row("default", &created), ["default", "a", "CREATED", "7", "PENDING", ""]);
    }

    #[test]
    fn the_flag_probes_only_what_has_no_probe() {
        let report = ProbeSpec { name: "own".to_owned(), ..ProbeSpec::default() };
        let mut tools =
            [ToolSpec::default(), ToolSpec { probes: vec![report.clone()], ..Default::default() }];
        probe(tools.iter_mut(), "http://h/mcp");
        let [ProbeSpec { kind: Some(Kind::Mcp(mcp)), .. }] = tools[0].probes.as_slice() else {
            panic!("{:?}", tools[0].probes)
        };
        assert_eq!(mcp.url, "http://h/mcp");
        assert_eq!(tools[1].probes, [report]);
    }

    #[test]
    fn waits() {
        assert_eq!(wait("10s"), Ok(Duration::from_secs(10)));
        assert!(wait("10").unwrap_err().contains("write 10s"));
        assert!(wait("2m").is_err());
    }
}
