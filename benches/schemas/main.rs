//! What judging and rendering cost at the worst: `cargo bench --bench schemas` (some 20 s).
//!
//! Schemas that are within all bounds and made to be expensive, beside an ordinary one. Each is judged as registration does
//! it, and rendered in every format, on one thread. No single step may hold up the calls beside it: p99 under 5 ms.

// What a benchmark finds is for whoever ran it, and a benchmark that can't go on should say why and stop.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod cases;

use std::{hint::black_box, time::Duration};

use tokio::time::Instant;
use toolpulse::{
    core::{
        availability::Defaults,
        name::ToolKey,
        schema::{MAX_BYTES, MAX_NODES},
        tool,
    },
    prober::{carry, egress},
    proto::v1,
    render::{Format, Rendered},
    service::tools::{Judge, Manner},
};

/// What the p99 of every step must stay under.
const TARGET: Duration = Duration::from_millis(5);
/// How often a step is done: enough for a p99, and for the slowest within the time.
const ITERATIONS: usize = 300;
/// When a step that is far too slow is given up.
const PATIENCE: Duration = Duration::from_millis(1_500);

fn main() {
    // `cargo test --all-targets` starts benchmarks too.
    if !std::env::args().any(|arg| arg == "--bench") {
        println!("nothing to test here; run `cargo bench --bench schemas`");
        return;
    }
    println!(
        "p50 and p99 of at most {ITERATIONS} runs, in ms of CPU time; the target is a p99 under {TARGET:?}\n"
    );
    println!("{:26} {:>6} {:16} {:>8} {:>8}  outcome", "schema", "KiB", "step", "p50", "p99");
    let (mut over, mut all) = (0, 0);
    for case in cases::all() {
        for step in steps(&case) {
            all += 1;
            let missed = step.p99 >= TARGET;
            over += usize::from(missed);
            println!(
                "{:26} {:>6.1} {:16} {:>8.3} {:>8.3}  {}{}",
                case.name,
                case.schema.len() as f64 / 1024.0,
                step.name,
                ms(step.p50),
                ms(step.p99),
                step.outcome,
                if missed { "  OVER" } else { "" },
            );
        }
    }
    println!("\n{over} of {all} steps over the target");
}

struct Step {
    name: &'static str,
    p50: Duration,
    p99: Duration,
    outcome: String,
}

fn steps(case: &cases::Case) -> Vec<Step> {
    let judge = Judge {
        defaults: Defaults::default(),
        egress: egress::Policy::default(),
        rules: carry::Rules::default(),
    };
    let manner = Manner::default();
    let given = v1::ToolSpec {
        name: "search_documents".to_owned(),
        description: "Searches all documents.".to_owned(),
        input_schema_json: case.schema.clone(),
        ..Default::default()
    };
    let judged = judge.spec(given.clone(), &manner);
    let told = match &judged {
        Ok(registration) => format!("registered, {} warnings", tool::warnings(&registration.spec).len()),
        Err(faults) => format!("refused, {} faults: {}", faults.len(), short(&faults[0].message)),
    };
    let mut steps = vec![measure("judge", told, || judge.spec(given.clone(), &manner))];
    let Ok(registration) = judged else { return steps };
    let spec = registration.spec;
    steps.push(measure("warnings", String::new(), || tool::warnings(&spec)));
    let key = ToolKey { namespace: manner.namespace, name: spec.name.clone() };
    for format in Format::ALL {
        let told = match format.render(&key, &spec) {
            Rendered::Omitted(omission) => format!("omitted: {}", omission.reason),
            Rendered::Ok { json, losses, .. } => format!("{} bytes, {} losses", json.len(), losses.len()),
        };
        steps.push(measure(format.label(), told, || format.render(&key, &spec)));
    }
    steps
}

fn measure<T>(name: &'static str, outcome: String, mut step: impl FnMut() -> T) -> Step {
    // The first run pays for what is made once for the whole process.
    black_box(step());
    let begin = Instant::now();
    let mut times = Vec::with_capacity(ITERATIONS);
    while times.len() < ITERATIONS && begin.elapsed() < PATIENCE {
        let start = cpu_time();
        let made = black_box(step());
        times.push(cpu_time() - start);
        drop(made);
    }
    times.sort();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    Step { name, p50: at(50), p99: at(99), outcome }
}

/// What this thread has computed so far: on a shared machine, waiting for a core says nothing about the step.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}
