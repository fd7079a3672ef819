//! The story: what agents see of tools that fail, say no and recover. Each chapter waits for what it tells.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::{
    super::Failure,
    api::{hidden, names, unmet, until},
    gateway,
    narration::Narrator,
    stage::{GRACE, INTERVAL, Stage, TTL},
    targets::{Mode, NO_REASON, Target},
};
use crate::{
    config,
    proto::v1::{ListAvailableToolsResponse, SchemaFormat, ToolStatus},
};

/// The tool of the search target.
const SEARCH: &str = "search_web";
/// The tool of the messages target.
const MESSAGES: &str = "send_message";
/// A name that OpenAI refuses.
const DOTTED: &str = "calendar.create_event";
/// The tool that the server itself offers.
const BUILT_IN: &str = "gateway_status";

/// Tells all chapters.
pub(super) async fn tell(stage: &mut Stage, narrator: &Narrator) -> Result<(), Failure> {
    let count = opening(stage, narrator).await?;
    the_list(stage, narrator).await?;
    errors(stage, narrator).await?;
    a_no(stage, narrator).await?;
    recovery(stage, narrator, count).await?;
    an_allowlist(stage, narrator).await?;
    gateway::chapter(stage, narrator, count).await?;
    narrator.event("The end.")
}

async fn opening(stage: &mut Stage, narrator: &Narrator) -> Result<usize, Failure> {
    narrator.chapter(
        "Toolpulse: agents see the tools that work now, and no others",
        &format!(
            "This is a real server with its store in {}, some small targets for its probes, and an owner who registers \
             tools. Probes run every {INTERVAL}; a result counts for {TTL}; a success outlives errors for {GRACE}. \
             (The defaults are 10s, 30s and 30s.)",
            stage.directory().display()
        ),
    )?;
    narrator
        .event(&format!("The server listens on {}, its admin port is {}.", stage.address, stage.admin))?;
    let registered = stage.register().await?;
    narrator.event(&format!(
        "{registered} tools are registered; six are probed over HTTP, gRPC and TCP, one gets its owner's reports, one \
         needs no probe."
    ))?;
    Ok(registered + 1)
}

async fn the_list(stage: &Stage, narrator: &Narrator) -> Result<(), Failure> {
    narrator.chapter(
        "1. What an agent sees",
        "ListAvailableTools answers with a finished `tools` array: it goes into the provider's SDK as it is. \
         gateway_status is the server's own, see chapter 6.",
    )?;
    let list = until("all tools passed their first probe", async || {
        let list = stage.api.list(SchemaFormat::Mcp, None).await?;
        let waiting: Vec<_> =
            list.hidden.iter().map(|t| format!("{} is hidden: {} {}", t.name, t.reason, t.message)).collect();
        if waiting.is_empty() { Ok(list) } else { Err(waiting.join(", ")) }
    })
    .await?;
    narrator.event(&format!("{} tools: {}", list.tools.len(), names(&list).join(", ")))?;
    if !names(&list).contains(&BUILT_IN) {
        return Err(unmet("the list has gateway_status", &names(&list).join(", ")));
    }
    narrator.explain("The first of them in MCP's form:")?;
    narrator.verbatim(&definition(&list, 0)?)?;

    let expected = "a list in OpenAI's form with the mapped name of calendar.create_event";
    let list = until(expected, async || stage.api.list(SchemaFormat::OpenaiChat, None).await).await?;
    let at = list.tools.iter().position(|tool| tool.name == DOTTED && tool.exposed_name != DOTTED);
    let at = at.ok_or_else(|| unmet(expected, &format!("the list is {}", names(&list).join(", "))))?;
    narrator.explain(&format!(
        "{DOTTED} in OpenAI's form, which has no dots in names; the agent gets both names:"
    ))?;
    narrator.verbatim(&definition(&list, at)?)
}

