//! `tools`: what agents see, what there is, and why.

mod one;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    Client, Failure,
    client::{self, CALL, request},
    explain, json, lint, print, register,
    selection::{AgentArgs, BudgetArgs},
    watch::WatchArgs,
};
use crate::{
    config::ClientSettings,
    proto::v1::{
        AvailableTool, ListAvailableToolsRequest, ListAvailableToolsResponse, ListToolsRequest, SchemaFormat,
        Tool, ToolStatus, UnregisterToolsRequest, Visibility,
    },
};

/// Tools on a page of ListTools: the most it gives.
const PAGE: i32 = 1_000;
/// Largest list of definitions: the most ListAvailableTools gives.
const MAX_LIST_BYTES: u32 = 64 << 20;
/// Characters of a description in a table.
pub(super) const SHORT: usize = 60;

pub(super) type ToolsArgs = Client<ToolsCommand>;

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools that work now and are allowed, as an agent sees them; or all of them
    List(ListArgs),
    /// Show one tool
    Get {
        /// The tool's name
        name: String,
        /// As this agent may know of it: not found where its policy, an allowlist or the operators' switch hides the tool
        #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
        agent: String,
    },
    /// Show the tools live: a table on a terminal, else a line for each change; until Ctrl-C
    Watch(WatchArgs),
    /// Register the tools of files
    Register(register::RegisterArgs),
    /// Judge the tools of files, and say what each provider would get, without a server; exit code 1 if one is rejected, or
    /// would be left out of a provider's list
    Lint(lint::LintArgs),
    /// Unregister tools; exit code 1 if one was not there, or is another owner's
    Unregister(UnregisterArgs),
    /// Find the tools that an agent may use now by words
    Search(explain::SearchArgs),
    /// Explain why an agent sees a tool or not; exit code 1 if it does not
    Explain(Box<explain::ExplainArgs>),
    /// Hide a tool from every agent, until it is enabled again
    Disable {
        /// The tool's name
        name: String,
        /// Why, for people: agents are told as well
        #[arg(long, default_value = "", hide_default_value = true)]
        message: String,
    },
    /// Show a tool again that was disabled
    Enable {
        /// The tool's name
        name: String,
    },
    /// Approve a tool's labels as they are now: agents' policies go by them from then on
    ApproveLabels {
        /// The tool's name
        name: String,
    },
    /// Probe a tool now; exit code 1 unless all its probes pass
    Probe {
        /// The tool's name
        name: String,
    },
}

/// Which tools to list, and how.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// All tools, available or not, with verdict and reason
    #[arg(long, conflicts_with_all = ["agent", "allowed", "format", "max_tools", "max_tokens", "visibility",
        "strict", "hidden", "definitions"])]
    pub all: bool,
    /// As whom.
    #[command(flatten)]
    pub who: AgentArgs,
    /// How much it may be.
    #[command(flatten)]
    pub budget: BudgetArgs,
    /// What becomes of tools that do not work now
    #[arg(long, value_enum, default_value_t = Seen::Hide)]
    pub visibility: Seen,
    /// Fail if the form can't say all of the tools as they were registered
    #[arg(long)]
    pub strict: bool,
    /// Also name the tools that are hidden, and why
    #[arg(long)]
    pub hidden: bool,
    /// Print just the array of definitions, byte for byte as an agent gets it
    #[arg(long, conflicts_with = "hidden")]
    pub definitions: bool,
}

/// Form of definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// MCP's tools/list
    Mcp,
    /// OpenAI's chat completions
    OpenaiChat,
    /// OpenAI's responses
    OpenaiResponses,
    /// Anthropic's messages
    Anthropic,
    /// Gemini with parametersJsonSchema
    Gemini,
    /// Gemini with parameters
    GeminiOpenapi,
    /// Bedrock's Converse
    Bedrock,
}

