//! Puts the layers on top of each other: flags, environment, file, defaults.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use super::{
    Error,
    environment::{CONFIG_VARIABLE, Environment},
    options::{File, OPTIONS, Setting},
    yaml,
};

/// Where the value of a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A flag of the command line.
    Flag,
    /// The environment.
    Environment,
    /// The file of settings: its path, and the line.
    File(String, u64),
    /// Nobody set it.
    Default,
}

impl Origin {
    /// The layer's name.
    pub fn layer(&self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File(..) => "file",
            Self::Default => "default",
        }
    }
}

/// The effective text of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Which setting.
    pub setting: Setting,
    /// Its value, as it was written; empty if unset.
    pub text: String,
    /// Which layer set it.
    pub origin: Origin,
}

impl fmt::Display for Effective {
    /// The setting's name and where it was set, as an operator would look for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.setting.key;
        match &self.origin {
            Origin::Flag => write!(f, "{key} from flag --{}", key.replace('_', "-")),
            Origin::Environment => write!(f, "{key} from environment variable {}", self.setting.variable),
            Origin::File(file, line) => write!(f, "{key} from {file} line {line}"),
            Origin::Default => write!(f, "{key} by default"),
        }
    }
}

/// All settings as texts, each from the topmost layer that has it.
#[derive(Clone, Debug)]
pub struct Layers {
    effective: BTreeMap<&'static str, Effective>,
    environment: Environment,
}

impl Layers {
    /// Reads the layers. `flags` are the given ones by the setting's name; `file` is `--config`.
    ///
    /// # Errors
    /// The file can't be read or is wrong, or a variable is not Unicode.
    pub fn read(
        flags: &[(&'static str, &str)],
        file: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, Error> {
        let file = read_file(file, environment)?;
        let mut effective = BTreeMap::new();
        for setting in OPTIONS {
            let from_flag = flags.iter().find(|(key, _)| *key == setting.key).map(|(_, v)| (*v).to_owned());
            // Compose and Helm write `NAME=` for what is left out: an empty variable is an unset one.
            let from_environment = environment.get(setting.variable)?.filter(|v| !v.is_empty());
            let from_file = file.iter().find(|(key, ..)| *key == setting.key);
            let (text, origin) = match (from_flag, from_environment, from_file) {
                (Some(text), _, _) => (text, Origin::Flag),
                (_, Some(text), _) => (text, Origin::Environment),
                (_, _, Some((_, text, at))) => (text.clone(), at.clone()),
                _ => (setting.default.to_owned(), Origin::Default),
            };
            effective.insert(setting.key, Effective { setting: *setting, text, origin });
        }
        Ok(Self { effective, environment: environment.clone() })
    }

    /// Puts another default in the place of the table's, for a command that is better off with it.
    #[must_use]
    pub fn with_default(mut self, key: &'static str, text: &str) -> Self {
        if let Some(effective) = self.effective.get_mut(key).filter(|e| e.origin == Origin::Default) {
            text.clone_into(&mut effective.text);
        }
        self
    }

    /// All settings, in the table's order.
    pub fn all(&self) -> impl Iterator<Item = &Effective> {
        OPTIONS.iter().filter_map(|setting| self.effective.get(setting.key))
    }

    /// The environment that was read.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// A setting's text and origin. Every key of the table is there.
    pub(super) fn effective(&self, key: &'static str) -> Result<&Effective, Error> {
        self.effective.get(key).ok_or_else(|| Error::new(format!("{key} is not a setting")))
    }

    /// Parses a setting.
    pub(super) fn get<T>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Error> {
        let effective = self.effective(key)?;
        parse(&effective.text).map_err(|what| Error::new(format!("{effective}: {what}")))
    }

    /// Parses a setting that may be unset.
    pub(super) fn optional<T>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        self.get(key, |text| if text.is_empty() { Ok(None) } else { parse(text).map(Some) })
    }
}

/// What the file of settings sets, if one is named.
fn read_file(
    flag: Option<&Path>,
    environment: &Environment,
) -> Result<Vec<(&'static str, String, Origin)>, Error> {
    let variable = environment.get(CONFIG_VARIABLE)?.filter(|v| !v.is_empty());
    let (path, named_by) = match (flag, &variable) {
        (Some(path), _) => (path, "flag --config"),
        (None, Some(path)) => (Path::new(path), "environment variable TOOLPULSE_CONFIG"),
        (None, None) => return Ok(Vec::new()),
    };
    let shown = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|e| {
        Error::new(format!("cannot read the file of settings {shown}, named by {named_by}: {e}"))
    })?;
    let file: Option<File> = yaml::from_str(&text).map_err(|fault| Error::new(fault.in_file(&shown)))?;
    let given = file.unwrap_or_default().given().into_iter();
    Ok(given.map(|(key, value, line)| (key, value, Origin::File(shown.clone(), line))).collect())
}
