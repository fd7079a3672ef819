//! Files, directories and ports that can't be used: refused in one clear line, and left as they are. And backups.

use std::{
    fs,
    path::Path,
    process::Output,
    sync::atomic::{AtomicUsize, Ordering},
};

use rusqlite::Connection;
use toolpulse::{
    proto::v1::{RegisterToolsRequest, ToolSpec},
    store::FILE,
};

use crate::{
    list, named, register,
    support::{
        SOON, Server, eventually,
        server::{Ended, clean_command},
    },
};

/// A server that can't start says why in one line, and nothing else.
fn refusal(ended: &Ended) -> &str {
    assert_eq!(ended.status.code(), Some(1), "{}", ended.log);
    let line = ended.log.strip_suffix('\n').unwrap_or(&ended.log);
    assert!(line.starts_with("error: ") && !line.contains('\n'), "{}", ended.log);
    line
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_refused_by_name_and_the_first_goes_on() {
    let first = Server::start(|_| {}).await;
    register(&first, named("before")).await.unwrap();
    let ended = Server::refuse(|c| _ = c.data_dir(first.data_dir())).await;
    let line = refusal(&ended);
    let want = format!("{} is in use by process {};", first.data_dir().display(), first.pid());
    assert!(line.contains(&want), "{line}");
    register(&first, named("after")).await.unwrap();
    assert_eq!(list(&first).await.0.len(), 2);
}

/// What the file of a store becomes, and what the refusal says of it.
type Case = (&'static str, fn(&Path), &'static str);

const BROKEN: [Case; 9] = [
    ("no database", |file| fs::write(file, "tools: []\n".repeat(900)).unwrap(), "is not an SQLite file"),
    ("random header", |file| overwrite(file, 0, &[0xa5; 100]), "is not an SQLite file"),
    ("flipped magic", |file| overwrite(file, 3, b"!"), "is not an SQLite file"),
    ("flipped page size", |file| overwrite(file, 16, &[0x03, 0x07]), "is not an SQLite file"),
    ("flipped schema page", |file| overwrite(file, 100, &[0xff; 64]), "is damaged"),
    ("flipped pages", |file| overwrite(file, 4096, &[0x55; 12_000]), "is damaged"),
    ("truncated", |file| truncate(file, 4096), "is damaged"),
    ("truncated in the header", |file| truncate(file, 60), "is damaged"),
    ("foreign", foreign, "SQLite file of another application"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_sound_store_is_refused_and_untouched() {
    let mut server = Server::start(|_| {}).await;
    for n in 0..50 {
        register(&server, ToolSpec { description: "text ".repeat(100), ..named(&format!("tool-{n}")) })
            .await
            .unwrap();
    }
    stop(&mut server).await;
    let file = server.data_dir().join(FILE);
    let sound = fs::read(&file).unwrap();
    for (name, damage, want) in
        BROKEN.into_iter().chain([("newer", newer as fn(&Path), "was written by a newer")])
    {
        fs::write(&file, &sound).unwrap();
        damage(&file);
        let damaged = fs::read(&file).unwrap();
        assert_ne!(damaged, sound, "{name}");
        let ended = Server::refuse(|c| _ = c.data_dir(server.data_dir())).await;
        let line = refusal(&ended);
        assert!(line.contains(want) && line.contains(file.to_str().unwrap()), "{name}: {line}");
        assert!(fs::read(&file).unwrap() == damaged, "{name}: the file was changed");
    }
    fs::write(&file, &sound).unwrap();
    server.start_again().await;
    assert_eq!(list(&server).await.0.len(), 50);
}

fn overwrite(file: &Path, at: usize, bytes: &[u8]) {
    let mut content = fs::read(file).unwrap();
    content[at..at + bytes.len()].copy_from_slice(bytes);
    fs::write(file, content).unwrap();
}

fn truncate(file: &Path, len: u64) {
    fs::OpenOptions::new().write(true).open(file).unwrap().set_len(len).unwrap();
}

fn foreign(file: &Path) {
    fs::remove_file(file).unwrap();
    Connection::open(file)
        .unwrap()
        .execute_batch("CREATE TABLE accounts (name); PRAGMA user_version = 4")
        .unwrap();
}

fn newer(file: &Path) {
    let conn = Connection::open(file).unwrap();
    conn.execute_batch("PRAGMA user_version = 1000").unwrap();
}

/// A log that is left over from a crash belongs to its file: without it, it must not become an empty registry.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_its_file_is_refused() {
    let mut server = Server::start(|_| {}).await;
    register(&server, named("kept")).await.unwrap();
    server.kill9();
    let (file, aside) = (server.data_dir().join(FILE), server.data_dir().join("aside"));
    fs::rename(&file, &aside).unwrap();
    let ended = Server::refuse(|c| _ = c.data_dir(server.data_dir())).await;
    assert!(refusal(&ended).contains("is damaged"), "{}", ended.log);
    fs::rename(&aside, &file).unwrap();
    server.start_again().await;
    assert!(list(&server).await.0.contains_key("kept"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_that_can_not_be_written_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("a-file");
    fs::write(&place, "something").unwrap();
    let cases = [place.clone(), place.join("below"), "/proc/toolpulse-data".into()];
    for data in cases {
        let ended = Server::refuse(|c| _ = c.data_dir(&data)).await;
        let want = format!("error: cannot create or write the data directory {}: ", data.display());
        assert!(refusal(&ended).starts_with(&want), "{}", ended.log);
    }
    assert_eq!(fs::read_to_string(&place).unwrap(), "something");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_refused_with_its_address_and_setting() {
    let first = Server::start(|_| {}).await;
    for (flag, address, setting) in [
        ("listen", first.address(), "TOOLPULSE_LISTEN"),
        ("admin-listen", first.admin_address(), "TOOLPULSE_ADMIN_LISTEN"),
    ] {
        let mut command = clean_command();
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        command.args(["serve", "--data-dir"]).arg(&data);
        for other in ["listen", "admin-listen"] {
            command.arg(format!("--{other}={}", if other == flag { address } else { "127.0.0.1:0" }));
        }
        let Output { status, stderr, .. } = command.output().unwrap();
        let ended = Ended { status, log: String::from_utf8(stderr).unwrap() };
        let want = format!("error: cannot listen on {address} ({setting}): another process listens there");
        assert!(refusal(&ended).starts_with(&want), "{}", ended.log);
        assert!(!data.exists(), "nothing was made before the ports were bound");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_running_and_of_a_stopped_server_starts() {
    const BATCH: usize = 5;
    let mut server = Server::start(|_| {}).await;
    let dir = tempfile::tempdir().unwrap();
    let acknowledged = AtomicUsize::new(0);
    let mut copies = Vec::new();
    let writing = async {
        for batch in 0.. {
            let request = RegisterToolsRequest {
                tools: (0..BATCH).map(|n| named(&format!("tool-{batch:06}-{n}"))).collect(),
                all_or_nothing: true,
                ..RegisterToolsRequest::default()
            };
            server.tools().register_tools(request).await.unwrap();
            acknowledged.store(batch + 1, Ordering::SeqCst);
        }
    };
    let copying = async {
        for n in 0..5 {
            let more = acknowledged.load(Ordering::SeqCst) + 5;
            eventually("writes go on", SOON, || async {
                (acknowledged.load(Ordering::SeqCst) >= more).then_some(())
            })
            .await;
            let copy = dir.path().join(format!("copy-{n}"));
            let data = server.data_dir().to_owned();
            let before = acknowledged.load(Ordering::SeqCst);
            let made = copy.clone();
            let output = tokio::task::spawn_blocking(move || back_up(&data, &made)).await.unwrap();
            assert!(output.status.success(), "{output:?}");
            copies.push((copy, before, acknowledged.load(Ordering::SeqCst) + 1));
        }
    };
    tokio::select! {
        () = writing => {}
        () = copying => {}
    }
    for (copy, before, after) in copies {
        let restored = Server::start(|c| _ = c.data_dir(&copy)).await;
        let (tools, ..) = list(&restored).await;
        assert_eq!(tools.len() % BATCH, 0, "whole batches");
        assert!((before..=after).contains(&(tools.len() / BATCH)), "{before}..={after}: {}", tools.len());
        register(&restored, named("more")).await.unwrap();
    }

    // A server that is stopped, in peace or not: exactly what it had.
    // The write that was cut off above is before this one.
    register(&server, named("last")).await.unwrap();
    let (mut tools, _, revision) = list(&server).await;
    for how in ["killed", "stopped"] {
        let copy = dir.path().join(how);
        if how == "killed" {
            server.kill9();
        } else {
            stop(&mut server).await;
        }
        let output = back_up(server.data_dir(), &copy);
        assert!(output.status.success(), "{output:?}");
        let again = back_up(server.data_dir(), &copy);
        let error = String::from_utf8_lossy(&again.stderr).into_owned();
        assert_eq!(again.status.code(), Some(1), "{error}");
        assert!(error.starts_with(&format!("error: {} exists;", copy.join(FILE).display())), "{error}");
        let restored = Server::start(|c| _ = c.data_dir(&copy)).await;
        let (mut restored, _, later) = list(&restored).await;
        // The one moment in it is the verdict's, which a start makes anew.
        tools.values_mut().chain(restored.values_mut()).for_each(|tool| tool.status = None);
        assert!(restored == tools, "{how}: not the same tools");
        assert!(later > revision, "{how}: {later} after {revision}");
        server.start_again().await;
    }
    let none = back_up(&dir.path().join("nowhere"), &dir.path().join("none"));
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).starts_with("error: there is no store in "), "{none:?}");
}

/// `toolpulse store backup` into a fresh data directory.
fn back_up(data: &Path, copy: &Path) -> Output {
    fs::create_dir_all(copy).unwrap();
    let mut command = clean_command();
    command.args(["store", "backup"]).arg(copy.join(FILE)).arg("--data-dir").arg(data);
    command.output().unwrap()
}

async fn stop(server: &mut Server) {
    server.signal(rustix::process::Signal::TERM);
    let status = server.wait_exit(SOON).await;
    assert!(status.success(), "{status}");
}
