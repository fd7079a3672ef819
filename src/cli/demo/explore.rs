//! What a person can do with the server that goes on running: commands to copy.

use std::{
    env,
    path::{Path, PathBuf},
};

use super::{super::Failure, narration::Narrator, stage::Stage, targets::Target};

/// Prints the commands.
pub(super) fn print(stage: &Stage, narrator: &Narrator) -> Result<(), Failure> {
    let (server, targets) = (stage.address, stage.targets.http);
    let toolpulse = command(env::current_exe().ok(), env::current_dir().ok());
    narrator.chapter(
        "Go on yourself",
        "The server, the targets and a gateway go on running. In another terminal, in this directory:",
    )?;
    let blocks = [
        (
            "What agents see, what operators see, and why:",
            [
                "tools list --hidden",
                "tools list --format openai-chat --definitions",
                "tools list --all",
                "tools get search_web",
                "status watch",
                "status get",
            ]
            .map(|rest| format!("{toolpulse} {rest} --server {server}"))
            .join("\n"),
        ),
        (
            "Break a target, let it say no, and heal it:",
            ["search/break", "messages/no", "search/heal", "messages/heal"]
                .map(|rest| format!("curl -X POST http://{targets}/{rest}"))
                .join("\n"),
        ),
        (
            "The same API without any of our code:",
            format!(
                "buf curl --protocol grpc --http2-prior-knowledge -d '{{}}' \\\n  \
                 http://{server}/toolpulse.v1.ToolRegistryService/ListAvailableTools\n\
                 curl http://{}/metrics",
                stage.admin
            ),
        ),
    ];
    for (what, commands) in blocks {
        narrator.explain(what)?;
        narrator.verbatim(&commands)?;
    }
    let all = Target::ALL.map(|target| target.to_string()).join(", ");
    narrator.explain(&format!("(Targets are {all}.) Ctrl-C ends it all."))
}

/// How a shell in the directory `here` runs the executable.
fn command(executable: Option<PathBuf>, here: Option<PathBuf>) -> String {
    let Some(executable) = executable else { return "toolpulse".to_owned() };
    let below = here.and_then(|here| executable.strip_prefix(here).map(Path::to_owned).ok());
    let path = below.map_or(executable, |below| Path::new(".").join(below));
    let path = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+".contains(c);
    if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_short_and_quoted() {
        for (executable, here, expected) in [
            (
                "/home/me/toolpulse/target/release/toolpulse",
                "/home/me/toolpulse",
                "./target/release/toolpulse",
            ),
            ("/usr/bin/toolpulse", "/home/me", "/usr/bin/toolpulse"),
            ("/home/me/it's here/toolpulse", "/", r"'./home/me/it'\''s here/toolpulse'"),
            ("/home/me/toolpulse", "/home/me", "./toolpulse"),
        ] {
            assert_eq!(command(Some(executable.into()), Some(here.into())), expected);
        }
        assert_eq!(command(None, None), "toolpulse");
    }
}