async fn errors(stage: &Stage, narrator: &Narrator) -> Result<(), Failure> {
    narrator.chapter(
        "2. A target fails: the last good result stands in, for a while",
        "An error says that we could not ask, not that the tool is gone. One lost packet must not take an agent's abilities \
         away; so the tool stays until the grace after its last success is over.",
    )?;
    stage.targets.set(Target::Search, Mode::Broken);
    narrator.event("The search service answers 503 from now on.")?;
    let status = until("search_web is served by its last success", async || {
        let status = stage.api.status(SEARCH).await?;
        let list = stage.api.list(SchemaFormat::Mcp, None).await?;
        match status.last_good && names(&list).contains(&SEARCH) {
            true => Ok(status),
            false => Err(told(&status)),
        }
    })
    .await?;
    narrator.event(&format!("{SEARCH} is still listed; its status says last_good, {}", told(&status)))?;

    let left = until("search_web leaves the list when the grace is over", async || {
        let list = stage.api.list(SchemaFormat::Mcp, None).await?;
        hidden(&list, SEARCH).cloned()
    })
    .await?;
    let held = held(&stage.api.status(SEARCH).await.map_err(Failure::Failed)?);
    let grace = config::duration(GRACE).map_err(Failure::Failed)?;
    if held < grace {
        return Err(unmet("search_web stays for the whole grace", &format!("it left after {held:.1?}")));
    }
    narrator.event(&format!(
        "{SEARCH} left the list by itself, {held:.1?} after its last success: {} ({})",
        left.reason, left.message
    ))
}

async fn a_no(stage: &Stage, narrator: &Narrator) -> Result<(), Failure> {
    narrator.chapter(
        "3. A target says no: its tool is gone at once",
        "Whoever answers `{\"available\": false, \"reason\": ...}`, a 4xx or NOT_SERVING knows what it says. There is no grace \
         after a no.",
    )?;
    stage.targets.set(Target::Messages, Mode::SaysNo);
    narrator.event("The messages service says no from now on.")?;
    let left = until("send_message leaves the list with the target's reason", async || {
        let list = stage.api.list(SchemaFormat::Mcp, None).await?;
        let left = hidden(&list, MESSAGES)?.clone();
        if left.message.contains(NO_REASON) { Ok(left) } else { Err(format!("it left: {}", left.message)) }
    })
    .await?;
    narrator
        .event(&format!("{MESSAGES} left the list with the next probe: {} ({})", left.reason, left.message))
}

async fn recovery(stage: &Stage, narrator: &Narrator, count: usize) -> Result<(), Failure> {
    narrator.chapter("4. Both recover", "One good answer is enough.")?;
    stage.targets.set(Target::Search, Mode::Works);
    stage.targets.set(Target::Messages, Mode::Works);
    narrator.event("Both services answer well again.")?;
    stage.all_listed(count).await?;
    narrator.event(&format!("{SEARCH} and {MESSAGES} are back: {count} tools."))
}

async fn an_allowlist(stage: &Stage, narrator: &Narrator) -> Result<(), Failure> {
    narrator.chapter(
        "5. An agent that may use some tools only",
        "A request may name the tools it wants (the server's own allowlist, ALLOWED_TOOLS, comes on top). A name that nobody \
         registered is told, so that a typo is not a silent loss.",
    )?;
    let allowed = ["query_database", "search_web", "send_mesage"];
    narrator.event(&format!("Allowed: {}", allowed.join(", ")))?;
    let list = until("the list is query_database and search_web, and send_mesage is unknown", async || {
        let list = stage.api.list(SchemaFormat::Mcp, Some(&allowed)).await?;
        match names(&list) == allowed[..2] && list.unknown_tools == allowed[2..] {
            true => Ok(list),
            false => Err(format!("{} and unknown {:?}", names(&list).join(", "), list.unknown_tools)),
        }
    })
    .await?;
    narrator.event(&format!("Listed: {}", names(&list).join(", ")))?;
    narrator.event(&format!("Unknown: {}", list.unknown_tools.join(", ")))
}

/// One definition of a list, indented.
fn definition(list: &ListAvailableToolsResponse, at: usize) -> Result<String, Failure> {
    let definitions: Vec<Value> = serde_json::from_str(&list.tools_json)
        .map_err(|e| Failure::Failed(format!("tools_json is not a list of definitions: {e}")))?;
    let definition = definitions.get(at).unwrap_or(&Value::Null);
    serde_json::to_string_pretty(definition).map_err(|e| Failure::Failed(e.to_string()))
}

/// A status in words.
fn told(status: &ToolStatus) -> String {
    match status.reason.as_str() {
        "" => format!("{} without a reason", status.verdict().as_str_name()),
        reason => format!("{reason} ({})", status.message),
    }
}

/// How long a tool stayed after its last success.
fn held(status: &ToolStatus) -> Duration {
    let time = |t: Option<prost_types::Timestamp>| t.and_then(|t| SystemTime::try_from(t).ok());
    let (success, left) = (time(status.last_success_time), time(status.since));
    success.zip(left).and_then(|(success, left)| left.duration_since(success).ok()).unwrap_or_default()
}
