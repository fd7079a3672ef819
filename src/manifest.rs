//! The manifest: a file of declared tools, read once at start and followed on change.
//!
//! It is only taken apart here. Whether a spec is valid is judged where every other spec is, at registration.

mod carry;
mod file;
mod follow;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;
use std::path::Path;

pub use self::follow::{Event, Follower, POLL};
use crate::{config::yaml::Fault, core::name::quote, proto::v1::ToolSpec};

/// The owner of a manifest that names none.
pub const DEFAULT_OWNER: &str = "manifest";
/// Largest file; 10,000 tools of the largest kind seen are less.
pub const MAX_BYTES: u64 = 64 << 20;

/// A parsed file of tools.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Who registers the tools.
    pub owner: String,
    /// Namespace and spec of each tool, in the file's order. No namespace has a name twice.
    pub tools: Vec<(String, ToolSpec)>,
    /// The line of each tool, where the file's form tells it; may be shorter than `tools`.
    pub lines: Vec<Option<u64>>,
}

/// What a file leaves out.
#[derive(Clone, Copy, Debug)]
pub struct Defaults<'a> {
    /// The owner, where the file names none.
    pub owner: &'a str,
    /// The namespace, where neither tool nor file name one.
    pub namespace: &'a str,
}

impl Default for Defaults<'_> {
    fn default() -> Self {
        Self { owner: DEFAULT_OWNER, namespace: crate::core::name::DEFAULT_NAMESPACE }
    }
}

/// A file of tools can't be read, or is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Manifest {
    /// Parses YAML or JSON. `name` stands for the text in errors, which say the line: `tools.yaml line 3: ...`.
    ///
    /// # Errors
    /// The first thing that is wrong, and where.
    pub fn parse(name: &str, text: &str, defaults: Defaults<'_>) -> Result<Self, Error> {
        file::parse(text, defaults).map_err(|fault| Error(fault.in_file(name)))
    }
}

/// Reads a file, and makes the follower that goes on from exactly this content.
///
/// # Errors
/// The file can't be read or is wrong.
pub fn load(path: &Path) -> Result<(Manifest, Follower), Error> {
    let shown = path.display().to_string();
    let bytes = read(path).map_err(Error)?;
    let manifest = decode(&shown, &bytes)?;
    Ok((manifest, Follower::after(path, &bytes)))
}

/// The whole content of a file, or what is wrong with it.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let cannot = |e: std::io::Error| format!("cannot read {shown}: {e}");
    let mut bytes = Vec::new();
    File::open(path).map_err(cannot)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("{shown} is larger than {} MiB", MAX_BYTES >> 20));
    }
    Ok(bytes)
}

fn decode(name: &str, bytes: &[u8]) -> Result<Manifest, Error> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let line = 1 + bytes[..e.valid_up_to()].iter().filter(|b| **b == b'\n').count() as u64;
        Error(Fault { line: Some(line), message: "not valid UTF-8".to_owned() }.in_file(name))
    })?;
    Manifest::parse(name, text, Defaults::default())
}

/// A name that is there twice.
fn twice(namespace: &str, name: &str) -> String {
    format!("tool {} of namespace {}", quote(name), quote(namespace))
}
