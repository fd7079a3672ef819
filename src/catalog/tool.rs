//! One tool as readers see it: what is durable, what is observed, and its definitions in the forms that were asked for.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::{
    search::Terms,
    stamps::{Changes, Stamps},
};
use crate::{
    core::{
        availability::{ToolState, Transition, Verdict, Windows},
        hash::ContentHash,
        name::{Namespace, ToolKey, ToolName},
        policy::Disabled,
        probe::{ErrorClass, Outcome, Why},
        registry::{Entry, Registry},
        time::Moment,
        tool::{SpecWarning, StoredTool, ToolSpec, label_warning, schema_warnings, tls_warnings},
    },
    render::{Format, Loss, Omission, Rendered},
};

/// One tool as readers see it.
#[derive(Debug)]
pub struct CatalogTool {
    /// What is durable.
    pub stored: Arc<StoredTool>,
    /// What is observed.
    pub status: Status,
    /// The windows in force.
    pub windows: Windows,
    /// Switched off by an operator.
    pub disabled: Option<Arc<Disabled>>,
    /// When it changed.
    pub stamps: Stamps,
    /// When its next window ends.
    pub(super) window_end: Option<Moment>,
    definitions: Arc<Definitions>,
    terms: Arc<OnceLock<Terms>>,
}

/// What is observed of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What agents see.
    pub verdict: Verdict,
    /// Available by a last success alone.
    pub last_good: bool,
    /// Why it is not plainly available: code, text and class.
    pub trouble: Option<Trouble>,
    /// When the verdict last changed.
    pub since: Moment,
    /// It came and went too often lately.
    pub flapping: bool,
    /// How its verdict turned, the newest last.
    pub transitions: Arc<VecDeque<Transition>>,
    /// In the spec's order.
    pub probes: Vec<ProbeStatus>,
}

/// Why a tool or a probe is not plainly available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// UPPER_SNAKE.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Where it is an error.
    pub class: Option<ErrorClass>,
}

/// What is known of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its own verdict.
    pub verdict: Verdict,
    /// A success stands in for errors.
    pub last_good: bool,
    /// The newest outcome.
    pub outcome: Option<Outcome>,
    /// When it last passed.
    pub last_success: Option<Moment>,
    /// When the newest run ended.
    pub last_probe: Option<Moment>,
    /// How long it took.
    pub duration: Duration,
    /// The address it connected to.
    pub address: Option<std::net::SocketAddr>,
    /// When the next run is due.
    pub next: Option<Moment>,
    /// Errors in a row.
    pub consecutive_errors: u32,
    /// Passes in a row.
    pub consecutive_passes: u32,
    /// `NO`s since the last `PASS`.
    pub noes: u32,
}

/// A tool's definition in one format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The name inside it.
    pub exposed_name: String,
    /// Compact JSON text.
    pub json: String,
    /// What the format can't say of the tool.
    pub losses: Vec<Loss>,
    /// Hash of everything that an agent sees of the tool in this format.
    pub digest: [u8; 32],
    /// Made when it is listed first.
    encoded: OnceLock<Box<[u8]>>,
}

impl Definition {
    /// What `encode` makes of it: the first time it is asked for, and then as long as it lives.
    pub fn encoded(&self, encode: impl FnOnce(&Self) -> Vec<u8>) -> &[u8] {
        self.encoded.get_or_init(|| encode(self).into())
    }
}

/// Made on the first use, kept while the spec stays the same. Boxed: most tools are asked for in one format or two.
#[derive(Debug, Default)]
struct Definitions {
    by_format: [OnceLock<Box<Result<Definition, Omission>>>; Format::ALL.len()],
    schema_warnings: OnceLock<Vec<SpecWarning>>,
}

impl CatalogTool {
    /// The tool as the registry knows it now. `before` lends its definitions, if the spec is still the same. What is not as
    /// `before` is stamped with `revision`.
    pub fn new(entry: &Entry, registry: &Registry, before: Option<&Self>, revision: u64) -> Self {
        let same_spec = before
            .filter(|b| b.stored.spec_hash == entry.stored.spec_hash && b.stored.key == entry.stored.key);
        let mut tool = Self {
            stored: Arc::clone(&entry.stored),
            status: status(entry, registry),
            windows: entry.windows,
            disabled: registry.access.disabled(&entry.stored.key).cloned(),
            stamps: Stamps::new(revision),
            window_end: entry.window_end(),
            definitions: same_spec.map_or_else(Arc::default, |b| Arc::clone(&b.definitions)),
            terms: same_spec.map_or_else(Arc::default, |b| Arc::clone(&b.terms)),
        };
        if let Some(before) = before {
            tool.stamps = before.stamps.after(before.changes(&tool), revision);
        }
        tool
    }

