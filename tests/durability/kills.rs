//! SIGKILL at random points under several writers: what was answered OK is there afterwards, whatever else is whole.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinSet, time::sleep};
use tonic::{Code, transport::Channel};
use toolpulse::proto::v1::{
    RegisterResult, RegisterToolRequest, RegisterToolsRequest, Tool, ToolSpec, UnregisterToolsRequest,
    tool_registry_service_client::ToolRegistryServiceClient,
};

use crate::{
    get, list,
    support::{Server, server::clean_command},
};

/// Servers that are killed side by side, and how often each.
const LANES: usize = 2;
const KILLS: usize = 100;
const WRITERS: usize = 4;
/// Names of one writer: few, so that most writes change or remove what is there.
const NAMES: usize = 12;
const LONGEST_LIFE_MS: u64 = 120;

type Client = ToolRegistryServiceClient<Channel>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_ok_survives_two_hundred_kills() {
    let mut lanes = JoinSet::new();
    for _ in 0..LANES {
        lanes.spawn(lane());
    }
    let writes: u64 = lanes.join_all().await.into_iter().sum();
    assert!(writes > (LANES * KILLS) as u64, "only {writes} writes were answered OK: nothing was tested");
}

async fn lane() -> u64 {
    let mut server = Server::start(|_| {}).await;
    let mut writers: Vec<Writer> = (0..WRITERS).map(Writer::new).collect();
    let seen = Arc::new(Seen::default());
    let mut epochs = BTreeSet::new();
    for kill in 0..KILLS {
        let mut running = JoinSet::new();
        for writer in writers.drain(..) {
            running.spawn(writer.run(server.tools(), Arc::clone(&seen)));
        }
        sleep(Duration::from_millis(fastrand::u64(0..LONGEST_LIFE_MS))).await;
        server.kill9();
        writers.extend(running.join_all().await);
        server.start_again().await;

        let (mut tools, epoch, revision) = list(&server).await;
        assert!(epochs.insert(epoch), "kill {kill}: an epoch of before");
        let before = seen.revision.swap(revision, Ordering::SeqCst);
        assert!(revision > before, "kill {kill}: revision {revision} after {before}");
        writers.sort_by_key(|w| w.id);
        for writer in &mut writers {
            writer.compare(kill, &mut tools);
        }
        assert!(tools.is_empty(), "kill {kill}: nobody registered {:?}", tools.keys());
        seen.generation.fetch_max(
            writers.iter().flat_map(|w| w.known.values()).map(|k| k.generation).max().unwrap_or_default(),
            Ordering::SeqCst,
        );
        let known: Vec<_> = writers.iter().flat_map(|w| &w.known).collect();
        if let Some((name, known)) = fastrand::choice(known) {
            assert_eq!(Known::of(&get(&server, name).await), *known, "kill {kill}: GetTool of {name}");
        }
    }
    seen.writes.load(Ordering::SeqCst)
}

/// The highest numbers that any reply of this server had.
#[derive(Default)]
struct Seen {
    revision: AtomicU64,
    generation: AtomicU64,
    writes: AtomicU64,
}

/// One version of a tool.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    content: String,
    label: String,
    owner: String,
    generation: u64,
}

impl Known {
    fn of(tool: &Tool) -> Self {
        let spec = tool.spec.as_ref().unwrap();
        assert_eq!(spec.input_schema_json, schema(&spec.description), "one tool, two versions");
        Self {
            content: spec.description.clone(),
            label: spec.labels.get("version").cloned().unwrap_or_default(),
            owner: tool.owner.clone(),
            generation: tool.generation,
        }
    }
}

/// A write that was sent: for each of its names what it will be, or none where it removes.
#[derive(Clone, Debug)]
struct Write {
    kind: Kind,
    tools: BTreeMap<String, Option<(String, String)>>,
    /// No generation of before the write is above this.
    floor: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    One,
    Batch,
    Labels,
    /// A batch with a bad tool in it, all or nothing.
    Refused,
    Remove,
}

