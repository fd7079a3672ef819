//! What the server counts about its probes, read from its admin port.

use std::collections::BTreeMap;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::process::Server;

const BUCKET: &str = "toolpulse_probe_lateness_seconds_bucket";
const RESULTS: &str = "toolpulse_probe_results_total";

/// All samples of one moment, by name and labels.
pub(crate) struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    pub(crate) async fn of(server: &Server) -> Self {
        let mut stream = TcpStream::connect(server.admin()).await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        let samples = reply.lines().filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(samples.collect())
    }

    /// What was counted after `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for (name, value) in &mut self.0 {
            *value -= before.0.get(name).copied().unwrap_or(0.0);
        }
        self
    }

    /// Runs that started.
    pub(crate) fn started(&self) -> f64 {
        self.buckets(&["live", "suspect", "new", "down"]).last().map_or(0.0, |(_, count)| *count)
    }

    /// Runs that got no answer.
    pub(crate) fn errors(&self) -> f64 {
        let errors = |name: &&String| name.starts_with(RESULTS) && name.contains("outcome=\"error\"");
        self.0.keys().filter(errors).map(|name| self.0[name]).sum::<f64>().abs()
    }

    /// The bound that this part of all starts in these lanes kept.
    pub(crate) fn lateness(&self, lanes: &[&str], part: f64) -> String {
        let buckets = self.buckets(lanes);
        let total = buckets.last().map_or(0.0, |(_, count)| *count);
        if total == 0.0 {
            return "-".to_owned();
        }
        match buckets.into_iter().find(|(_, count)| *count >= total * part) {
            Some((bound, _)) if bound.is_finite() => format!("<= {} ms", bound * 1e3),
            _ => "more".to_owned(),
        }
    }

    /// How many starts of a lane were later than `seconds`, one of the bounds.
    pub(crate) fn later_than(&self, lane: &str, seconds: f64) -> f64 {
        let buckets = self.buckets(&[lane]);
        let within = buckets.iter().find(|(bound, _)| *bound == seconds).map_or(0.0, |(_, count)| *count);
        buckets.last().map_or(0.0, |(_, count)| *count) - within
    }

    /// Starts so late at most, by bound.
    fn buckets(&self, lanes: &[&str]) -> Vec<(f64, f64)> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (name, count) in &self.0 {
            let label = |key: &str| name.split_once(&format!("{key}=\""))?.1.split('"').next();
            let (true, Some(lane), Some(bound)) = (name.starts_with(BUCKET), label("lane"), label("le"))
            else {
                continue;
            };
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
            match buckets.iter_mut().find(|(known, _)| *known == bound) {
                _ if !lanes.contains(&lane) => {}
                Some((_, sum)) => *sum += count,
                None => buckets.push((bound, *count)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets
    }
}