impl Format {
    /// As the wire has it.
    pub(super) fn to_proto(self) -> SchemaFormat {
        match self {
            Self::Mcp => SchemaFormat::Mcp,
            Self::OpenaiChat => SchemaFormat::OpenaiChat,
            Self::OpenaiResponses => SchemaFormat::OpenaiResponses,
            Self::Anthropic => SchemaFormat::Anthropic,
            Self::Gemini => SchemaFormat::Gemini,
            Self::GeminiOpenapi => SchemaFormat::GeminiOpenapi,
            Self::Bedrock => SchemaFormat::Bedrock,
        }
    }
}

/// What becomes of tools that do not work now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Seen {
    /// Left out
    Hide,
    /// Kept, beside a piece that names those that work
    Stable,
}

impl Seen {
    /// As the wire has it.
    pub(super) fn to_proto(self) -> Visibility {
        match self {
            Self::Hide => Visibility::Hide,
            Self::Stable => Visibility::Stable,
        }
    }
}

/// Which tools to unregister.
#[derive(Clone, Debug, Args)]
pub struct UnregisterArgs {
    /// Names
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Who asks
    #[arg(long, default_value = "", hide_default_value = true)]
    pub owner: String,
    /// Other owners' tools as well
    #[arg(long)]
    pub force: bool,
}

pub(super) async fn run(command: ToolsCommand, settings: &ClientSettings) -> Result<(), Failure> {
    match command {
        ToolsCommand::List(args) if args.all => list_all(&args.who.selector, settings).await,
        ToolsCommand::List(args) => list(args, settings).await,
        ToolsCommand::Get { name, agent } => one::get(name, agent, settings).await,
        ToolsCommand::Watch(args) => args.run(settings).await,
        ToolsCommand::Register(args) => register::run(args, settings).await,
        // It needs no server; the command line runs it.
        ToolsCommand::Lint(_) => Ok(()),
        ToolsCommand::Unregister(args) => unregister(args, settings).await,
        ToolsCommand::Search(args) => explain::search(args, settings).await,
        ToolsCommand::Explain(args) => explain::explain(*args, settings).await,
        ToolsCommand::Disable { name, message } => explain::switch(name, false, message, settings).await,
        ToolsCommand::Enable { name } => explain::switch(name, true, String::new(), settings).await,
        ToolsCommand::ApproveLabels { name } => explain::approve_labels(name, settings).await,
        ToolsCommand::Probe { name } => one::probe(name, settings).await,
    }
}

async fn list(args: ListArgs, settings: &ClientSettings) -> Result<(), Failure> {
    let message = ListAvailableToolsRequest {
        namespace: settings.namespace.to_string(),
        agent_id: args.who.agent.clone(),
        allowed_tools: args.who.allowed(),
        label_selector: args.who.selector.clone(),
        format: args.who.format(),
        visibility: args.visibility.to_proto().into(),
        max_tools: args.budget.max_tools,
        max_tokens: args.budget.max_tokens,
        include_hidden: args.hidden,
        strict: args.strict,
        max_reply_bytes: MAX_LIST_BYTES,
        ..Default::default()
    };
    let reply = client::tools(settings).await?.list_available_tools(request(message, CALL)).await;
    let reply = reply.map_err(|status| Failure::call(&status))?.into_inner();
    if args.definitions {
        print::line(&reply.tools_json)?;
    } else if settings.json {
        print::json(&available_json(&reply)?)?;
    } else {
        let rows = available_rows(&reply)?;
        if rows.is_empty() {
            explain::empty_list(&args.who, &args.budget, settings).await?;
        } else {
            print::table(&["NAME", "TOKENS", "ENDPOINT", "DESCRIPTION"], &rows)?;
        }
        if !reply.allowed_json.is_empty() {
            print::line(&format!("\nallowed now: {}", reply.allowed_json))?;
        }
        if args.hidden {
            let rows = hidden_rows(&reply);
            if !rows.is_empty() {
                print::line("")?;
            }
            let none = "no tool is hidden that the agent may know of";
            print::table_or(&["HIDDEN", "STAGE", "REASON", "MESSAGE"], &rows, none)?;
        }
    }
    if !reply.losses.is_empty() && !settings.json {
        let count = reply.losses.len();
        print::warn(&format!("this form can't say {count} things of the tools; --output json names them"));
    }
    if !reply.unknown_tools.is_empty() && !settings.json {
        print::warn(&format!("no registered tool has these names: {}", reply.unknown_tools.join(", ")));
    }
    Ok(())
}

