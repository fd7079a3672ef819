//! The secrets that an operator mounts: a directory of files, each with a rule that says to which hosts it may go.
//!
//! Owners name secrets and choose targets, so a name alone must not be enough: anybody could have any secret sent to a host
//! of theirs. `NAME` goes only where a line of `NAME.hosts` says: `api.example`, `*.tools.internal`, `10.0.0.7`, each with
//! or without `:port` (an IPv6 address in brackets). To a line's host it goes through TLS only, unless the line begins with
//! `http://`. No rule, no host.
//!
//! Files are read anew for each run, so a change counts at once, however it was made: Kubernetes swaps a symbolic link.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::Semaphore;

use crate::core::probe::{RULE_SUFFIX, Secret, SecretName};

/// The setting that names the directory.
pub const SECRETS_SETTING: &str = "TOOLPULSE_SECRETS_DIR";
/// Largest file: a chain of certificates is smaller.
pub const MAX_FILE: usize = 64 * 1024;
/// Reads at once: each holds a thread while a mounted directory hangs.
const MAX_READS: usize = 16;

/// A directory of secrets, or none. Copies are cheap.
#[derive(Clone, Debug)]
pub struct Secrets {
    dir: Option<Arc<Path>>,
    reads: Arc<Semaphore>,
}

/// Whom a secret would be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audience {
    /// The hosts that the peer is taken for: the target's, and the name that its certificate is verified for.
    pub hosts: Vec<String>,
    /// The target's port.
    pub port: u16,
    /// Whether the peer is verified, and nobody between can read.
    pub encrypted: bool,
}

impl Default for Secrets {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Secrets {
    /// The secrets of a directory; none: no secret can be used.
    pub fn new(dir: Option<PathBuf>) -> Self {
        Self { dir: dir.map(Arc::from), reads: Arc::new(Semaphore::new(MAX_READS)) }
    }

    /// Whether there is a directory.
    pub fn are_there(&self) -> bool {
        self.dir.is_some()
    }

    /// What a secret says, if it may be told to an audience; none: to anybody, as a client's certificate is.
    ///
    /// # Errors
    /// Why it can't be used. A secret that is not there and one that is not for this audience look alike.
    pub async fn get(&self, name: &SecretName, audience: Option<&Audience>) -> Result<Secret, String> {
        let Some(dir) = self.dir.clone() else {
            return Err(format!("secret '{name}' can't be used: {SECRETS_SETTING} is not set"));
        };
        let permit = self.reads.clone().acquire_owned().await.map_err(|_| broken(name))?;
        let (name, audience) = (name.clone(), audience.cloned());
        let read = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read(&dir, &name, audience.as_ref())
        });
        read.await.unwrap_or_else(|_| Err("a secret could not be read".to_owned()))
    }
}

fn read(dir: &Path, name: &SecretName, audience: Option<&Audience>) -> Result<Secret, String> {
    if let Some(audience) = audience {
        // The rule first: without one, nothing is opened.
        let rule = content(dir, &format!("{name}{RULE_SUFFIX}")).map_err(|_| refused(name, audience))?;
        if !audience.hosts.iter().all(|host| permits(&rule, host, audience)) {
            return Err(refused(name, audience));
        }
    }
    let text = content(dir, name.as_str()).map_err(|why| match (why, audience) {
        (Unreadable::Absent, Some(audience)) => refused(name, audience),
        (Unreadable::Absent, None) => format!("secret '{name}' is not in {SECRETS_SETTING}"),
        (Unreadable::Wrong(what), _) => format!("secret '{name}' {what}"),
    })?;
    let text = text.strip_suffix('\n').map_or(text.as_str(), |t| t.strip_suffix('\r').unwrap_or(t));
    if text.is_empty() {
        return Err(format!("secret '{name}' is empty"));
    }
    Ok(Secret::new(text))
}

/// Why a file gives no text. Neither says anything of its content or its place.
enum Unreadable {
    Absent,
    Wrong(&'static str),
}

fn content(dir: &Path, file: &str) -> Result<String, Unreadable> {
    let of = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Unreadable::Absent,
        io::ErrorKind::PermissionDenied => Unreadable::Wrong("can't be read: permission denied"),
        _ => Unreadable::Wrong("can't be read"),
    };
    let path = dir.join(file);
    // Looked at before it is opened: to open a pipe would wait for its writer.
    if !path.metadata().map_err(of)?.is_file() {
        return Err(Unreadable::Wrong("is not a file"));
    }
    let mut bytes = Vec::new();
    File::open(&path).map_err(of)?.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes).map_err(of)?;
    if bytes.len() > MAX_FILE {
        return Err(Unreadable::Wrong("is larger than 64 KiB"));
    }
    String::from_utf8(bytes).map_err(|_| Unreadable::Wrong("is not a text"))
}

/// Whether a line of a rule names the host. What is no entry names nobody.
fn permits(rule: &str, host: &str, audience: &Audience) -> bool {
    let lines = rule.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.into_iter().any(|line| {
        let (entry, plain) = match line.strip_prefix("http://") {
            Some(entry) => (entry, true),
            None => (line.strip_prefix("https://").unwrap_or(line), false),
        };
        (plain || audience.encrypted) && super::egress::names_host(entry, host, audience.port)
    })
}

fn refused(name: &SecretName, audience: &Audience) -> String {
    let host = audience.hosts.first().map_or("", String::as_str);
    let port = audience.port;
    let how = if audience.encrypted { "" } else { " without TLS" };
    format!(
        "secret '{name}' is not for {host} port {port}{how}: {SECRETS_SETTING} must hold it, and the host in \
         '{name}{RULE_SUFFIX}'"
    )
}

fn broken(name: &SecretName) -> String {
    format!("secret '{name}' could not be read")
}

#[cfg(test)]
mod tests;
