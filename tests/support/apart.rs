//! A test that runs again as a child of itself, in surroundings of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::skip;

/// In a test's directory: says that this process is the test's child.
const ROLE: &str = "role";
/// What the child's output says when it ended well, so that a filter that matches no test is no success.
const PASSED: &str = "test result: ok. 1 passed";

/// Runs a test of this binary again in `dir`, wrapped in a command that makes its surroundings. Whether it ended well, and
/// what it printed.
pub(crate) fn again(test: &str, dir: &Path, wrap: &[&str]) -> (bool, String) {
    fs::write(dir.join(ROLE), "").unwrap();
    let mut command = Command::new(wrap[0]);
    command.args(&wrap[1..]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).current_dir(dir);
    let output = command.output();
    let success = output.as_ref().is_ok_and(|o| o.status.success());
    let text =
        output.map(|o| [o.stdout, o.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat());
    (success, text.unwrap_or_else(|error| error.to_string()))
}

/// The directory that `again` was given, if this process is such a child.
pub(crate) fn is_child() -> Option<PathBuf> {
    let dir = std::env::current_dir().unwrap();
    dir.join(ROLE).exists().then_some(dir)
}

/// Runs the test with this name again as root, with mounts and a network (loopback alone) of its own; in there, gives a
/// directory for it. Outside, and where that is not possible, gives nothing.
///
/// # Panics
/// If the test fails in there; with what it printed.
pub(crate) fn with_own_mounts_and_network(test: &str) -> Option<PathBuf> {
    if let Some(dir) = is_child() {
        return Some(dir);
    }
    let unshare = ["unshare", "--mount", "--net"];
    let may =
        Command::new(unshare[0]).args(&unshare[1..]).args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !rustix::process::geteuid().is_root() || !may.is_ok_and(|o| o.status.success()) {
        skip("mount-namespace", "this machine lets nobody mount");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let wrap = [&unshare[..], &["sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""]].concat();
    let (success, text) = again(test, dir.path(), &wrap);
    assert!(success && text.contains(PASSED), "{text}");
    None
}
