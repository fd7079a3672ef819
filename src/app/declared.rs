//! The manifest's tools: registered at the start, followed on change. Others' tools are never touched.

use std::collections::HashMap;

use tokio::sync::mpsc;

use crate::{
    core::{name::Namespace, refusal::Refusal, registry::plan::Registered, tool::SpecWarning},
    manifest::{Event, Manifest},
    owner::Handle,
    service::{
        convert,
        tools::{Judge, Manner},
    },
};

/// Makes the manifest's tools exactly those that are declared. A name that another owner holds is skipped with a warning.
///
/// # Errors
/// A declared tool is wrong; then nothing changes.
pub(super) async fn declare(handle: &Handle, judge: &Judge, manifest: Manifest) -> Result<(), String> {
    let owner = convert::owner(&manifest.owner)
        .map_err(|fault| format!("the manifest's {} {}", fault.field, fault.message))?;
    let owner: std::sync::Arc<str> = owner.into();
    let mut tools = Vec::new();
    let mut wrong = Vec::new();
    let mut namespaces: HashMap<String, Result<Namespace, String>> = HashMap::new();
    let mut lines = manifest.lines.into_iter();
    for (namespace, spec) in manifest.tools {
        let name = spec.name.clone();
        let line = lines.next().flatten().map(|line| format!("line {line}: ")).unwrap_or_default();
        let parsed = namespaces.entry(namespace.clone()).or_insert_with(|| Namespace::parse(&namespace));
        let namespace = match parsed {
            Ok(namespace) => namespace.clone(),
            Err(message) => {
                wrong.push(format!("{line}tool '{name}': {message}"));
                continue;
            }
        };
        let manner =
            Manner { namespace, owner: owner.clone(), overwrite: true, force: false, from_manifest: true };
        match judge.spec(spec, &manner) {
            Ok(registration) => {
                for warning in judge.rules.warnings(&registration.spec).await {
                    let SpecWarning { field, code, message } = warning;
                    tracing::warn!(tool = %registration.key(), field, code, "a probe of the manifest can't run yet: {message}");
                }
                if registration.spec.unregister_after.is_some() {
                    tracing::warn!(
                        tool = %registration.key(),
                        "unregister_after is ignored: a tool of the manifest goes when the manifest says so"
                    );
                }
                tools.push(registration);
            }
            Err(faults) => wrong.push(format!("{line}tool '{name}': {}", Refusal::Invalid(faults))),
        }
    }
    if !wrong.is_empty() {
        return Err(format!("the manifest declares tools that are wrong: {}", wrong.join("; ")));
    }
    let keys: Vec<_> = tools.iter().map(|tool| tool.key()).collect();
    let answer = handle.declare(tools).await.map_err(|refusal| refusal.to_string())?;
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (key, result) in keys.iter().zip(answer.results) {
        let what = match result {
            Ok((Registered::Created, _)) => "created",
            Ok((Registered::Replaced, _)) => "replaced",
            Ok((Registered::Unchanged, _)) => "unchanged",
            Err(refusal) => {
                tracing::warn!(tool = %key, %refusal, "a tool of the manifest was skipped");
                "skipped"
            }
        };
        *counts.entry(what).or_default() += 1;
    }
    tracing::info!(?counts, "the manifest's tools are registered");
    Ok(())
}

/// Declares each new content of the manifest; a broken one keeps the last good one.
pub(super) async fn follow(handle: Handle, judge: Judge, mut changes: mpsc::Receiver<Event>) {
    while let Some(event) = changes.recv().await {
        let broken = match event {
            Event::Changed(manifest) => declare(&handle, &judge, manifest).await.err(),
            Event::Broken(message) => Some(message),
        };
        if let Some(message) = broken {
            tracing::warn!("the manifest is broken, its last good content stays in force: {message}");
        }
    }
}