struct Writer {
    id: usize,
    owner: String,
    count: usize,
    known: BTreeMap<String, Known>,
    /// Sent, and not answered before the kill.
    open: Option<Write>,
}

impl Writer {
    fn new(id: usize) -> Self {
        Self { id, owner: format!("owner-{id}"), count: 0, known: BTreeMap::new(), open: None }
    }

    /// Writes, one write after the other, until the server is gone.
    async fn run(mut self, mut client: Client, seen: Arc<Seen>) -> Self {
        loop {
            let write = self.next(seen.generation.load(Ordering::SeqCst));
            self.open = Some(write.clone());
            match self.send(&mut client, &write).await {
                Ok((generations, revision)) => self.answered(&write, &generations, revision, &seen),
                Err(status) => {
                    // What a cut connection looks like; anything else would be the server's own refusal.
                    let cut = [Code::Unavailable, Code::Unknown, Code::Cancelled, Code::Internal];
                    assert!(cut.contains(&status.code()), "{write:?}: {status:?}");
                    assert_eq!(crate::reason(&status), "", "{write:?}: {status:?}");
                    return self;
                }
            }
        }
    }

    fn next(&mut self, floor: u64) -> Write {
        self.count += 1;
        let version = format!("{}-{}", self.id, self.count);
        let kind = *fastrand::choice(&[
            Kind::One,
            Kind::One,
            Kind::Batch,
            Kind::Batch,
            Kind::Labels,
            Kind::Refused,
            Kind::Remove,
        ])
        .unwrap();
        let many = fastrand::usize(2..=5);
        let names = match kind {
            Kind::One => self.names(1),
            Kind::Batch | Kind::Refused => self.names(many),
            Kind::Labels | Kind::Remove => fastrand::choose_multiple(self.known.keys().cloned(), many),
        };
        let tool = |name: &String| match (kind, self.known.get(name)) {
            (Kind::Remove, _) => None,
            (Kind::Labels, Some(known)) => Some((known.content.clone(), version.clone())),
            _ => Some((version.clone(), version.clone())),
        };
        Write { kind, tools: names.iter().map(|name| (name.clone(), tool(name))).collect(), floor }
    }

    fn names(&self, count: usize) -> Vec<String> {
        fastrand::choose_multiple((0..NAMES).map(|n| format!("tool-{}-{n}", self.id)), count)
    }

    /// The generation of each tool, and the reply's revision.
    async fn send(
        &self,
        client: &mut Client,
        write: &Write,
    ) -> Result<(HashMap<String, u64>, u64), tonic::Status> {
        let specs = write.tools.iter().filter_map(|(name, tool)| Some(spec(name, tool.as_ref()?)));
        let mut specs: Vec<ToolSpec> = specs.collect();
        match write.kind {
            Kind::One => {
                let request = RegisterToolRequest {
                    tool: specs.pop(),
                    owner: self.owner.clone(),
                    overwrite: true,
                    ..RegisterToolRequest::default()
                };
                let reply = client.register_tool(request).await?.into_inner();
                let tool = reply.tool.unwrap();
                Ok(([(tool.spec.unwrap().name, tool.generation)].into(), reply.revision))
            }
            Kind::Remove if !write.tools.is_empty() => {
                let request = UnregisterToolsRequest {
                    names: write.tools.keys().cloned().collect(),
                    owner: self.owner.clone(),
                    ..UnregisterToolsRequest::default()
                };
                let reply = client.unregister_tools(request).await?.into_inner();
                assert_eq!(reply.unregistered, write.tools.keys().cloned().collect::<Vec<_>>());
                Ok((HashMap::new(), reply.revision))
            }
            Kind::Remove => Ok((HashMap::new(), u64::MAX)),
            Kind::Batch | Kind::Labels | Kind::Refused => {
                if write.kind == Kind::Refused {
                    specs.push(ToolSpec { name: "not a name".into(), ..ToolSpec::default() });
                }
                let request = RegisterToolsRequest {
                    tools: specs,
                    owner: self.owner.clone(),
                    overwrite: true,
                    all_or_nothing: true,
                    ..RegisterToolsRequest::default()
                };
                let reply = client.register_tools(request).await?.into_inner();
                let rejected = reply.results.iter().all(|r| r.result() == RegisterResult::Rejected);
                let some = !reply.results.is_empty();
                assert_eq!(rejected && some, write.kind == Kind::Refused, "{write:?}: {:?}", reply.results);
                let generations = reply.results.into_iter().map(|r| (r.name, r.generation));
                Ok((generations.collect(), reply.revision))
            }
        }
    }

