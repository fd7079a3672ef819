//! One publish stream. Its life is the gateway's, so it runs in a task of its own: the server drops a call as soon as its
//! client cancels it, and the end of the stream must be seen all the same.

use std::time::Duration;

use tokio::{sync::oneshot, time::timeout};
use tonic::{Status, Streaming};

use super::convert;
use crate::{
    core::{
        gateway::{GatewayId, NewReport, ReportEffect, Source},
        name::Namespace,
        refusal::{Fault, Refusal},
    },
    owner::{GatewayReport, Handle, StreamGuard},
    proto::v1::{PublishGatewayStatusRequest, PublishGatewayStatusResponse},
    service::error,
};

/// After its call was given up, a stream ends within this time if its client ended it. It is long enough for one that only
/// waited for the deadline that we saw first.
const END_AFTER_CALL: Duration = Duration::from_secs(5);

type Answer = Result<PublishGatewayStatusResponse, Status>;

/// Runs a stream to its end. `goodbye` resolves when it is this stream's turn in a drain.
pub(super) async fn run(
    handle: Handle,
    goodbye: impl Future<Output = Duration> + Send + 'static,
    inbound: Streaming<PublishGatewayStatusRequest>,
) -> Answer {
    let (mut reply, answer) = oneshot::channel();
    tokio::spawn(async move {
        let publishing = Publishing { handle, inbound };
        let answer = publishing.run(goodbye, &mut reply).await;
        // Nobody may be there any more to hear it.
        let _ = reply.send(answer);
    });
    answer.await.unwrap_or_else(|_| Err(Status::internal("the stream ended without an answer")))
}

struct Publishing {
    handle: Handle,
    inbound: Streaming<PublishGatewayStatusRequest>,
}

impl Publishing {
    async fn run(
        mut self,
        goodbye: impl Future<Output = Duration> + Send,
        reply: &mut oneshot::Sender<Answer>,
    ) -> Answer {
        let mut goodbye = std::pin::pin!(goodbye);
        let first = tokio::select! {
            first = self.inbound.message() => first?,
            retry_after = &mut goodbye => return Err(error::draining(retry_after)),
        };
        let Some(first) = first else {
            let message = "the stream ended before its first message, which names the gateway";
            return Err(Refusal::invalid("gateway_id", message).into());
        };
        let (namespace, id, new) = convert::report(convert::published(first)).map_err(Refusal::Invalid)?;
        // Dropped on every way out but a clean one: the stream counts as lost then.
        let (stream, guard) = self.handle.open_stream(namespace.clone(), id.clone()).await?;
        let source = Source::Stream(stream.id);
        let mut accepted = 0;
        let mut next = Some(new);
        loop {
            if let Some(new) = next.take() {
                let report = GatewayReport { namespace: namespace.clone(), id: id.clone(), source, new };
                let (effect, _) = self.handle.gateway_report(report).await?;
                accepted += u64::from(effect != ReportEffect::Dropped);
            }
            tokio::select! {
                message = self.inbound.message() => match message? {
                    Some(message) => next = Some(later(message, &namespace, &id)?),
                    None => {
                        guard.clean();
                        return Ok(PublishGatewayStatusResponse { accepted });
                    }
                },
                () = stream.superseded.cancelled() => {
                    return Err(Refusal::Superseded { gateway_id: id.to_string() }.into());
                }
                retry_after = &mut goodbye => return Err(error::draining(retry_after)),
                () = reply.closed() => {
                    self.given_up(guard).await;
                    return Err(Status::cancelled("the call was given up"));
                }
            }
        }
    }

    /// The call is over: its client cancelled it, its deadline passed, or its connection was lost. The stream tells which.
    async fn given_up(mut self, guard: StreamGuard) {
        let end = timeout(END_AFTER_CALL, async {
            loop {
                match self.inbound.message().await {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            }
        });
        if let Ok(Ok(None)) = end.await {
            guard.clean();
        }
    }
}

/// Parses a message after the first, which may leave out whose report it is.
fn later(
    mut message: PublishGatewayStatusRequest,
    namespace: &Namespace,
    id: &GatewayId,
) -> Result<NewReport, Refusal> {
    let mut faults = Vec::new();
    let mut same = |field, given: &mut String, held: &str| {
        if given.is_empty() {
            held.clone_into(given);
        } else if given != held {
            faults.push(Fault::new(field, format!("must be empty or '{held}', as in the first message")));
            held.clone_into(given);
        }
    };
    same("namespace", &mut message.namespace, namespace.as_str());
    same("gateway_id", &mut message.gateway_id, id.as_str());
    match convert::report(convert::published(message)) {
        Ok((_, _, new)) if faults.is_empty() => Ok(new),
        Ok(_) => Err(Refusal::Invalid(faults)),
        Err(more) => Err(Refusal::Invalid(faults.into_iter().chain(more).collect())),
    }
}
