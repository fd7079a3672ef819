//! Helm, and what it renders.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, LazyLock},
    thread,
};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::{
    cluster,
    support::{env, skip},
};

/// The chart's directory.
pub(crate) const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/helm/toolpulse");
/// The release that everything is rendered for, unless a test says otherwise.
pub(crate) const RELEASE: &str = "rel";

/// One version of Helm.
#[derive(Clone, Debug)]
pub(crate) struct Helm {
    /// 3 or 4.
    pub(crate) major: u8,
    binary: PathBuf,
    /// Nothing of the person's own Helm is read or written.
    home: Arc<TempDir>,
}

impl Helm {
    /// Every version that is here. One that is not is noted as skipped.
    pub(crate) fn all() -> Vec<Self> {
        [3, 4].into_iter().filter_map(Self::of).collect()
    }

    /// The newest version, for what does not depend on it.
    pub(crate) fn newest() -> Option<Self> {
        Self::of(4)
    }

    fn of(major: u8) -> Option<Self> {
        let variable = format!("TOOLPULSE_TEST_HELM{major}");
        let Some(binary) = env(&variable) else {
            skip("helm", &format!("{variable} names no helm {major}; tests/run sets it"));
            return None;
        };
        Some(Self { major, binary: binary.into(), home: Arc::new(TempDir::new().unwrap()) })
    }

    /// Runs it with values on its stdin, for `-f -`. What it printed, or why it failed.
    pub(crate) fn run(&self, args: &[&str], values: &str) -> Result<String, String> {
        let mut command = Command::new(&self.binary);
        command.args(args).env_clear().env("HOME", self.home.path()).env("KUBECONFIG", "/nonexistent");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", self.binary.display()));
        // A helm that fails early does not read its input.
        let _ = child.stdin.take().unwrap().write_all(values.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// What an installation into a namespace would do, and the notes that it prints.
    pub(crate) fn dry_run(&self, namespace: &str, values: &str) -> String {
        let args = ["install", RELEASE, CHART, "--namespace", namespace, "--dry-run=client", "--values", "-"];
        // Helm 3 asks a cluster for its version even so.
        let cluster = (self.major == 3).then(cluster::start);
        let cluster: Vec<&str> = cluster
            .iter()
            .flat_map(|url| ["--disable-openapi-validation", "--kube-apiserver", url])
            .collect();
        let output = self.run(&[&args, cluster.as_slice()].concat(), values);
        output.unwrap_or_else(|e| panic!("helm {}: {values}\n{e}", self.major))
    }

    /// What our chart renders to. Many tests look at the same: an answer is kept as long as chart and Helm are the same.
    fn cached(&self, release: &str, args: &[&str], values: &str) -> Result<String, String> {
        let asked = format!("{}\n{release}\n{args:?}\n{values}", self.digest());
        let dir = kept_renderings();
        let file = dir.join(digest(&asked));
        if let Ok(known) = fs::read_to_string(&file) {
            return known.strip_prefix('+').map(str::to_owned).ok_or_else(|| known[1..].to_owned());
        }
        let answer = self.text_of(CHART, release, args, values);
        let kept = match &answer {
            Ok(text) => format!("+{text}"),
            Err(text) => format!("-{text}"),
        };
        let mut whole = tempfile::NamedTempFile::new_in(dir).unwrap();
        whole.write_all(kept.as_bytes()).unwrap();
        whole.persist(&file).unwrap();
        answer
    }

    fn digest(&self) -> String {
        let file = fs::metadata(&self.binary).unwrap();
        format!("{} {} {:?}", self.binary.display(), file.len(), file.modified().unwrap())
    }

    /// What a chart renders to with these values, as text.
    pub(crate) fn text_of(
        &self,
        chart: &str,
        release: &str,
        args: &[&str],
        values: &str,
    ) -> Result<String, String> {
        let all = [&["template", release, chart, "--values", "-"], args].concat();
        self.run(&all, values)
    }

    /// The text that our chart renders to with values that are right.
    pub(crate) fn text(&self, values: &str) -> String {
        self.cached(RELEASE, &[], values).unwrap_or_else(|e| panic!("helm {}: {values}\n{e}", self.major))
    }

    /// What our chart renders to with these values.
    pub(crate) fn template(&self, values: &str) -> Result<Rendered, String> {
        self.template_as(RELEASE, &[], values)
    }

    /// The same for a release of another name, and with more arguments.
    pub(crate) fn template_as(&self, release: &str, args: &[&str], values: &str) -> Result<Rendered, String> {
        self.cached(release, args, values).map(|text| Rendered::parse(&text))
    }

    /// The objects for values that are right.
    pub(crate) fn render(&self, values: &str) -> Rendered {
        self.template(values).unwrap_or_else(|e| panic!("helm {}: {values}\n{e}", self.major))
    }

    /// The message for values that are wrong.
    pub(crate) fn refusal(&self, values: &str) -> String {
        match self.template(values) {
            Ok(_) => panic!("helm {} takes this:\n{values}", self.major),
            Err(message) => message,
        }
    }
}

/// The objects that came out.
#[derive(Clone, Debug)]
pub(crate) struct Rendered(pub(crate) Vec<Value>);

impl Rendered {
    pub(crate) fn parse(text: &str) -> Self {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        Self(documents.into_iter().filter(|d| !d.is_null()).collect())
    }

    /// All objects of a kind.
    pub(crate) fn all(&self, kind: &str) -> Vec<&Value> {
        self.0.iter().filter(|d| d["kind"] == kind).collect()
    }

    /// The one object of a kind whose name ends so.
    pub(crate) fn one(&self, kind: &str, end: &str) -> &Value {
        let all: Vec<_> =
            self.all(kind).into_iter().filter(|d| text(&d["metadata"]["name"]).ends_with(end)).collect();
        assert_eq!(all.len(), 1, "{kind} …{end}: {all:?}");
        all[0]
    }

    /// The StatefulSet's spec.
    pub(crate) fn set(&self) -> &Value {
        &self.one("StatefulSet", "")["spec"]
    }

    /// The pod's spec.
    pub(crate) fn pod(&self) -> &Value {
        &self.set()["template"]["spec"]
    }

    /// The server's container.
    pub(crate) fn container(&self) -> &Value {
        named(&self.pod()["containers"], "toolpulse")
    }

    /// The arguments of the server.
    pub(crate) fn args(&self) -> Vec<&str> {
        list(&self.container()["args"]).iter().map(text).collect()
    }

    /// The server's file of settings.
    pub(crate) fn config(&self) -> Value {
        let map = self.one("ConfigMap", "-config");
        serde_saphyr::from_str(text(&map["data"]["toolpulse.yaml"])).unwrap()
    }
}

/// A text.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// A list; empty where there is none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The item of that name.
pub(crate) fn named<'a>(items: &'a Value, name: &str) -> &'a Value {
    let found = list(items).iter().find(|item| item["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {items}"))
}

