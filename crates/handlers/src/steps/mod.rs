//! Steps before and after the handler of a route, one file each. `dispatch` has their order.

pub mod access;
pub mod compress;
pub mod cors;
pub mod errors;
pub mod headers;
pub mod redirect;
pub mod rewrite;
pub mod template;
pub mod tries;
pub mod variables;

use galgo_proto::h1::{Head, Method};
use galgo_service::{body::Response, fault::Fault, link::Link, request::Request};

use crate::passwords::Passwords;
use crate::{context::Context, status};
use access::{Access, AccessDecision};
use compress::Compress;
use cors::Cors;
use errors::Errors;
use headers::Headers;
use redirect::Redirect;
use tries::Tries;
use variables::VariableRule;

/// The steps of one route.
#[derive(Debug, Default, PartialEq)]
pub struct Steps {
    /// Redirect of the route's clients.
    pub redirect: Option<Redirect>,
    /// Scripts of other origins that may read the responses.
    pub cors: Option<Cors>,
    /// Clients that may send requests at all.
    pub access: Option<Access>,
    /// Users that must show a password.
    pub passwords: Option<Passwords>,
    /// Variables that programs get for some requests.
    pub variables: Vec<VariableRule>,
    /// Paths to try in a folder of files.
    pub tries: Option<Tries>,
    /// Fields of requests and responses.
    pub headers: Option<Headers>,
    /// Pages of errors.
    pub errors: Option<Errors>,
    /// Responses in a content coding.
    pub compress: Option<Compress>,
}

impl Steps {
    /// Returns the answer that every client gets, because it reveals nothing about the site. `rest` is the path below the route.
    pub fn early_response(&self, link: &Link, head: &Head, rest: &[u8]) -> Option<Response> {
        let redirect = self.redirect.as_ref();
        let redirected = redirect.and_then(|redirect| redirect.answer(link, head, rest));
        redirected.or_else(|| self.cors.as_ref()?.preflight(head))
    }

    /// Returns the head that the handler sees; `None` if no step changes it.
    pub fn change_request(&self, head: &Head) -> Option<Head> {
        self.headers.as_ref()?.change_request(head)
    }

    /// Adds variables for programs, besides CGI's own, to a request that may be answered.
    pub fn grant_variables(&self, request: &mut Request<'_>, head: &Head) {
        variables::grant_variables(&self.variables, request, head);
    }

    /// Changes the fields of a response.
    pub fn change_response(&self, head: &Head, response: &mut Response) {
        if let Some(headers) = &self.headers {
            headers.change_response(response);
        }
        if let Some(cors) = &self.cors {
            cors.add_fields(head, &mut response.fields);
        }
    }

    /// Returns the response in a content coding that its client accepts.
    pub fn compress_response(
        &self,
        cx: Context<'_>,
        request: &Request<'_>,
        response: Response,
    ) -> Response {
        match &self.compress {
            Some(compress) => compress.answer(cx, request, response),
            None => response,
        }
    }

    /// Decides by address and method whether the client may send the request.
    pub fn decide_access(&self, link: &Link, method: &Method) -> AccessDecision {
        match &self.access {
            Some(access) => access.judge_request(link, method),
            None => AccessDecision::Allowed,
        }
    }

    /// Checks whether the request may be answered, after the `decision` about its address and method. `Ok(None)`: these steps
    /// allow it.
    ///
    /// # Errors
    /// A step could not decide: the request is not answered.
    pub async fn admit_request(
        &self,
        cx: Context<'_>,
        request: &mut Request<'_>,
        head: &Head,
        decision: AccessDecision,
    ) -> Result<Option<Response>, Fault> {
        let (refused, cause) = match (decision, &self.passwords) {
            (AccessDecision::Trusted, _) | (AccessDecision::Allowed, None) => return Ok(None),
            (AccessDecision::Allowed | AccessDecision::NeedsPassword, Some(passwords)) => {
                return passwords.check_credentials(cx, request, head).await;
            }
            (AccessDecision::OtherMethod(response), _) => {
                let cause = "`access` of the route does not name this method";
                (response, Some(cause))
            }
            (AccessDecision::Denied(response), _) => (response, None),
            (AccessDecision::NeedsPassword, None) => (Response::new(403), None),
        };
        Ok(Some(status::add_page(cx, request, refused, cause)))
    }
}
