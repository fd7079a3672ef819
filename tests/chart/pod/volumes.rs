//! The volumes of a pod, as the kubelet makes them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::helm::{Rendered, list, text};

/// ConfigMaps and Secrets by name: their files.
#[derive(Debug, Default)]
pub(crate) struct Objects(pub(crate) BTreeMap<String, BTreeMap<String, String>>);

impl Objects {
    /// What the chart rendered, and what somebody else must have made before.
    pub(crate) fn new(rendered: &Rendered, given: &[(&str, &[(&str, &str)])]) -> Self {
        let mut all = BTreeMap::new();
        for map in rendered.all("ConfigMap") {
            let files = map["data"].as_object().unwrap().iter();
            let files = files.map(|(name, content)| (name.clone(), text(content).to_owned())).collect();
            all.insert(text(&map["metadata"]["name"]).to_owned(), files);
        }
        for (name, files) in given {
            let files = files.iter().map(|(name, content)| ((*name).to_owned(), (*content).to_owned()));
            all.insert((*name).to_owned(), files.collect());
        }
        Self(all)
    }

    /// The files that a source of a volume puts there.
    fn files(&self, name: &str, source: &Value) -> Vec<(String, String)> {
        let all = self.0.get(name).unwrap_or_else(|| panic!("nobody made {name}"));
        let Some(items) = source["items"].as_array() else { return all.clone().into_iter().collect() };
        let file = |item: &Value| (text(&item["path"]).to_owned(), all[text(&item["key"])].clone());
        items.iter().map(file).collect()
    }
}

/// The volumes of one pod.
#[derive(Debug)]
pub(crate) struct Volumes {
    dir: PathBuf,
    group: Option<u32>,
    specs: Vec<Value>,
}

impl Volumes {
    /// Makes them all under `dir`: those of the pod, and the claims that the StatefulSet makes for it. A claim that is there
    /// already keeps what is in it.
    pub(crate) fn new(dir: &Path, pod: &Value, claims: &Value, objects: &Objects) -> Self {
        let group = pod["securityContext"]["fsGroup"].as_u64().map(|group| u32::try_from(group).unwrap());
        let volumes = Self { dir: dir.to_owned(), group, specs: list(&pod["volumes"]).to_vec() };
        for claim in list(claims) {
            volumes.claim(text(&claim["metadata"]["name"]));
        }
        for spec in &volumes.specs {
            if spec["persistentVolumeClaim"].is_object() {
                volumes.claim(text(&spec["name"]));
            }
        }
        volumes.publish(objects);
        volumes
    }

    /// Where a volume is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        assert!(path.is_dir(), "the pod has no volume {name}");
        path
    }

    /// Writes what comes from objects, as they are now: into a new directory, which a link then names at once.
    pub(crate) fn publish(&self, objects: &Objects) {
        for spec in &self.specs {
            let files: Vec<(String, String, u32)> = sources(spec)
                .iter()
                .flat_map(|(name, source)| {
                    let mode =
                        source["defaultMode"].as_u64().map_or(0o644, |mode| u32::try_from(mode).unwrap());
                    objects.files(name, source).into_iter().map(move |(path, content)| (path, content, mode))
                })
                .collect();
            if spec["persistentVolumeClaim"].is_null() {
                self.write(&self.dir.join(text(&spec["name"])), &files);
            }
        }
    }

    fn write(&self, volume: &Path, files: &[(String, String, u32)]) {
        fs::create_dir_all(volume).unwrap();
        let version = (1..).map(|n| volume.join(format!("..{n}"))).find(|path| !path.exists()).unwrap();
        fs::create_dir(&version).unwrap();
        for (name, content, mode) in files {
            let file = version.join(name);
            fs::write(&file, content).unwrap();
            self.own(&file, if self.group.is_some() { mode | 0o440 } else { *mode });
            let link = volume.join(name);
            if link.symlink_metadata().is_err() {
                symlink(Path::new("..data").join(name), link).unwrap();
            }
        }
        self.own(&version, 0o2755);
        self.own(volume, 0o2755);
        let new = volume.join("..data_tmp");
        symlink(version.file_name().unwrap(), &new).unwrap();
        fs::rename(new, volume.join("..data")).unwrap();
    }

    fn claim(&self, name: &str) {
        let path = self.dir.join(name);
        fs::create_dir_all(&path).unwrap();
        // A new file system belongs to root, and fsGroup alone lets anybody else in.
        self.own(&path, if self.group.is_some() { 0o2775 } else { 0o755 });
    }

    fn own(&self, path: &Path, mode: u32) {
        chown(path, Some(0), Some(self.group.unwrap_or(0))).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// The objects that a volume shows, and how.
fn sources(spec: &Value) -> Vec<(String, Value)> {
    let of = |source: &Value, mode: &Value| {
        let mut source = source.clone();
        if source["defaultMode"].is_null() {
            source["defaultMode"] = mode.clone();
        }
        let name = if source["secretName"].is_string() { &source["secretName"] } else { &source["name"] };
        (text(name).to_owned(), source)
    };
    let kinds = ["configMap", "secret"];
    let projected = &spec["projected"];
    if let Some(sources) = projected["sources"].as_array() {
        let source = |source: &Value| {
            let kind = kinds.into_iter().find(|kind| source[kind].is_object());
            of(&source[kind.unwrap_or_else(|| panic!("not known here: {source}"))], &projected["defaultMode"])
        };
        return sources.iter().map(source).collect();
    }
    if let Some(kind) = kinds.into_iter().find(|kind| spec[kind].is_object()) {
        return vec![of(&spec[kind], &Value::Null)];
    }
    assert!(
        spec["emptyDir"].is_object() || spec["persistentVolumeClaim"].is_object(),
        "not known here: {spec}"
    );
    Vec::new()
}