/// The files of values that are rendered in tests, by name: those of `ci/`, and the overlays.
pub(crate) fn value_files() -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = fs::read_dir(Path::new(CHART).join("ci"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .chain([Path::new(CHART).join("values-minimal.yaml")])
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let name = name.strip_suffix("-values").unwrap_or(name).to_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Does something for each item, on two threads: nearly all the time is spent waiting for helm.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let half = items.len().div_ceil(2);
    thread::scope(|scope| {
        let parts: Vec<_> = items
            .chunks(half.max(1))
            .map(|part| scope.spawn(|| part.iter().map(&work).collect::<Vec<R>>()))
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    })
}

/// Where renderings of the chart as it is now are kept; those of other versions go.
fn kept_renderings() -> &'static Path {
    static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
        let dirs = [".", "templates", "templates/tests"].map(|dir| Path::new(CHART).join(dir));
        let files = dirs.iter().flat_map(|dir| fs::read_dir(dir).unwrap()).map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> = files.filter(|path| path.is_file()).collect();
        files.sort();
        let chart: String =
            files.iter().map(|path| format!("{path:?} {:?}\n", fs::read(path).unwrap())).collect();
        let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm");
        let dir = all.join(digest(&chart));
        fs::create_dir_all(&all).unwrap();
        if fs::create_dir(&dir).is_ok() {
            for other in
                fs::read_dir(&all).unwrap().map(|entry| entry.unwrap().path()).filter(|path| *path != dir)
            {
                let _ = fs::remove_dir_all(other);
            }
        }
        dir
    });
    &DIR
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
