//! Answers of a program that several requests share: see [`crate::cache`].

use std::{cell::Cell, fmt::Debug, mem, rc::Rc, sync::Arc};

use galgo_proto::{
    cond::CondOutcome,
    h1::{Head, Method},
};
use galgo_service::{
    admission::ConcurrencyLimit,
    body::{Body, Output, Response},
    fault::Fault,
    producer::OutputEvent,
    request::Request,
};
use tokio::time::{Instant, timeout_at};

use super::{answer as run, context::ProgramContext};
use crate::{
    before_reply::wait_for,
    cache::{
        AnswerCache, rules,
        store::{BODY, Found, Kept, Making},
    },
    context::{Answer, Context},
    program_settings::Cgi,
    reply::{DecidedBy, conditional},
    script::FoundProgram,
    status,
};

/// Answers from memory, or runs the program for all waiting requests, or for this request alone. If a request may have changed
/// the program's resource, its kept answers are forgotten. No request waits for another request's answer longer than for a
/// permit (`queue_wait`).
pub async fn answer(
    cx: ProgramContext<'_>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    (cgi, cache): (&Arc<Cgi>, &Arc<AnswerCache>),
    limit: Option<&Arc<ConcurrencyLimit>>,
    script: FoundProgram<'_>,
) -> Result<Answer, Fault> {
    if !rules::takes_part(request, head) {
        let change = Rc::new(Change {
            cache: cache.clone(),
            resource: rules::resource(head),
            has_failed: Cell::new(!rules::invalidates(&head.method, 200)),
        });
        let carried = Some(change.clone() as Rc<dyn Debug>);
        let answer = run(cx, request, head, cgi, limit, script, carried).await;
        let changes = match &answer {
            Ok(answer) => rules::invalidates(&head.method, status_of(answer)),
            // Its client does not end a program that may go on.
            Err(fault) => matches!(fault, Fault::Gone(_)),
        };
        if changes {
            cache.forget(&change.resource);
        } else {
            change.has_failed.set(true);
        }
        return answer;
    }
    let key = rules::request_key(request, head);
    let makes = head.method == Method::Get;
    let by = Instant::now() + cx.shared.queue_wait;
    loop {
        match cache.find_answer(&key, head, makes) {
            Found::Hit(response) => {
                return Ok(apply_conditions(cx.common, request, head, response));
            }
            Found::Make(making) => {
                let shown = Rc::new(rules::shown_head(head));
                let answer = run(cx, request, &shown, cgi, limit, script, None).await?;
                return keep_answer(cx.common, request, head, answer, making).await;
            }
            Found::Wait(mut done) if Instant::now() < by => {
                // The channel is closed, and its value never changes.
                let waited = async {
                    let _ = timeout_at(by, done.changed()).await;
                    Ok(())
                };
                wait_for(request, waited).await?;
            }
            Found::Wait(_) | Found::Own => {
                return run(cx, request, head, cgi, limit, script, None).await;
            }
        }
    }
}

/// A change of a resource. Its kept answers are forgotten when the response is there, and again when the program has ended: it
/// may go on after its response, and after its client.
#[derive(Debug)]
struct Change {
    cache: Arc<AnswerCache>,
    resource: Vec<u8>,
    /// The program has said that nothing was changed.
    has_failed: Cell<bool>,
}

impl Drop for Change {
    fn drop(&mut self) {
        if !self.has_failed.get() {
            self.cache.forget(&self.resource);
        }
    }
}

/// Returns the status that the program has set. A local redirect shows that its program has not failed.
fn status_of(answer: &Answer) -> u16 {
    match answer {
        Answer::Response(response) => response.status,
        Answer::Local(_) => 302,
    }
}

/// Keeps the answer, if that is allowed, once it is whole: other requests must not wait for a slow client.
async fn keep_answer(
    cx: Context<'_>,
    request: &mut Request<'_>,
    head: &Head,
    answer: Answer,
    making: Making,
) -> Result<Answer, Fault> {
    let Answer::Response(mut response) = answer else {
        making.mark_uncacheable();
        return Ok(answer);
    };
    let long = rules::freshness(response.status, &response.fields, making.max_lifetime());
    let vary = rules::vary_names(&response.fields);
    let body = mem::replace(&mut response.body, Body::Empty);
    let made = match (body, long.zip(vary)) {
        (Body::Stream(output), Some(terms)) if !output.nph && !output.discard => {
            let body = collect_body(request, output).await?;
            body.map(|body| (body, terms)).map_err(Body::Stream)
        }
        (body, _) => Err(body),
    };
    let (body, (long, vary)) = match made {
        Ok(made) => made,
        Err(body) => {
            response.body = body;
            making.mark_uncacheable();
            return Ok(Answer::Response(response));
        }
    };
    let kept = Kept {
        status: response.status,
        reason: response.reason.clone(),
        fields: response.fields.clone(),
        body: body.clone(),
    };
    making.keep_answer(head, vary, long, kept);
    response.fields.push("X-Cache", "miss");
    response.body = Body::Shared(body);
    Ok(apply_conditions(cx, request, head, response))
}

/// Collects the output. `Err(output)`: too large to keep, or not of the promised length.
async fn collect_body(
    request: &mut Request<'_>,
    mut output: Box<Output>,
) -> Result<Result<Arc<[u8]>, Box<Output>>, Fault> {
    let ended = ends_within_limit(request, &mut output).await;
    let promised = output.content_length;
    let ready = output.producer.pending_len();
    match ended {
        Err(fault) => {
            let gone = matches!(fault, Fault::Gone(_));
            output.producer.abandon(gone, Box::new(|_exit| {}));
            return Err(fault);
        }
        Ok(true) if promised.is_none_or(|n| n == ready as u64) => {}
        Ok(_) => return Ok(Err(output)),
    }
    let out = mem::take(output.producer.pending_output());
    let body = out.parts().collect::<Vec<_>>().concat();
    let exit = output.producer.wait_for_exit().await;
    request.entry.borrow_mut().exit = exit;
    let Output {
        producer, source, ..
    } = *output;
    producer.finish(Box::new(move |exit| source.log_late_failure(exit)));
    Ok(Ok(body.into()))
}

/// Returns whether the output ends within the limit of a kept body.
async fn ends_within_limit(request: &mut Request<'_>, output: &mut Output) -> Result<bool, Fault> {
    let producer = &mut output.producer;
    while !producer.has_output_ended() {
        if producer.pending_len() > BODY {
            return Ok(false);
        }
        if producer.next_event(request.client).await? == OutputEvent::HalfClosed {
            request.client.probe_connection();
        }
    }
    match producer.truncation_fault().await {
        Some(fault) => Err(fault),
        None => Ok(producer.pending_len() <= BODY),
    }
}

/// Returns the response for this client, which may be 304 or 412 by the conditions of its request.
fn apply_conditions(
    cx: Context<'_>,
    request: &Request<'_>,
    head: &Head,
    mut response: Response,
) -> Answer {
    let (status, fields) = (&mut response.status, &mut response.fields);
    let outcome = conditional(head, status, fields, DecidedBy::Server);
    match outcome {
        CondOutcome::NotModified => (response.reason, response.body) = (None, Body::Empty),
        CondOutcome::Failed => response = status::add_page(cx, request, Response::new(412), None),
        _ => {}
    }
    Answer::Response(response)
}
