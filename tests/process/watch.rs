//! `tools watch` and `status watch`, as a script and as a person run them.

use std::{
    fs,
    io::Read,
    process::Stdio,
    sync::{Arc, Mutex},
    thread,
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader, Lines, copy_bidirectional},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStderr, ChildStdout, Command},
    time::timeout,
};

use crate::{
    run,
    support::{
        SOON, Server, eventually,
        server::clean_command,
        targets::{Answer, HttpTarget},
    },
};

/// One address for a server that has another after each start.
struct Front {
    address: String,
    server: Arc<Mutex<String>>,
}

impl Front {
    async fn of(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = Arc::new(Mutex::new(server.address().to_owned()));
        let current = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let to = current.lock().unwrap().clone();
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(to).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Self { address, server }
    }

    fn now(&self, server: &Server) {
        server.address().clone_into(&mut self.server.lock().unwrap());
    }
}

/// A watch whose output is piped.
struct Piped {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Piped {
    fn start(address: &str, args: &str) -> Self {
        let mut command = Command::from(clean_command());
        command.args(args.split_whitespace()).env("TOOLPULSE_SERVER", address).kill_on_drop(true);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap()).lines();
        let err = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, out, err }
    }

    async fn next(&mut self) -> String {
        line(&mut self.out).await
    }

    async fn json(&mut self) -> serde_json::Value {
        let line = self.next().await;
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    /// Reads stderr until a state is told.
    async fn synced(&mut self) -> String {
        loop {
            let line = line(&mut self.err).await;
            if line.starts_with("synced at revision ") {
                return line;
            }
            assert!(line.starts_with("warning: ") && line.contains("watching again in"), "{line}");
        }
    }

    async fn end(mut self) -> (Option<i32>, String) {
        let status = timeout(SOON, self.child.wait()).await.expect("an end").unwrap();
        let mut left = String::new();
        while let Some(line) = self.err.next_line().await.unwrap() {
            left.push_str(&line);
        }
        (status.code(), left)
    }
}

async fn line<R: AsyncRead + Unpin>(lines: &mut Lines<BufReader<R>>) -> String {
    timeout(SOON, lines.next_line()).await.expect("a line").unwrap().expect("no end")
}

fn signal(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw).unwrap();
    kill_process(pid, signal).unwrap();
}

async fn command(server: &Server, args: &str) {
    let args: Vec<&str> = args.split_whitespace().collect();
    let ran = run(&args, &[("TOOLPULSE_SERVER", server.address())]).await;
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
}

