//! With other processes: this test binary again, in a directory that says what to be.

use std::{
    fs,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use toolpulse::store::{FILE, Soft, StoreError, backup_file};

use crate::{
    file::{open, restored},
    values::{gateway, large, names, padded, put, tool},
};

const ROLE: &str = "role";

/// Runs one test of this binary in `dir`, where it finds its role.
fn again(test: &str, dir: &Path, wrap: &[&str]) -> Command {
    fs::write(dir.join(ROLE), "").unwrap();
    let me = std::env::current_exe().unwrap();
    let mut command = match wrap {
        [] => Command::new(&me),
        [program, args @ ..] => {
            let mut command = Command::new(program);
            command.args(args).arg(&me);
            command
        }
    };
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).current_dir(dir);
    command
}

/// Whether this process is such a child: then it plays its part in the current directory.
fn is_child() -> Option<PathBuf> {
    let dir = std::env::current_dir().unwrap();
    dir.join(ROLE).exists().then(|| dir.join("data"))
}

struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn another_process() {
    if let Some(data) = is_child() {
        let (store, _) = open(&data).await.unwrap();
        store.commit(put(&tool("child", 1))).await.unwrap();
        println!("\nREADY");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        store.close().await;
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let spawn = again("process::another_process", dir.path(), &[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut holder = Holder(spawn);
    let mut lines = BufReader::new(holder.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "READY"));

    // Refused by name, and the file stays as it is.
    let error = open(&data).await.map(|_| ()).unwrap_err();
    let want = format!(
        "the store in {} is in use by process {}; stop it or use another data directory",
        data.display(),
        holder.0.id()
    );
    assert_eq!(error.to_string(), want);

    // Copied all the same.
    let live = dir.path().join("live");
    backup_file(&data, &live).unwrap();
    assert_eq!(names(&restored(&live).await), ["child"]);

    // Killed, not closed: the log is still to be read, and the lock is free.
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    assert!(fs::metadata(data.join(format!("{FILE}-wal"))).unwrap().len() > 0);
    let dead = dir.path().join("dead");
    backup_file(&data, &dead).unwrap();
    assert_eq!(names(&restored(&dead).await), ["child"]);
    let (store, loaded) = open(&data).await.unwrap();
    assert_eq!(names(&loaded), ["child"]);
    store.close().await;

    // Closed in peace: one file holds all.
    let idle = dir.path().join("idle");
    backup_file(&data, &idle).unwrap();
    assert_eq!(names(&restored(&idle).await), ["child"]);
}

/// Writes fail in the middle (here: a limit on the size of files, with its signal ignored), and work again.
#[tokio::test]
async fn failed_writes_are_refused_and_heal() {
    let Some(data) = is_child() else {
        let dir = tempfile::tempdir().unwrap();
        let wrap = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""];
        let output =
            again("process::failed_writes_are_refused_and_heal", dir.path(), &wrap).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("HEALED"), "{text}{output:?}");
        return;
    };
    let limit = |bytes: Option<u64>| {
        let maximum = getrlimit(Resource::Fsize).maximum;
        setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum }).unwrap();
    };
    let (store, _) = open(&data).await.unwrap();
    store.commit(put(&tool("before", 1))).await.unwrap();
    let before = store.load().await.unwrap();
    limit(Some(1 << 20));
    for round in 0..3 {
        let small = store.commit(put(&tool("small", 2)));
        let large = store.commit(put(&large(2 << 20)));
        let (small, large) = (small.await, large.await);
        assert!(matches!(large, Err(StoreError::Failed(_))), "round {round}: {large:?}");
        let after = store.load().await;
        match small {
            Ok(()) => assert_eq!(names(&after.unwrap()), ["before", "small"], "round {round}"),
            Err(_) => assert_eq!(after, Ok(before.clone()), "round {round}"),
        }
    }
    limit(Some(0));
    assert!(store.commit(put(&tool("none", 3))).await.is_err());
    assert!(store.soft(vec![Soft::Gateway(gateway("", "g", "1"))]).await.is_err());
    limit(getrlimit(Resource::Fsize).maximum);
    store.commit(put(&large(2 << 20))).await.unwrap();
    store.commit(put(&tool("after", 4))).await.unwrap();
    store.close().await;
    let (_store, loaded) = open(&data).await.unwrap();
    let mut names = names(&loaded);
    names.retain(|name| *name != "small");
    assert_eq!(names, ["after", "before", "large"]);
    assert!(loaded.gateways.is_empty());
    println!("\nHEALED");
}

/// The same on a disk that is really full: a small one in memory, in a mount namespace of its own.
#[tokio::test]
async fn a_full_disk_refuses_and_heals() {
    let Some(data) = is_child() else {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("data")).unwrap();
        let mount =
            "mount -t tmpfs -o size=2m none data || { echo CANNOT MOUNT; exit 0; }; exec \"$0\" \"$@\"";
        let wrap = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount];
        let output = again("process::a_full_disk_refuses_and_heals", dir.path(), &wrap).output();
        let text =
            output.as_ref().map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
        if text.contains("HEALED") {
            return;
        }
        // Reached the test: then it failed. Else this machine lets nobody mount; the limits of SQLite and of the
        // system are tested without.
        assert!(!text.contains("running 1 test"), "{text}{output:?}");
        eprintln!("skipped: a_full_disk_refuses_and_heals: no mount namespaces here");
        return;
    };
    let filler = data.join("filler");
    fs::write(&filler, vec![0; 1 << 20]).unwrap();
    let (store, _) = open(&data).await.unwrap();
    store.commit(put(&tool("before", 1))).await.unwrap();
    let refused = store.commit(put(&large(3 << 20))).await;
    assert_eq!(refused, Err(StoreError::Full));
    assert_eq!(names(&store.load().await.unwrap()), ["before"]);
    // Full to the last byte.
    let mut file = fs::OpenOptions::new().append(true).open(&filler).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    drop(file);
    let mut n = 2;
    let refused = loop {
        match store.commit(put(&padded(&format!("t{n}"), 100_000))).await {
            Ok(()) => n += 1,
            Err(error) => break error,
        }
        assert!(n < 100, "it is never full");
    };
    assert_eq!(refused, StoreError::Full);
    assert_eq!(
        store.load().await.unwrap().tools.len(),
        n - 1,
        "nothing more, nothing less than acknowledged"
    );
    fs::remove_file(&filler).unwrap();
    store.commit(put(&padded(&format!("t{n}"), 100_000))).await.unwrap();
    store.close().await;
    assert_eq!(open(&data).await.unwrap().1.tools.len(), n);
    println!("\nHEALED");
}