/// One tool of the list; the definition is not touched, so that numbers stay as their author wrote them.
#[derive(Serialize)]
pub(super) struct Available<'a> {
    name: &'a str,
    exposed_name: &'a str,
    spec_hash: &'a str,
    token_estimate: u32,
    endpoint: &'a str,
    definition: &'a RawValue,
}

impl<'a> Available<'a> {
    pub(super) fn new(tool: &'a AvailableTool, definition: &'a RawValue) -> Self {
        Self {
            name: &tool.name,
            exposed_name: &tool.exposed_name,
            spec_hash: &tool.spec_hash,
            token_estimate: tool.token_estimate,
            endpoint: &tool.endpoint,
            definition,
        }
    }
}

#[derive(Serialize)]
struct AvailableList<'a> {
    tools: Vec<Available<'a>>,
    hidden: Vec<Value>,
    hidden_count: u32,
    losses: Vec<Value>,
    unknown_tools: &'a [String],
    allowed_json: &'a str,
    visibility_used: &'a str,
    etag: &'a str,
    max_age: Option<String>,
    token_estimate: u32,
    epoch: &'a str,
    revision: u64,
}

/// The definitions of a list, each apart. Gemini's stand together in one declaration.
fn definitions<'a, T: serde::Deserialize<'a>>(
    reply: &'a ListAvailableToolsResponse,
) -> Result<Vec<T>, Failure> {
    #[derive(serde::Deserialize)]
    struct Declaration<T> {
        #[serde(rename = "functionDeclarations")]
        functions: Vec<T>,
    }
    let wrong = |e| Failure::Failed(format!("the server's tools_json is not a JSON array: {e}"));
    let definitions: Vec<T> = if reply.tools_json.starts_with("[{\"functionDeclarations\"") {
        let all: Vec<Declaration<T>> = serde_json::from_str(&reply.tools_json).map_err(wrong)?;
        all.into_iter().flat_map(|declaration| declaration.functions).collect()
    } else {
        serde_json::from_str(&reply.tools_json).map_err(wrong)?
    };
    if definitions.len() == reply.tools.len() {
        return Ok(definitions);
    }
    Err(Failure::Failed(format!(
        "the server's tools_json holds {} tools where its list has {}",
        definitions.len(),
        reply.tools.len()
    )))
}

fn available_json(reply: &ListAvailableToolsResponse) -> Result<AvailableList<'_>, Failure> {
    let definitions = definitions::<&RawValue>(reply)?;
    let tools =
        reply.tools.iter().zip(definitions).map(|(tool, definition)| Available::new(tool, definition));
    Ok(AvailableList {
        tools: tools.collect(),
        hidden: reply.hidden.iter().map(json::hidden).collect(),
        hidden_count: reply.hidden_count,
        losses: reply.losses.iter().map(json::loss).collect(),
        unknown_tools: &reply.unknown_tools,
        allowed_json: &reply.allowed_json,
        visibility_used: reply.visibility_used().as_str_name(),
        etag: &reply.etag,
        max_age: reply.max_age.as_ref().map(ToString::to_string),
        token_estimate: reply.token_estimate,
        epoch: &reply.epoch,
        revision: reply.revision,
    })
}

fn available_rows(reply: &ListAvailableToolsResponse) -> Result<Vec<Vec<String>>, Failure> {
    let rows = reply.tools.iter().zip(definitions::<Value>(reply)?).map(|(tool, definition)| {
        let name = match tool.exposed_name == tool.name {
            true => tool.name.clone(),
            false => format!("{} ({})", tool.name, tool.exposed_name),
        };
        vec![
            name,
            tool.token_estimate.to_string(),
            tool.endpoint.clone(),
            print::short(description(&definition), SHORT),
        ]
    });
    Ok(rows.collect())
}