    fn answered(&mut self, write: &Write, generations: &HashMap<String, u64>, revision: u64, seen: &Seen) {
        self.open = None;
        if write.kind == Kind::Refused || write.tools.is_empty() {
            return;
        }
        seen.writes.fetch_add(1, Ordering::SeqCst);
        seen.revision.fetch_max(revision, Ordering::SeqCst);
        for (name, tool) in &write.tools {
            let Some((content, label)) = tool else {
                self.known.remove(name);
                continue;
            };
            let generation = generations[name];
            match self.known.get(name) {
                Some(known) if known.content == *content => assert_eq!(known.generation, generation),
                _ => assert!(generation > write.floor, "{name}: {generation} after {}", write.floor),
            }
            seen.generation.fetch_max(generation, Ordering::SeqCst);
            self.known.insert(name.clone(), self.version(content, label, generation));
        }
    }

    fn version(&self, content: &str, label: &str, generation: u64) -> Known {
        Known { content: content.into(), label: label.into(), owner: self.owner.clone(), generation }
    }

    /// Takes this writer's tools out of `tools`. They must be those that it knows of, with all of its open write or nothing of it.
    fn compare(&mut self, kill: usize, tools: &mut BTreeMap<String, Tool>) {
        let prefix = format!("tool-{}-", self.id);
        let names: Vec<String> = tools.keys().filter(|name| name.starts_with(&prefix)).cloned().collect();
        let found: BTreeMap<String, Known> =
            names.into_iter().map(|name| (name.clone(), Known::of(&tools.remove(&name).unwrap()))).collect();
        let open = self.open.take();
        if found != self.known {
            let write = open.filter(|w| w.kind != Kind::Refused);
            let Some(write) = write else {
                panic!("kill {kill}: acknowledged {:#?}, found {found:#?}", self.known)
            };
            let mut after = self.known.clone();
            for (name, tool) in &write.tools {
                let Some((content, label)) = tool else {
                    after.remove(name);
                    continue;
                };
                let generation = match (self.known.get(name), found.get(name)) {
                    (Some(known), _) if known.content == *content => known.generation,
                    (_, Some(found)) if found.generation > write.floor => found.generation,
                    _ => panic!("kill {kill}: neither {:#?} nor all of {write:?}: {found:#?}", self.known),
                };
                after.insert(name.clone(), self.version(content, label, generation));
            }
            assert_eq!(found, after, "kill {kill}: neither before nor after {write:?}");
        }
        self.known = found;
    }
}

fn spec(name: &str, (content, label): &(String, String)) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: content.clone(),
        input_schema_json: schema(content),
        labels: [("version".to_owned(), label.clone())].into(),
        ..ToolSpec::default()
    }
}

/// Several pages of text, so that a write is more than one page of the file.
fn schema(content: &str) -> String {
    format!(r#"{{"type":"object","title":"{}"}}"#, content.repeat(1000))
}

/// The first start creates the file and its schema; a kill in the middle of that must not need a person.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_that_was_killed_is_started_again() {
    for round in 0..20_u64 {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let mut command = clean_command();
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data-dir"]);
        let mut child = command.arg(&data).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        sleep(Duration::from_millis(round * 4 + fastrand::u64(0..4))).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let server = Server::start(|c| _ = c.data_dir(&data)).await;
        assert!(list(&server).await.0.is_empty());
    }
}