    /// What of it is not the same in its newer state.
    fn changes(&self, newer: &Self) -> Changes {
        let (was, is) = (&self.stored, &newer.stored);
        let same = Arc::ptr_eq(was, is);
        Changes {
            spec: !same && was.spec_hash != is.spec_hash,
            access: !same
                && (was.spec.labels != is.spec.labels
                    || was.approved != is.approved
                    || was.owner != is.owner)
                || self.disabled != newer.disabled,
            flipped: self.is_available() != newer.is_available(),
            other: !same && was != is || !self.status.is_shown_as(&newer.status),
        }
    }

    /// What is kept of it once it is gone: who could see it, and when it changed.
    pub(super) fn remains(&self) -> Self {
        let spec = ToolSpec {
            labels: self.stored.spec.labels.clone(),
            ..ToolSpec::new(self.stored.key.name.clone())
        };
        Self {
            stored: Arc::new(StoredTool { spec: Arc::new(spec), ..StoredTool::clone(&self.stored) }),
            status: Status {
                trouble: None,
                transitions: Arc::default(),
                probes: Vec::new(),
                ..self.status.clone()
            },
            windows: self.windows,
            disabled: self.disabled.clone(),
            stamps: self.stamps,
            window_end: None,
            definitions: Arc::default(),
            terms: Arc::default(),
        }
    }

    /// The same tool, switched off or on.
    pub(super) fn switched(&self, disabled: Option<Arc<Disabled>>) -> Self {
        Self {
            stored: Arc::clone(&self.stored),
            status: self.status.clone(),
            windows: self.windows,
            disabled,
            stamps: self.stamps,
            window_end: self.window_end,
            definitions: Arc::clone(&self.definitions),
            terms: Arc::clone(&self.terms),
        }
    }

    /// Whether agents may see it, as far as it itself is concerned.
    pub fn is_available(&self) -> bool {
        self.status.verdict == Verdict::Available
    }

    /// The words that a search finds it by.
    pub(super) fn terms(&self) -> &Terms {
        self.terms.get_or_init(|| Terms::of(&self.stored.spec))
    }

    /// Its definition in a format, made once.
    ///
    /// # Errors
    /// Why the format leaves it out.
    pub fn definition(&self, format: Format) -> Result<&Definition, &Omission> {
        let made = self.definitions.by_format[format as usize].get_or_init(|| Box::new(self.define(format)));
        (**made).as_ref()
    }

    /// What its owner should know of its spec. Labels are judged anew: definitions are kept while only they change.
    pub fn warnings(&self) -> Vec<SpecWarning> {
        let spec = &self.stored.spec;
        let schemas = self.definitions.schema_warnings.get_or_init(|| schema_warnings(spec));
        schemas.iter().cloned().chain(label_warning(spec)).chain(tls_warnings(spec)).collect()
    }

    fn define(&self, format: Format) -> Result<Definition, Omission> {
        let key = &self.stored.key;
        match format.render(key, &self.stored.spec) {
            Rendered::Omitted(omission) => Err(omission),
            Rendered::Ok { json, losses, .. } => {
                let exposed_name = format.exposed_name(key).into_owned();
                let mut hash = ContentHash::new("toolpulse definition 1");
                hash.text(key.name.as_str()).text(&exposed_name).text(&self.stored.spec_hash).text(&json);
                Ok(Definition { exposed_name, json, losses, digest: hash.finish(), encoded: OnceLock::new() })
            }
        }
    }
}

impl Status {
    /// Whether it is no change for operators: what moves with every run of a probe alone is none.
    fn is_shown_as(&self, newer: &Self) -> bool {
        // What turned is told by what it turned to.
        let Self { verdict, last_good, trouble, since, flapping, transitions: _, probes } = self;
        let same = |(was, is): (&ProbeStatus, &ProbeStatus)| {
            (&was.name, was.verdict, was.last_good, &was.outcome)
                == (&is.name, is.verdict, is.last_good, &is.outcome)
        };
        (*verdict, *last_good, trouble, *since, *flapping)
            == (newer.verdict, newer.last_good, &newer.trouble, newer.since, newer.flapping)
            && probes.len() == newer.probes.len()
            && probes.iter().zip(&newer.probes).all(same)
    }
}

