//! What a warm list does, looked at by valgrind: how many instructions, and in which functions.
//!
//! These are counts of a debug build, without the network: they show that somebody made it dearer, not what it costs. That
//! is in `cargo bench --bench speed -- instructions`.

use std::{
    process::{Command, Stdio},
    sync::{Mutex, RwLock},
};

use http::Request;
use tonic::body::Body;

use crate::{
    support,
    world::{LIST, World, list, request_of},
};

/// How often the read is done under valgrind.
const TIMES: u64 = 10;
/// Instructions of a warm list of 20 in a debug build.
const BAND: std::ops::RangeInclusive<u64> = 60_000..=110_000;
/// Ends of the names of functions that take locks, of std, parking_lot and tokio. Debug builds call them all.
const LOCKS: [&str; 6] = [
    "Mutex<T>::lock",
    "RwLock<T>::read",
    "RwLock<T>::write",
    "::lock_shared",
    "::lock_exclusive",
    "Mutex::lock",
];

#[test]
fn a_warm_list_takes_no_lock_and_few_instructions() {
    let found = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        support::skip("valgrind", "valgrind is not installed");
        return;
    }
    let taken = Profile::of("two_locks");
    let (locks, _) = taken.locks_and_total();
    assert!(locks.len() >= 2, "locks are seen where they are taken: {locks:?}");
    let read = Profile::of("the_read_itself");
    assert!(read.0.contains("answer_known"), "the read is looked at, and takes the shortcut");
    let (locks, total) = read.locks_and_total();
    assert!(locks.is_empty(), "a warm list takes locks: {locks:#?}");
    let each = total / TIMES;
    assert!(BAND.contains(&each), "{each} instructions, and not {BAND:?}");
}

/// What valgrind says of the function `measured`.
struct Profile(String);

impl Profile {
    /// Of one of the tests below.
    fn of(test: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let out = files.path().join("callgrind.out");
        let output = Command::new("valgrind")
            .args(["--quiet", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*measured*"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", &format!("instructions::{test}"), "--ignored", "--test-threads=1"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        Self(std::fs::read_to_string(out).unwrap())
    }

    fn locks_and_total(&self) -> (Vec<&str>, u64) {
        // A name is told where it comes first: of a function, or of one that it calls.
        let functions = self.0.lines().filter_map(|line| {
            let named = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn="));
            named?.split_once(") ")
        });
        let takes_lock = |name: &&str| LOCKS.iter().any(|lock| name.ends_with(lock));
        let locks = functions.map(|(_, name)| name).filter(takes_lock).collect();
        let total = self.0.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap();
        (locks, total.trim().parse().unwrap())
    }
}

#[test]
#[ignore = "it is run under valgrind"]
fn the_read_itself() {
    let mut world = World::new(100);
    for _ in 0..3 {
        world.call(LIST, &list(Some(20)));
    }
    for _ in 0..TIMES {
        let request = request_of(LIST, &list(Some(20)));
        assert_eq!(measured_read(&mut world, request), 2);
    }
}

#[inline(never)]
fn measured_read(world: &mut World, request: Request<Body>) -> usize {
    world.at_once(request).all().len()
}

#[test]
#[ignore = "it is run under valgrind"]
fn two_locks() {
    assert_eq!(measured_locks(&Mutex::new(1), &RwLock::new(2)), 3);
}

#[inline(never)]
fn measured_locks(one: &Mutex<u32>, other: &RwLock<u32>) -> u32 {
    *one.lock().unwrap() + *other.read().unwrap()
}
