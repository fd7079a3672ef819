//! The `grpc` kind: one call of grpc.health.v1.Health/Check on a connection of its own.

use std::{
    error::Error,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};
use http_body_util::{LengthLimitError, Limited};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tonic::{Code, Status, body::Body};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tower::service_fn;

use super::{
    Failure, Progress, USER_AGENT, carry,
    dial::{Alpn, Dialer},
};
use crate::{
    core::{
        name::quote,
        probe::{ErrorClass, GrpcProbe, Outcome},
    },
    grpc_code::code_name,
};

/// Bytes of an answer that are read: a health answer has two.
pub const MAX_ANSWER: usize = 16 * 1024;

/// Reads the verdict from what the server answered: a serving status, or a code.
pub fn judge(answer: Result<i32, &Status>) -> Outcome {
    let status = match answer {
        Ok(status) => status,
        Err(status) => return judge_code(status),
    };
    match ServingStatus::try_from(status) {
        Ok(ServingStatus::Serving) => Outcome::Pass,
        Ok(no @ (ServingStatus::NotServing | ServingStatus::Unknown | ServingStatus::ServiceUnknown)) => {
            Outcome::no(no.as_str_name(), &format!("health status {}", no.as_str_name()))
        }
        Err(_) => Outcome::no("UNKNOWN", &format!("health status {status}, which is none of the protocol's")),
    }
}

fn judge_code(status: &Status) -> Outcome {
    let name = code_name(status.code());
    let text = match status.message() {
        "" => format!("health check answered {name}"),
        message => format!("health check answered {name}: {message}"),
    };
    match status.code() {
        Code::NotFound | Code::Unimplemented | Code::Unauthenticated | Code::PermissionDenied => {
            Outcome::no(name, &text)
        }
        _ => Outcome::error(ErrorClass::Status, &text),
    }
}

pub(super) async fn run(
    dialer: &Dialer,
    probe: &GrpcProbe,
    progress: &mut Progress,
) -> Result<Outcome, Failure> {
    let scheme = if probe.tls.is_some() { "https" } else { "http" };
    let origin: Uri = format!("{scheme}://{}", probe.target)
        .parse()
        .map_err(|e| Failure::new(ErrorClass::Protocol, format!("the target can't be asked: {e}")))?;
    let audience = carry::audience(&probe.target, probe.tls.is_some(), probe.tls.as_ref());
    let headers = carry::headers(dialer.rules(), &probe.headers, &audience, progress).await?;
    let stream = dialer.open(&probe.target, probe.tls.as_ref(), Alpn::Http2, progress).await?;
    let (spawner, mut spawned) = Spawner::new();
    let cap = MAX_ANSWER as u32;
    let handshake = http2::Builder::new(spawner)
        .initial_stream_window_size(cap)
        .initial_connection_window_size(u32::from(u16::MAX))
        .max_header_list_size(cap)
        .handshake(TokioIo::new(stream));
    let exchange = async {
        let (sender, connection) = handshake.await.map_err(|e| broken(&e))?;
        let mut call = std::pin::pin!(check(sender, origin, &probe.service, headers));
        tokio::select! {
            biased;
            outcome = &mut call => return outcome,
            _ended = connection => {}
        }
        call.await
    };
    tokio::select! {
        biased;
        outcome = exchange => outcome,
        never = poll_fn(|cx| spawned.poll(cx)) => match never {},
    }
}

async fn check(
    sender: SendRequest<Body>,
    origin: Uri,
    service: &str,
    headers: HeaderMap,
) -> Result<Outcome, Failure> {
    // What is not the server's own answer is kept apart: tonic turns such failures into codes, some of which say no.
    let failure = Arc::new(OnceLock::new());
    let seen = failure.clone();
    let transport = service_fn(move |mut request: Request<Body>| {
        request.headers_mut().extend(headers.clone());
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        let (mut sender, seen) = (sender.clone(), seen.clone());
        async move {
            let failure = match sender.send_request(request).await.map(answer) {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(failure)) => failure,
                Err(error) => broken(&error),
            };
            let status = Status::unavailable(failure.message.clone());
            let _first = seen.set(failure);
            Err(status)
        }
    });
    let request = HealthCheckRequest { service: service.to_owned() };
    let checked = HealthClient::with_origin(transport, origin).check(request).await;
    if let Some(failure) = Arc::into_inner(failure).and_then(OnceLock::into_inner) {
        return Err(failure);
    }
    match checked {
        Ok(response) => Ok(judge(Ok(response.into_inner().status))),
        // A status with a source was made here, of a body that broke.
        Err(status) => match status.source() {
            Some(source) => Err(broken(source)),
            None => Ok(judge(Err(&status))),
        },
    }
}

