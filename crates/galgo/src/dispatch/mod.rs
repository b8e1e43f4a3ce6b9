//! The steps that a request passes through. Their order is fixed, and each step may answer:
//!
//! 1. proofs for a certificate authority  2. redirect to HTTPS, if the site asks for it  3. rewrites  4. route  5. its rate limit
//! 6. its redirect, and questions of browsers for other origins  7. access  8. passwords  9. authorizer, variables by rules
//! 10. a folder's missing slash  11. paths to try  12. fields of the request  13. handler  14. the page of an error
//! 15. fields of every response  16. its content coding
//!
//! A local redirect starts again at step 3, a tried path and an error's page at step 4. Each is then a request to the route
//! of its own path, and no rule of that route is skipped.

use std::{mem, rc::Rc, sync::Arc};

use galgo_front::front_settings::Settings;
use galgo_handlers::{
    files, status,
    steps::{
        Steps,
        errors::{self, Errors},
        redirect,
    },
};
use galgo_proto::h1::{ALLOW, Head};

pub use crate::handle::Dispatch;
use galgo_service::{
    body::Response,
    fault::Fault,
    id::Id,
    link::Link,
    log::Level,
    request::Request,
    service::{Left, Service},
};

use crate::{
    handle::{Unanswered, is_file},
    passage::{
        MAX_LOCAL_REDIRECTS, Passage, answer_and_follow, answer_before_route, reset_variables,
    },
    site::Site,
};

impl Dispatch {
    /// Returns a dispatcher that takes over from this one and answers by another site.
    pub fn succeeded_by(&self, site: Arc<Site>, settings: Arc<Settings>) -> Self {
        let config = &site.config;
        self.resources
            .configure(config.umask, config.templates.clone());
        files::forget_cached();
        Self {
            resources: self.resources.clone(),
            site,
            settings,
            trace: None,
        }
    }

    /// Runs the last steps: the fields of the route, the fields of every response, and the response's coding.
    fn change_response(
        &self,
        request: &Request<'_>,
        steps: Option<&Steps>,
        response: &mut Response,
    ) {
        if let Some(steps) = steps {
            steps.change_response(&request.head, response);
            let plain = mem::replace(response, Response::new(0));
            *response = steps.compress_response(self.context(), request, plain);
        }
        // Lifetimes and rules of fields depend on the type of the unchanged content, which the client already has (RFC 9110,
        // 15.4.5).
        if response.status == 304 {
            response.fields.remove(&["content-type"]);
        }
        self.add_hsts(request.link, response);
    }

    fn add_hsts(&self, link: &Link, response: &mut Response) {
        if let (Some(hsts), Some(_)) = (&self.site.config.tls.hsts, &link.tls) {
            // RFC 6797, 7.2: only a response over TLS may carry this field.
            response.fields.push("Strict-Transport-Security", hsts);
        }
    }

    /// Returns the error pages that apply to a response.
    fn error_pages<'a>(&'a self, steps: Option<&'a Steps>) -> Option<&'a Errors> {
        let own = steps.and_then(|steps| steps.errors.as_ref());
        own.or(self.site.config.errors.as_ref())
    }