/// The `gateway_status` tool that agents may be shown: no arguments, always available, in every namespace.
pub(super) fn builtin_gateway_status() -> CatalogTool {
    let name = ToolName::parse("gateway_status").unwrap_or_else(|_| unreachable!("a valid name"));
    let spec = ToolSpec {
        description: "Report the gateway's live self-state (read-only).".to_owned(),
        input_schema: r#"{"type":"object","properties":{},"required":[]}"#.to_owned(),
        annotations: r#"{"readOnlyHint":true}"#.to_owned(),
        ..ToolSpec::new(name.clone())
    };
    let (windows, _) = Windows::clamp(&spec.windows, &Default::default());
    let stored = StoredTool {
        key: ToolKey { namespace: Namespace::default(), name },
        spec_hash: crate::core::tool::spec_hash(&spec),
        spec: Arc::new(spec),
        owner: "toolpulse".into(),
        generation: 0,
        from_manifest: false,
        approved: None,
        create_time_ms: 0,
        update_time_ms: 0,
    };
    let state = ToolState::new(Vec::new(), Moment::START);
    let status = Status {
        verdict: state.verdict(),
        last_good: false,
        trouble: None,
        since: state.since(),
        flapping: false,
        transitions: Arc::default(),
        probes: Vec::new(),
    };
    CatalogTool {
        stored: Arc::new(stored),
        status,
        windows,
        disabled: None,
        stamps: Stamps::new(0),
        window_end: None,
        definitions: Arc::default(),
        terms: Arc::default(),
    }
}

fn status(entry: &Entry, registry: &Registry) -> Status {
    let state = &entry.state;
    let probes = entry.stored.spec.probes.iter().zip(&state.probes).enumerate();
    let probes = probes.map(|(index, (spec, probe))| ProbeStatus {
        name: Arc::clone(&spec.name),
        verdict: probe.verdict(),
        last_good: probe.last_good(),
        outcome: probe.newest().map(|n| n.outcome.clone()),
        last_success: probe.last_success(),
        last_probe: probe.newest().map(|n| n.at),
        duration: probe.newest().map_or(Duration::ZERO, |n| n.duration),
        address: probe.newest().and_then(|n| n.address),
        next: registry.due(entry, index),
        consecutive_errors: probe.consecutive_errors(),
        consecutive_passes: probe.consecutive_passes(),
        noes: probe.noes(),
    });
    Status {
        verdict: state.verdict(),
        last_good: state.last_good(),
        trouble: trouble(entry),
        since: state.since(),
        flapping: state.is_flapping(),
        transitions: Arc::clone(state.transitions()),
        probes: probes.collect(),
    }
}

fn trouble(entry: &Entry) -> Option<Trouble> {
    let index = entry.state.culprit()?;
    let name = &entry.stored.spec.probes[index].name;
    let Some((class, why)) = entry.state.probes[index].trouble() else {
        let message = match entry.state.verdict() {
            Verdict::Pending => format!("probe '{name}' was never asked yet"),
            _ => format!("probe '{name}' has no result since the restart; its last success still counts"),
        };
        let reason = if entry.state.verdict() == Verdict::Pending { "NEVER_PROBED" } else { "LAST_GOOD" };
        return Some(Trouble { reason: reason.to_owned(), message, class: None });
    };
    let probe = &entry.state.probes[index];
    let windows = &entry.windows;
    let count = if probe.recovers() {
        format!(" passed {} of {} times", probe.consecutive_passes(), windows.success_threshold)
    } else if probe.last_good() && class.is_none() {
        format!(" said no {} of {} times", probe.noes(), windows.failure_threshold)
    } else {
        String::new()
    };
    let message = cleaned(&format!("probe '{name}'{count}: {}", why.message));
    Some(Trouble { reason: reason(*class, why).to_owned(), message, class: *class })
}

impl Trouble {
    /// Why a tool's verdict turned; none: a probe passed.
    pub fn of(transition: &Transition) -> Option<Self> {
        let (class, why) = transition.cause.as_ref()?;
        let message = why.message.to_string();
        Some(Self { reason: reason(*class, why).to_owned(), message, class: *class })
    }
}

fn reason(class: Option<ErrorClass>, why: &Why) -> &str {
    if class.is_some() { "PROBE_ERROR" } else { &why.reason }
}

fn cleaned(text: &str) -> String {
    crate::core::name::clean(text, crate::core::probe::MAX_MESSAGE)
}
