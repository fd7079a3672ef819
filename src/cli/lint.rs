//! `tools lint`: what a server would say of files of tools, and what each provider would get, without a server.

use std::{collections::HashSet, path::PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::{Failure, json as shown, print, register, tools::Format};
use crate::{
    config::ClientSettings,
    core::{
        name::{Namespace, ToolKey},
        refusal::Fault,
        tool,
    },
    prober::secrets::SECRETS_SETTING,
    proto::v1::{FormatOutcome, FormatVerdict, ToolSpec, Warning},
    render::RULES_VERSION,
    service::{
        convert,
        tools::{Judge, Manner},
    },
};

/// Which files to judge, and for whom.
#[derive(Clone, Debug, Args)]
pub struct LintArgs {
    /// YAML or JSON in the manifest's form, or a tools/list result of MCP; - for stdin
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Only these forms of definitions; else all
    #[arg(long, value_enum, value_name = "FORMATS", value_delimiter = ',')]
    pub format: Vec<Format>,
}

/// What there is to say of one tool.
#[derive(Debug)]
struct Judged {
    namespace: String,
    name: String,
    faults: Vec<Fault>,
    warnings: Vec<Warning>,
    formats: Vec<FormatVerdict>,
    /// A probe of it refers to a secret.
    refers: bool,
}

impl Judged {
    /// Whether it could be registered and every provider would take it.
    fn is_good(&self) -> bool {
        let omitted = self.formats.iter().any(|f| f.verdict() == FormatOutcome::Omitted);
        self.faults.is_empty() && !omitted
    }
}

pub(super) async fn run(args: &LintArgs, settings: &ClientSettings, judge: &Judge) -> Result<(), Failure> {
    let mut judged = Vec::new();
    let mut names = HashSet::new();
    for file in &args.files {
        for (namespace, owner, spec) in register::read(file, None, settings)? {
            let again = !names.insert((namespace.clone(), spec.name.clone()));
            judged.push(one(judge, namespace, &owner, spec, again, &args.format).await);
        }
    }
    if settings.json {
        let tools: Vec<_> = judged.iter().map(to_json).collect();
        let checked = judge.rules.secrets.are_there();
        print::json(&json!({"rules_version": RULES_VERSION, "secrets_checked": checked, "tools": tools}))?;
    } else {
        let rows: Vec<_> = judged.iter().flat_map(rows).collect();
        print::table(&["NAME", "VERDICT", "FORMATS", "WHERE", "WHAT"], &rows)?;
        print::line(&format!("\nJudged by version {RULES_VERSION} of the providers' rules."))?;
        if !judge.rules.secrets.are_there() && judged.iter().any(|judged| judged.refers) {
            print::line(&format!("References to secrets were not looked at: {SECRETS_SETTING} is not set."))?;
        }
    }
    if judged.iter().all(Judged::is_good) { Ok(()) } else { Err(Failure::Silent(1)) }
}

/// The same judge and the same rules as in a server.
async fn one(
    judge: &Judge,
    namespace: String,
    owner: &str,
    spec: ToolSpec,
    again: bool,
    formats: &[Format],
) -> Judged {
    let name = spec.name.clone();
    let mut faults = Vec::new();
    if again {
        faults.push(Fault::new("name", "is in these files more than once"));
    }
    let parsed =
        Namespace::parse(&namespace).map_err(|message| faults.push(Fault::new("namespace", message)));
    if let Err(fault) = convert::owner(owner) {
        faults.push(fault);
    }
    let manner = Manner { namespace: parsed.unwrap_or_default(), ..Manner::default() };
    let (warnings, verdicts) = (Vec::new(), Vec::new());
    let mut judged = Judged { namespace, name, faults, warnings, formats: verdicts, refers: false };
    match judge.spec(spec, &manner) {
        Err(faults) => judged.faults.extend(faults),
        Ok(registration) => {
            let key = ToolKey { namespace: manner.namespace, name: registration.spec.name.clone() };
            judged.refers = registration.spec.probes.iter().any(|probe| probe.kind.refers_to_secrets());
            judged.warnings = match judge.rules.secrets.are_there() {
                true => judge.warnings(&registration.spec).await,
                false => convert::format::warnings(&tool::warnings(&registration.spec)),
            };
            judged.formats = convert::format::verdicts(&key, &registration.spec);
            let asked = |f: &FormatVerdict| formats.iter().any(|format| format.to_proto() == f.format());
            judged.formats.retain(|f| formats.is_empty() || asked(f));
        }
    }
    judged
}

fn to_json(judged: &Judged) -> Value {
    let faults = judged.faults.iter().map(|f| json!({"field": f.field, "message": f.message}));
    json!({
        "namespace": judged.namespace,
        "name": judged.name,
        "valid": judged.faults.is_empty(),
        "faults": faults.collect::<Vec<_>>(),
        "warnings": judged.warnings.iter().map(shown::warning).collect::<Vec<_>>(),
        "formats": judged.formats.iter().map(shown::format_verdict).collect::<Vec<_>>(),
    })
}

/// One row for each thing that is wrong, odd or lost, and one for all formats that take the tool as it is.
fn rows(judged: &Judged) -> Vec<Vec<String>> {
    let row = |verdict: &str, formats: String, place: &str, what: String| {
        vec![judged.name.clone(), verdict.to_owned(), formats, place.to_owned(), what]
    };
    let mut rows = Vec::new();
    for fault in &judged.faults {
        rows.push(row("REJECTED", String::new(), &fault.field, fault.message.clone()));
    }
    for warning in &judged.warnings {
        let what = format!("{}: {}", warning.code, warning.message);
        rows.push(row("WARNING", String::new(), &warning.pointer, what));
    }
    for outcome in [FormatOutcome::Pass, FormatOutcome::Converted] {
        let such = judged.formats.iter().filter(|f| f.verdict() == outcome);
        let names: Vec<_> = such.map(|f| shown::format(f.format)).collect();
        if !names.is_empty() {
            rows.push(row(shown::format_outcome(outcome.into()), names.join(", "), "", String::new()));
        }
    }
    for verdict in &judged.formats {
        let name = || shown::format(verdict.format);
        if verdict.verdict() == FormatOutcome::Omitted {
            let what = format!("{}: {}", verdict.reason, verdict.message);
            rows.push(row("OMITTED", name(), &verdict.pointer, what));
        }
        for loss in &verdict.losses {
            rows.push(row("LOSSY", name(), &loss.pointer, loss.message.clone()));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        core::availability::Defaults,
        prober::{carry, egress},
    };

    async fn lint(input: &str, again: bool, formats: &[Format]) -> Judged {
        let judge = Judge {
            defaults: Defaults::default(),
            egress: egress::Policy::default(),
            rules: carry::Rules::default(),
        };
        let spec = ToolSpec { name: "t".into(), input_schema_json: input.into(), ..Default::default() };
        one(&judge, "default".into(), "me", spec, again, formats).await
    }

    #[tokio::test]
    async fn a_file_is_good_if_every_provider_takes_every_tool() {
        let bad_name = r#"{"type":"object","properties":{"a b":{"type":"string"}}}"#;
        for (input, again, formats, good, verdicts) in [
            ("", false, &[][..], true, &["PASS", "CONVERTED"][..]),
            ("", true, &[], false, &["REJECTED", "PASS", "CONVERTED"]),
            (r#"{"type":"dict"}"#, false, &[], false, &["REJECTED"]),
            (bad_name, false, &[], false, &["PASS", "OMITTED", "OMITTED", "OMITTED"]),
            (bad_name, false, &[Format::Mcp, Format::OpenaiChat], true, &["PASS"]),
            (
                r#"{"type":"object","properties":{"a":{"type":"array"}},"required":["b"]}"#,
                false,
                &[Format::GeminiOpenapi],
                true,
                &["WARNING", "WARNING", "LOSSY"],
            ),
        ] {
            let judged = lint(input, again, formats).await;
            assert_eq!(judged.is_good(), good, "{input}");
            let found: Vec<_> = rows(&judged).into_iter().map(|row| row[1].clone()).collect();
            assert_eq!(found, verdicts, "{input}");
        }
        let json = to_json(&lint(bad_name, false, &[Format::Anthropic]).await);
        assert_eq!(json["formats"][0]["reason"], "PARAMETER_NAME");
        assert_eq!(json["formats"][0]["pointer"], "/properties/a b");
        assert_eq!(json["formats"][0]["format"], "anthropic");
        assert_eq!(json["formats"][0]["rules_version"], RULES_VERSION);
    }
}