    /// Puts the page that answers at `path` into an error; returns the error unchanged if that fails.
    async fn add_error_page(
        &self,
        request: &mut Request<'_>,
        error: Response,
        path: &str,
        fault: Option<Fault>,
    ) -> Response {
        let shown = !matches!(fault, None | Some(Fault::NotFound));
        let page = redirect::local_request(&request.head, path).ok();
        let head = page.and_then(|page| errors::page_request(&request.head, page, error.status));
        let Some(head) = head else {
            return error;
        };
        // A developer sees the cause instead.
        if shown && status::shows_cause(&self.site.shared, request) {
            self.note(|trace| trace.note("errors", "a browser on this machine sees the cause"));
            return error;
        }
        let full = matches!(
            fault,
            Some(Fault::Busy(_) | Fault::Stalled(_) | Fault::TooMany(_))
        );
        if full && !is_file(&self.site.config.routes, &head) {
            // The server refused this request because it is full; the page must not add load.
            return error;
        }
        let outcome = request.entry.borrow().outcome;
        let page = self.ask_for_page(request, head, error.status, full).await;
        request.entry.borrow_mut().outcome = outcome;
        let (error, why) = match page {
            Ok(page) => match errors::with_page(error, page) {
                Ok(whole) => return whole,
                Err((error, status)) => (error, format!("it is answered with {status}")),
            },
            // Clients that ask too often must not fill the log either.
            Err(None | Some(Fault::TooMany(_))) => return error,
            Err(Some(fault)) => (error, fault.to_string()),
        };
        let words = format!("no error page for status {}: {path}: {why}", error.status);
        self.note(|trace| trace.note("errors", &words));
        let about = format!("[{}]", &*request.id().to_base32());
        self.resources.errors.write(Level::Warn, &about, &words);
        error
    }

    /// Returns the answer of an error's page. `Err(None)`: the page leads to another path, and there is no room to look
    /// there.
    async fn ask_for_page(
        &self,
        request: &mut Request<'_>,
        head: Head,
        status: u16,
        full: bool,
    ) -> Result<Response, Option<Fault>> {
        let asked = Passage::new(self, Some(status));
        // A front server meant its file for the request, and not for the page.
        request.named = None;
        let head = Rc::new(head);
        reset_variables(&asked, request, &head);
        let most = if full { 0 } else { MAX_LOCAL_REDIRECTS };
        let answered = answer_and_follow(&asked, request, head, most).await;
        answered.map_err(|unanswered| match unanswered {
            Unanswered::Fault(fault) => Some(fault),
            _ if full => None,
            endless => Some(endless.into_fault()),
        })
    }
}

impl galgo_front::site::SiteService for Dispatch {
    fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Service for Dispatch {
    async fn call(&self, request: &mut Request<'_>) -> Result<Response, Left> {
        let asked = Passage::new(self, None);
        let mut head = request.head.clone();
        let answered = match answer_before_route(&asked, request, &mut head) {
            Some(response) => Ok(response),
            None => answer_and_follow(&asked, request, head, MAX_LOCAL_REDIRECTS).await,
        };
        let (response, fault) = match answered.map_err(Unanswered::into_fault) {
            Ok(response) => (response, None),
            Err(fault) => {
                self.note(|trace| trace.note_fault(&fault));
                status::report_fault(&self.resources, request, &fault);
                if let Fault::Gone(_) = fault {
                    return Err(Left);
                }
                request.last = matches!(fault, Fault::Client(..));
                request.refused = matches!(
                    fault,
                    Fault::Busy(_) | Fault::Stalled(_) | Fault::TooMany(_)
                );
                let failed = status::failure_response(&self.site.shared, request, &fault);
                (failed, Some(fault))
            }
        };
        let steps = asked.steps.get();
        let pages = self.error_pages(steps);
        self.note(|trace| {
            trace.note_end((&self.site.config, request.link), &response, steps, pages);
        });
        let mut response = match pages.and_then(|pages| pages.replacement_page(&response)) {
            // Boxed, so that the future of a successful request stays small.
            Some(page) => Box::pin(self.add_error_page(request, response, page, fault)).await,
            None => response,
        };
        self.change_response(request, steps, &mut response);
        Ok(response)
    }

    fn log_cut_response(&self, request: &Request<'_>, fault: &Fault) {
        status::report_fault(&self.resources, request, fault);
    }

    fn build_refusal(&self, link: &Link, id: Id, fault: &Fault) -> Response {
        self.resources.log_refusal(link, id, b"", fault);
        let mut response = status::unread_response(&self.site.shared, link, fault, &id.to_base32());
        if response.status == 405 {
            response.fields.push("Allow", ALLOW);
        }
        self.add_hsts(link, &mut response);
        response
    }
}

#[cfg(test)]
mod tests;
