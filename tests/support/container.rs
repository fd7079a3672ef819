//! Runs the image that `tests/image/build` made as a container runtime would: its files as a root that nothing can write to,
//! a user without any right, process ids of its own. Needs `apart::with_own_mounts_and_network`.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command as Blocking, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use super::{SOON, env, eventually, skip};

/// The image under test.
#[derive(Debug)]
pub(crate) struct Image {
    dir: PathBuf,
    /// How it says that it is run: `User`, `Env`, `Entrypoint` and the like.
    pub(crate) config: Value,
}

impl Image {
    /// The image; without one, that is noted as skipped.
    pub(crate) fn get() -> Option<Self> {
        let Some(dir) = env("TOOLPULSE_TEST_IMAGE").map(PathBuf::from) else {
            skip("image", "TOOLPULSE_TEST_IMAGE names none; tests/run builds it, as root and with buildah");
            return None;
        };
        let text = fs::read(dir.join("config.json")).unwrap();
        let all: Value = serde_json::from_slice(&text).unwrap();
        Some(Self { dir, config: all["config"].clone() })
    }

    /// Where its files are.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// A list of texts of its configuration.
    pub(crate) fn texts(&self, key: &str) -> Vec<String> {
        let list = self.config[key].as_array().unwrap_or_else(|| panic!("no list {key}: {}", self.config));
        list.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    /// The environment that it gives its processes.
    pub(crate) fn env(&self) -> Vec<(String, String)> {
        let pair = |text: String| text.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())).unwrap();
        self.texts("Env").into_iter().map(pair).collect()
    }

    /// The command of its health check.
    pub(crate) fn texts_of_healthcheck(&self) -> Vec<String> {
        let test = self.config["Healthcheck"]["Test"].as_array().unwrap();
        assert_eq!(test[0], "CMD", "there is no shell");
        test[1..].iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    /// Its user and group, which are numbers.
    pub(crate) fn user(&self) -> (u32, u32) {
        let (user, group) = self.config["User"].as_str().unwrap().split_once(':').unwrap();
        (user.parse().unwrap(), group.parse().unwrap())
    }
}

/// One container. It has no `/proc`, no `/dev`, no `/etc` and no `/tmp`, but for what it is given.
#[derive(Debug)]
pub(crate) struct Container {
    dir: PathBuf,
    /// User and group.
    pub(crate) user: (u32, u32),
    /// Further groups.
    pub(crate) groups: Vec<u32>,
    /// Environment. A later one with the same name counts.
    pub(crate) env: Vec<(String, String)>,
    /// Whether its root can be written to.
    pub(crate) writable: bool,
    /// A file that is a network namespace, if it has one of its own.
    pub(crate) network: Option<PathBuf>,
}

impl Container {
    /// With a copy of the image's files; in `dir`, which is made.
    pub(crate) fn new(image: &Image, dir: &Path) -> Self {
        fs::create_dir(dir).unwrap();
        let root = dir.join("root");
        run("cp", [Path::new("-a"), &image.root(), &root]);
        run("mount", [Path::new("--bind"), &root, &root]);
        Self {
            dir: dir.to_owned(),
            user: image.user(),
            groups: Vec::new(),
            env: image.env(),
            writable: false,
            network: None,
        }
    }

    /// Where a path of the container is for us.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.dir.join("root").join(inside.trim_start_matches('/'))
    }

    /// A file of the root, such as a runtime makes.
    pub(crate) fn write(&self, inside: &str, text: &str) {
        let path = self.path(inside);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Mounts a directory of ours.
    pub(crate) fn mount(&self, from: &Path, inside: &str, read_only: bool) {
        let to = self.path(inside);
        fs::create_dir_all(&to).unwrap();
        run("mount", [Path::new("--bind"), from, &to]);
        if read_only {
            run("mount", [Path::new("-o"), Path::new("remount,bind,ro"), &to]);
        }
    }

    /// A volume as Docker makes one: with owner and mode of the directory that it covers. Where it is for us.
    pub(crate) fn volume(&self, inside: &str) -> PathBuf {
        let from = self.dir.join("volume");
        run("cp", [Path::new("-a"), &self.path(inside), &from]);
        self.mount(&from, inside, false);
        from
    }

    /// Starts a process in it, as process number 1 of its own.
    pub(crate) fn start(&self, command: &[String]) -> Process {
        if !self.writable {
            run("mount", [Path::new("-o"), Path::new("remount,bind,ro"), &self.path("")]);
        }
        let groups = self.groups.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let log = self.dir.join("log");
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut runtime = match &self.network {
            Some(file) => {
                let mut runtime = Command::new(find("nsenter"));
                runtime.arg(format!("--net={}", file.display())).arg(find("unshare"));
                runtime
            }
            None => Command::new(find("unshare")),
        };
        runtime.args(["--pid", "--fork", "--kill-child=KILL"]);
        runtime.arg(find("setpriv")).arg("--no-new-privs");
        runtime.arg(find("chroot")).arg(format!("--userspec={}:{}", self.user.0, self.user.1));
        runtime.arg(format!("--groups={groups}")).arg(self.path("")).args(command);
        runtime.env_clear().envs(self.env.iter().map(|(k, v)| (k, v))).current_dir("/");
        runtime.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).kill_on_drop(true);
        Process { child: runtime.spawn().unwrap(), log }
    }

    /// Runs a process to its end. How it ended, and all that processes of this container wrote.
    pub(crate) async fn run(&self, command: &[String]) -> (ExitStatus, String) {
        let mut process = self.start(command);
        let status = process.ended(SOON).await;
        (status, process.log())
    }
}

/// A process of a container. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// What it wrote so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap()).into_owned()
    }

    /// Its process id for us, once it runs the program that was asked for.
    pub(crate) async fn pid(&self) -> u32 {
        let outer = self.child.id().unwrap_or_else(|| panic!("it has ended: {}", self.log()));
        eventually("the process of the container", SOON, || async {
            let pid = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).ok()?;
            let pid = pid.trim().parse().ok()?;
            // Before that it is still one of our own programs.
            (self.status_of(pid, "Name")? == "toolpulse").then_some(pid)
        })
        .await
    }

    /// What the kernel says of it.
    pub(crate) fn status_of(&self, pid: u32, field: &str) -> Option<String> {
        let all = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Sends a signal.
    pub(crate) async fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid().await).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// How it ended, if it has.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it still runs after `within`.
    pub(crate) async fn ended(&mut self, within: Duration) -> ExitStatus {
        match timeout(within, self.child.wait()).await {
            Ok(status) => status.unwrap(),
            Err(_) => panic!("it still runs after {within:?}:\n{}", self.log()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("---- log of the container ----\n{}---- end of the log ----", self.log());
        }
    }
}

fn run<const N: usize>(program: &str, args: [&Path; N]) {
    let output = Blocking::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Where a program is, for a process that has another PATH.
fn find(program: &str) -> PathBuf {
    let places = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(|dir| Path::new(dir).join(program));
    places.into_iter().find(|path| path.exists()).unwrap_or_else(|| panic!("{program} is not installed"))
}
