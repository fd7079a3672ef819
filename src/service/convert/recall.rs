//! A spec as a reply shows it, sent again: where a probe is in all that is told what the server has, it is that probe.
//!
//! So no credential ever gets another target, method or header: only the whole probe comes back, to the owner whose it is.

use super::probe;
use crate::{
    core::{
        probe::{Header, HeaderValue, Method, ProbeKind, ProbeSpec},
        tool::StoredTool,
    },
    proto::v1::{self, probe_body, probe_header::Content, probe_spec::Kind},
};

/// Puts back into `given` what replies hide of the tool's probes, where `owner` is its owner.
pub fn recall(given: &mut v1::ToolSpec, stored: &StoredTool, owner: &str) {
    if *stored.owner != *owner {
        return;
    }
    for pb in &mut given.probes {
        let known = stored.spec.probes.iter().find(|known| *known.name == *pb.name);
        if let Some(known) = known
            && probe::to_proto(known) == *pb
        {
            reveal(pb, known);
        }
    }
}

/// Makes whole what `probe::to_proto` made of the same probe.
fn reveal(pb: &mut v1::ProbeSpec, known: &ProbeSpec) {
    match (&mut pb.kind, &known.kind) {
        (Some(Kind::Http(pb)), ProbeKind::Http(known)) => {
            pb.url.clone_from(&known.url.text);
            headers(&mut pb.headers, &known.headers);
            if let (Some(body), Method::Post(text)) = (&mut pb.body, &known.method) {
                body.content = Some(probe_body::Content::Text(text.expose().to_owned()));
            }
        }
        (Some(Kind::Mcp(pb)), ProbeKind::Mcp(known)) => {
            pb.url.clone_from(&known.url.text);
            headers(&mut pb.headers, &known.headers);
        }
        (Some(Kind::Grpc(pb)), ProbeKind::Grpc(known)) => headers(&mut pb.headers, &known.headers),
        _ => {}
    }
}

fn headers(given: &mut [v1::ProbeHeader], known: &[Header]) {
    for (pb, header) in given.iter_mut().zip(known) {
        if let HeaderValue::Literal(text) = &header.value {
            pb.content = Some(Content::Value(text.expose().to_owned()));
        }
    }
}