/// The description in a definition of any form.
pub(super) fn description(definition: &Value) -> &str {
    let inner = ["function", "toolSpec"].into_iter().find_map(|key| definition.get(key));
    inner.unwrap_or(definition).get("description").and_then(Value::as_str).unwrap_or_default()
}

fn hidden_rows(reply: &ListAvailableToolsResponse) -> Vec<Vec<String>> {
    let rows = reply.hidden.iter();
    let mut rows: Vec<Vec<String>> =
        rows.map(|h| vec![h.name.clone(), h.stage.clone(), h.reason.clone(), h.message.clone()]).collect();
    let more = (reply.hidden_count as usize).saturating_sub(rows.len());
    if more > 0 {
        rows.push(vec![format!("and {more} more"), String::new(), String::new(), String::new()]);
    }
    rows
}

async fn list_all(selector: &str, settings: &ClientSettings) -> Result<(), Failure> {
    let mut client = client::tools(settings).await?;
    let mut tools: Vec<Tool> = Vec::new();
    let mut page_token = String::new();
    let suspicion = loop {
        let namespace = settings.namespace.to_string();
        let label_selector = selector.to_owned();
        let message =
            ListToolsRequest { namespace, page_size: PAGE, page_token, label_selector, ..Default::default() };
        let page = client.list_tools(request(message, CALL)).await;
        let page = page.map_err(|status| Failure::call(&status))?.into_inner();
        tools.extend(page.tools);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break page.prober_suspicion;
        }
    };
    one::warn_of(&suspicion);
    if settings.json {
        return print::json(&json!({"tools": tools.iter().map(json::tool).collect::<Vec<_>>()}));
    }
    let none = match selector {
        "" => format!("no tools in namespace '{}'", settings.namespace),
        selector => format!("no tools with labels {selector} in namespace '{}'", settings.namespace),
    };
    print::table_or(&["NAME", "VERDICT", "REASON", "SINCE", "OWNER", "MESSAGE"], &status_rows(&tools), &none)
}

fn status_rows(tools: &[Tool]) -> Vec<Vec<String>> {
    let rows = tools.iter().map(|tool| {
        let name = tool.spec.as_ref().map(|s| s.name.clone()).unwrap_or_default();
        let status = tool.status.clone().unwrap_or_default();
        let since = print::time(status.since.as_ref());
        vec![name, verdict(&status), status.reason, since, tool.owner.clone(), status.message]
    });
    rows.collect()
}

pub(super) fn verdict(status: &ToolStatus) -> String {
    let name = json::verdict(status.verdict).trim_start_matches("VERDICT_");
    let marks = [
        (!status.enabled, "disabled"),
        (status.enabled && status.last_good, "last good"),
        (status.flapping, "flapping"),
    ];
    let marks: Vec<&str> = marks.into_iter().filter_map(|(is, mark)| is.then_some(mark)).collect();
    if marks.is_empty() { name.to_owned() } else { format!("{name} ({})", marks.join(", ")) }
}

async fn unregister(args: UnregisterArgs, settings: &ClientSettings) -> Result<(), Failure> {
    let message = UnregisterToolsRequest {
        namespace: settings.namespace.to_string(),
        names: args.names,
        owner: args.owner,
        force: args.force,
    };
    let reply = client::tools(settings).await?.unregister_tools(request(message, CALL)).await;
    let reply = reply.map_err(|status| Failure::call(&status))?.into_inner();
    if settings.json {
        print::json(&json!({
            "unregistered": reply.unregistered,
            "not_found": reply.not_found,
            "denied": reply.denied,
            "epoch": reply.epoch,
            "revision": reply.revision,
        }))?;
    } else {
        let groups = [
            ("unregistered", &reply.unregistered),
            ("not found", &reply.not_found),
            ("denied", &reply.denied),
        ];
        let rows = groups
            .into_iter()
            .flat_map(|(what, names)| names.iter().map(move |n| vec![n.clone(), what.to_owned()]));
        print::table(&["NAME", "RESULT"], &rows.collect::<Vec<_>>())?;
    }
    if reply.not_found.is_empty() && reply.denied.is_empty() { Ok(()) } else { Err(Failure::Silent(1)) }
}
