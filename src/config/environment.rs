//! The environment, read once; and what in it looks like a setting but is none.

use std::{collections::BTreeMap, ffi::OsString};

use super::{Error, options::OPTIONS};

/// What all variables of Toolpulse start with.
const PREFIX: &str = "TOOLPULSE_";
/// Names the file of settings.
pub const CONFIG_VARIABLE: &str = "TOOLPULSE_CONFIG";

/// A copy of environment variables.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        Self::from_pairs(std::env::vars_os())
    }

    /// An environment of these variables. A name that isn't Unicode can't be one of ours and is left out.
    pub fn from_pairs<K: Into<OsString>, V: Into<OsString>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let known = pairs.into_iter().filter_map(|(k, v)| Some((k.into().into_string().ok()?, v.into())));
        Self(known.collect())
    }

    /// The value of a variable, if it is set.
    ///
    /// # Errors
    /// The value is not Unicode.
    pub fn get(&self, name: &str) -> Result<Option<String>, Error> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        match value.to_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(Error::new(format!("{name} from the environment: the value is not valid UTF-8"))),
        }
    }

    /// A warning for each variable with our prefix that is no setting, but for those that Kubernetes puts there.
    pub(super) fn unknown(&self, allowlist_var: Option<&str>) -> Vec<String> {
        let known = |name: &str| {
            name == CONFIG_VARIABLE
                || Some(name) == allowlist_var
                || OPTIONS.iter().any(|o| o.variable == name)
                || is_service_link(name)
        };
        let ours = self.0.keys().filter(|name| name.starts_with(PREFIX));
        ours.filter(|name| !known(name)).map(|name| unknown_variable(name)).collect()
    }
}

fn unknown_variable(name: &str) -> String {
    let all = OPTIONS.iter().map(|o| o.variable).chain([CONFIG_VARIABLE]);
    let near = all.map(|o| (distance(name, o), o)).min().filter(|(d, _)| *d <= 3);
    match near {
        Some((_, near)) => format!("unknown environment variable {name} is ignored; did you mean {near}?"),
        None => format!(
            "unknown environment variable {name} is ignored; `toolpulse config print` lists the known ones"
        ),
    }
}

/// Whether Kubernetes makes such a variable for a Service whose name starts with `toolpulse`:
/// `TOOLPULSE_PORT`, `TOOLPULSE_ADMIN_SERVICE_HOST`, `TOOLPULSE_PORT_50051_TCP_ADDR`.
fn is_service_link(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').skip(1).collect();
    let number = |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_digit());
    let protocol = |w: &str| matches!(w, "TCP" | "UDP" | "SCTP");
    (0..words.len()).any(|at| match &words[at..] {
        ["PORT"] | ["SERVICE", "HOST"] | ["SERVICE", "PORT", ..] => true,
        ["PORT", n, p] => number(n) && protocol(p),
        ["PORT", n, p, "PROTO" | "PORT" | "ADDR"] => number(n) && protocol(p),
        _ => false,
    })
}

/// How many letters must be changed, added or taken away to get from one text to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}
