//! Registration, beside SQLite taking the same bytes.

use std::path::Path;

use bytes::Bytes;
use prost::Message;
use rusqlite::{Connection, params};
use tokio::time::Instant;
use tonic::transport::Endpoint;
use toolpulse::{
    core::availability::Defaults,
    prober::{carry, egress},
    proto::v1,
    service::tools::{Judge, Manner},
};

use super::Run;
use crate::{
    children::{self, cores, pinned},
    raw::{call_to, client},
    table::{
        Line,
        Target::{AtMost, None},
        median,
    },
    tools,
};

const REGISTER: &str = "/toolpulse.v1.ToolRegistryService/RegisterTools";

pub(super) async fn register(run: &Run) -> Vec<Line> {
    let count = if run.effort.quick { 2_000 } else { 10_000 };
    let given = tools::given(count);
    let bytes: usize = given.iter().map(Message::encoded_len).sum();
    let batches = |validate_only| -> Vec<Bytes> {
        let batch = |tools: &[v1::ToolSpec]| {
            let request =
                v1::RegisterToolsRequest { tools: tools.to_vec(), validate_only, ..Default::default() };
            request.encode_to_vec().into()
        };
        given.chunks(tools::BATCH).map(batch).collect()
    };
    let (writes, judgements) = (batches(false), batches(true));
    let (mut ours, mut sqlite, mut judged) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..run.effort.rounds {
        let data = run.files.join(format!("register-{round}"));
        let server = children::toolpulse("sqlite", &data, Option::None).await;
        ours.push(send(server.address(), &writes).await);
        judged.push(send(server.address(), &judgements).await);
        drop(server);
        sqlite.push(insert_apart(&data.join("beside.db"), count).await);
        std::fs::remove_dir_all(&data).unwrap();
    }
    let what = format!("RegisterTools, {count} of {:.1} KB, durable", bytes as f64 / count as f64 / 1e3);
    vec![
        Line::ratio(
            what,
            "s",
            median(&ours),
            ("SQLite, same bytes and commits", median(&sqlite)),
            AtMost(2.0),
        ),
        Line::plain("all seven formats of the same judged", "s", median(&judged), None),
    ]
}

/// Calls one after the other; how long all took.
async fn send(address: &str, requests: &[Bytes]) -> f64 {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = client(&channel);
    let began = Instant::now();
    let mut replies = Vec::new();
    for request in requests {
        replies.push(call_to(&mut client, REGISTER, request).await);
    }
    let took = began.elapsed().as_secs_f64();
    for reply in replies {
        let reply = v1::RegisterToolsResponse::decode(reply).unwrap();
        let refused = reply.results.iter().find(|result| result.error.is_some());
        assert!(refused.is_none(), "a tool was refused: {refused:?}");
    }
    took
}

async fn insert_apart(file: &Path, count: usize) -> f64 {
    let mut command = pinned(cores().0, std::env::current_exe().unwrap());
    command.arg("insert").arg(file).arg(count.to_string());
    let output = tokio::process::Command::from(command).output().await.unwrap();
    assert!(output.status.success(), "the insertion failed: {}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// The other process: `insert FILE COUNT`. What it prints are the seconds that the insertion took.
pub(crate) fn insert(args: &[&str]) {
    let &[file, count] = args else { panic!("not an insertion: {args:?}") };
    let rows = rows(count.parse().unwrap());
    let mut conn = Connection::open(file).unwrap();
    conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
    conn.pragma_update(Option::None, "synchronous", "FULL").unwrap();
    conn.execute_batch(
        "CREATE TABLE tool (namespace TEXT NOT NULL, name TEXT NOT NULL, spec TEXT NOT NULL, spec_hash TEXT NOT NULL, \
         owner TEXT NOT NULL, generation INTEGER NOT NULL, create_time_ms INTEGER NOT NULL, \
         PRIMARY KEY (namespace, name)) STRICT",
    )
    .unwrap();
    let began = Instant::now();
    for (batch, rows) in rows.chunks(tools::BATCH).enumerate() {
        let tx = conn.transaction().unwrap();
        {
            let mut insert =
                tx.prepare("INSERT INTO tool VALUES ('default', ?1, ?2, ?3, 'anonymous', ?4, ?5)").unwrap();
            for (name, spec, hash) in rows {
                insert.execute(params![name, spec, hash, batch as i64, 1_700_000_000_000_i64]).unwrap();
            }
        }
        tx.commit().unwrap();
    }
    println!("{}", began.elapsed().as_secs_f64());
}

/// Name, spec and hash, as the registry stores them.
fn rows(count: usize) -> Vec<(String, String, String)> {
    let judge = Judge {
        defaults: Defaults::default(),
        egress: egress::Policy::default(),
        rules: carry::Rules::default(),
    };
    let row = |tool: v1::ToolSpec| {
        let registration = judge.spec(tool, &Manner::default()).unwrap();
        let spec = serde_json::to_string(&*registration.spec).unwrap();
        (registration.spec.name.to_string(), spec, registration.spec_hash.to_string())
    };
    tools::given(count).into_iter().map(row).collect()
}