/// Refuses what is not gRPC: the page of a proxy says nothing about the server behind it.
fn answer(response: Response<Incoming>) -> Result<Response<Limited<Incoming>>, Failure> {
    if response.status() != http::StatusCode::OK && !response.headers().contains_key("grpc-status") {
        let text = format!("http status {} instead of a gRPC answer", response.status());
        return Err(Failure::new(ErrorClass::Status, text));
    }
    // The probe accepts no compression.
    if let Some(encoding) = response.headers().get("grpc-encoding").filter(|e| *e != "identity") {
        let text =
            format!("the gRPC answer is encoded as {}", quote(&String::from_utf8_lossy(encoding.as_bytes())));
        return Err(Failure::new(ErrorClass::Protocol, text));
    }
    Ok(response.map(|body| Limited::new(body, MAX_ANSWER)))
}

fn broken(error: &(dyn Error + 'static)) -> Failure {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<LengthLimitError>() {
            let text = format!("the health answer is over {MAX_ANSWER} bytes");
            return Failure::new(ErrorClass::Oversize, text);
        }
        next = error.source();
    }
    Failure::broken("the gRPC answer is broken", error)
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What hyper spawns goes to the run itself, which polls it: a task of the runtime would outlive a dropped run, with
/// its socket.
#[derive(Clone)]
struct Spawner(mpsc::UnboundedSender<Task>);

/// The run's side of a [`Spawner`]. Its queue needs no bound: hyper spawns a handful of tasks for one call.
struct Spawned {
    queue: mpsc::UnboundedReceiver<Task>,
    tasks: Vec<Task>,
}

impl Spawner {
    fn new() -> (Self, Spawned) {
        let (sender, queue) = mpsc::unbounded_channel();
        (Self(sender), Spawned { queue, tasks: Vec::new() })
    }
}

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Spawner {
    fn execute(&self, task: F) {
        // Fails only where the run is over, and then nobody waits for the task.
        let _over = self.0.send(Box::pin(async move { drop(task.await) }));
    }
}

impl Spawned {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<std::convert::Infallible> {
        loop {
            self.tasks.retain_mut(|task| task.as_mut().poll(cx).is_pending());
            match self.queue.poll_recv(cx) {
                Poll::Ready(Some(task)) => self.tasks.push(task),
                _ => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_serving_status() {
        let cases = [
            (0, Outcome::no("UNKNOWN", "health status UNKNOWN")),
            (1, Outcome::Pass),
            (2, Outcome::no("NOT_SERVING", "health status NOT_SERVING")),
            (3, Outcome::no("SERVICE_UNKNOWN", "health status SERVICE_UNKNOWN")),
            (4, Outcome::no("UNKNOWN", "health status 4, which is none of the protocol's")),
            (-1, Outcome::no("UNKNOWN", "health status -1, which is none of the protocol's")),
        ];
        for (status, expect) in cases {
            assert_eq!(judge(Ok(status)), expect, "{status}");
        }
    }

    #[test]
    fn every_code() {
        let no = ["NOT_FOUND", "UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED"];
        let mut names = std::collections::BTreeSet::new();
        for number in 0..=16 {
            let code = Code::from_i32(number);
            let name = code_name(code);
            names.insert(name);
            let expect = if no.contains(&name) {
                Outcome::no(name, &format!("health check answered {name}: why"))
            } else {
                Outcome::error(ErrorClass::Status, &format!("health check answered {name}: why"))
            };
            assert_eq!(judge(Err(&Status::new(code, "w\x1bhy"))), expect, "{name}");
            // tonic prints its codes in words; the names are the protocol's.
            assert_eq!(name.replace('_', "").to_lowercase(), format!("{code:?}").to_lowercase());
        }
        assert_eq!(names.len(), 17);
        let bare = Outcome::no("NOT_FOUND", "health check answered NOT_FOUND");
        assert_eq!(judge(Err(&Status::new(Code::NotFound, ""))), bare);
    }
}