/// A file of tools, without probes but for `search`.
fn tools(files: &tempfile::TempDir, target: &HttpTarget, names: &[&str]) -> String {
    let tool = |name: &&str| match *name {
        "search" => format!("- {{name: search, probes: [{{http: {{url: \"{}\"}}}}]}}\n", target.url("/")),
        name => format!("- {{name: {name}}}\n"),
    };
    let path = files.path().join("tools.yaml");
    fs::write(&path, format!("owner: ann\ntools:\n{}", names.iter().map(tool).collect::<String>())).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn a_piped_watch_tells_changes_and_outlives_its_server() {
    let mut server = Server::start(|_| {}).await;
    let front = Front::of(&server).await;
    let (files, target) = (tempfile::tempdir().unwrap(), HttpTarget::start(Answer::Status(200)).await);
    let file = tools(&files, &target, &["search", "clock"]);
    command(&server, &format!("tools register {file} --wait 10s")).await;

    let mut all = Piped::start(&front.address, "tools watch");
    assert_eq!(all.next().await, "+ clock AVAILABLE");
    assert_eq!(all.next().await, "+ search AVAILABLE");
    assert!(all.synced().await.ends_with(": 2 tools"));
    let mut owners = Piped::start(&front.address, "tools watch --owner bob --output json");
    assert!(owners.synced().await.ends_with(": 0 tools"));
    let mut agent =
        Piped::start(&front.address, "tools watch --agent bot --format openai-chat --output json");
    assert_eq!(agent.json().await["tool"]["definition"]["function"]["name"], "clock");
    assert_eq!(agent.json().await["tool"]["name"], "search");
    let mut gateways = Piped::start(&front.address, "status watch");
    assert!(gateways.synced().await.ends_with(": 0 gateways"));

    command(&server, "tools disable clock --message later").await;
    assert_eq!(all.next().await, "~ clock AVAILABLE (disabled): later");
    assert_eq!(agent.json().await, serde_json::json!({"removed": "clock"}));
    command(&server, "status report gw --run busy --ttl 1h").await;
    assert!(gateways.next().await.starts_with("+ gw 2"));
    let file = tools(&files, &target, &["gone"]);
    command(&server, &format!("tools register {file} --owner bob")).await;
    assert_eq!(all.next().await, "+ gone AVAILABLE");
    assert_eq!(owners.json().await["tool"]["owner"], "bob");
    assert_eq!(agent.json().await["tool"]["name"], "gone");
    command(&server, "tools unregister gone --owner bob").await;
    assert_eq!(all.next().await, "- gone");
    assert_eq!(owners.json().await, serde_json::json!({"removed": "gone"}));
    assert_eq!(agent.json().await, serde_json::json!({"removed": "gone"}));
    assert!(agent.synced().await.ends_with(": 2 tools"), "at the start");

    server.crash_and_restart().await;
    front.now(&server);
    // The whole state came again, and none of it was news.
    assert!(all.synced().await.ends_with(": 2 tools"));
    assert!(agent.synced().await.ends_with(": 1 tool"));
    let file = tools(&files, &target, &["new"]);
    command(&server, &format!("tools register {file}")).await;
    assert_eq!(all.next().await, "+ new AVAILABLE");
    assert_eq!(agent.json().await["tool"]["name"], "new");

    signal(&all.child, Signal::INT);
    assert_eq!(all.end().await, (Some(0), String::new()));
    // A reader that has seen enough ends the watch, though nothing happens any more.
    let Piped { mut child, out, .. } = agent;
    drop(out);
    let status = timeout(SOON, child.wait()).await.expect("an end").unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn a_watch_that_can_not_be_is_not_tried_again() {
    let server = Server::start(|config| {
        config.store("memory");
    })
    .await;
    let address = server.address().to_owned();
    let (code, error) = Piped::start(&address, "tools watch --selector a=(b").end().await;
    assert_eq!(code, Some(1), "{error}");
    assert!(error.starts_with("error: label_selector") && error.contains("INVALID_ARGUMENT"), "{error}");
    drop(server);
    let (code, error) = Piped::start(&address, "tools watch").end().await;
    assert_eq!(code, Some(1), "a server that was never there: {error}");
}

/// What stands on a terminal, by what was written to it.
fn lines_on(terminal: &Mutex<Vec<u8>>) -> Vec<String> {
    let written = String::from_utf8_lossy(&terminal.lock().unwrap()).into_owned();
    let frames = written.split("\x1b[?25l\x1b[?7l\x1b[H").skip(1);
    let whole = frames.filter_map(|frame| frame.split_once("\x1b[J\x1b[?7h\x1b[?25h")).last();
    whole.map_or(vec![], |(frame, _)| {
        frame.replace("\x1b[K", "").replace('\r', "").lines().map(str::to_owned).collect()
    })
}

#[tokio::test]
async fn a_terminal_shows_a_table_that_fits() {
    let mut server = Server::start(|_| {}).await;
    let front = Front::of(&server).await;
    let (files, target) = (tempfile::tempdir().unwrap(), HttpTarget::start(Answer::Status(200)).await);
    let file = tools(&files, &target, &["search", "clock"]);
    command(&server, &format!("tools register {file} --wait 10s")).await;

    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let size = |columns, rows| Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&master, size(100, 20)).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let slave = fs::OpenOptions::new().read(true).write(true).open(name).unwrap();
    let mut watch = Command::from(clean_command());
    watch.args(["tools", "watch"]).env("TOOLPULSE_SERVER", &front.address).kill_on_drop(true);
    let mut child = watch.stdout(slave.try_clone().unwrap()).stderr(slave).spawn().unwrap();
    drop(watch);
    let terminal = Arc::new(Mutex::new(Vec::new()));
    let (mut reader, written) = (fs::File::from(master.try_clone().unwrap()), Arc::clone(&terminal));
    let reading = thread::spawn(move || {
        let mut buffer = [0; 4096];
        // The last end of the other side is an error here.
        while let Ok(n @ 1..) = reader.read(&mut buffer) {
            written.lock().unwrap().extend_from_slice(&buffer[..n]);
        }
    });
    let shows = async |what: &str, words: &[&str]| {
        eventually(what, SOON, || async {
            let lines = lines_on(&terminal);
            words.iter().all(|word| lines.iter().any(|line| line.contains(word))).then_some(lines)
        })
        .await
    };

    let title = format!("tools in default at http://{}", front.address);
    let lines =
        shows("the table", &[&title, "live, 2 tools, revision", "clock   AVAILABLE", "search  AVAILABLE"])
            .await;
    assert_eq!(lines.len(), 6, "{lines:#?}");
    command(&server, "tools disable search --message later").await;
    let lines = shows("a change", &["AVAILABLE (disabled)", "last change"]).await;
    assert!(lines[4].starts_with("search"), "what is urgent stands first: {lines:#?}");

    server.kill9();
    shows("the last state", &["reconnecting", "clock   AVAILABLE", "AVAILABLE (disabled)"]).await;
    server.start_again().await;
    front.now(&server);
    shows("a new connection", &["live, 2 tools"]).await;

    tcsetwinsize(&master, size(30, 5)).unwrap();
    signal(&child, Signal::WINCH);
    let lines = shows("what fits", &["and 2 more"]).await;
    assert!(lines.len() <= 5 && lines.iter().all(|line| line.chars().count() <= 30), "{lines:#?}");

    signal(&child, Signal::INT);
    let status = timeout(SOON, child.wait()).await.expect("an end").unwrap();
    assert_eq!(status.code(), Some(0));
    reading.join().unwrap();
    let written = String::from_utf8(terminal.lock().unwrap().clone()).unwrap();
    assert!(written.ends_with("\x1b[?7h\x1b[?25h\r\n"), "the terminal is as it was: {written:?}");
}
