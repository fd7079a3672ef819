//! The rows of the table: each starts what it needs, measures, and ends it.

use std::path::PathBuf;

use bytes::Bytes;
use prost::Message;

use super::{
    children::{self, Child, own},
    contest::{Contender, Effort},
    load::Load,
    table::Line,
    tools,
};

mod busy;
mod counts;
mod flips;
mod reads;
mod size;
mod writes;

pub(crate) use self::writes::insert;

/// The rows' names, in the order of the table.
pub(crate) const NAMES: [&str; 15] = [
    "warm",
    "not-modified",
    "cold",
    "all",
    "large",
    "get",
    "explain",
    "flips",
    "probes",
    "register",
    "publish",
    "memory",
    "start",
    "size",
    "instructions",
];

/// What all rows share.
pub(crate) struct Run {
    pub(crate) files: PathBuf,
    pub(crate) effort: Effort,
}

impl Run {
    /// The lines of a row.
    pub(crate) async fn row(&self, name: &str) -> Vec<Line> {
        match name {
            "warm" => reads::warm(self).await,
            "not-modified" => reads::not_modified(self).await,
            "cold" => reads::cold(self).await,
            "all" => reads::all(self).await,
            "large" => reads::large(self).await,
            "get" => reads::get(self).await,
            "explain" => reads::explain(self).await,
            "flips" => busy::flips(self).await,
            "probes" => busy::probes(self).await,
            "register" => writes::register(self).await,
            "publish" => flips::publish(self).await,
            "memory" => size::memory(self).await,
            "start" => size::start(self).await,
            "size" => size::size(self).await,
            "instructions" => counts::instructions(self).await,
            _ => panic!("no such row: {name}"),
        }
    }

    /// A server with so many tools, its store in memory.
    async fn with_tools(&self, count: usize) -> Child {
        let server = children::toolpulse("memory", &self.files.join("unused"), None).await;
        tools::register(server.address(), count).await;
        server
    }

    /// The real binary, asked one thing.
    fn ours(&self, server: &Child, method: &'static str, request: &impl Message) -> Contender {
        Contender { server: server.clone(), load: Load::new(server.address(), method, request, &self.files) }
    }

    /// A server that hands out the bytes of one reply.
    async fn bare(&self, reply: &[u8], method: &'static str, request: &impl Message) -> Contender {
        self.fixed("serve-bare", reply, method, request).await
    }

    /// A server that encodes the message of one reply each time; of lists alone.
    async fn plain(&self, reply: &Bytes, method: &'static str, request: &impl Message) -> Contender {
        self.fixed("serve-plain", reply, method, request).await
    }

    async fn fixed(
        &self,
        kind: &str,
        reply: &[u8],
        method: &'static str,
        request: &impl Message,
    ) -> Contender {
        let file = self.files.join("reply");
        std::fs::write(&file, reply).unwrap();
        let server = own(&[kind, file.to_str().unwrap()], None).await;
        let load = Load::new(server.address(), method, request, &self.files);
        Contender { server, load }
    }
}
