//! Error pages: a file or a program, which is asked once.

use galgo_proto::{cond, fields::is_one_of, h1::Head};
use galgo_service::body::{Body, Response};

use super::redirect;

/// Paths of error pages, for ranges of statuses.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Errors(pub Vec<((u16, u16), String)>);

impl Errors {
    /// Returns the path of the page that replaces a response that galgo made itself; `None` if the response stays. Responses of
    /// programs and of the configuration stay, whatever their status.
    pub fn replacement_page(&self, response: &Response) -> Option<&str> {
        let own = matches!(response.body, Body::Bytes(_) | Body::Empty);
        own.then(|| self.page_for_status(response.status))?
    }

    /// Returns the path of the page for a status.
    pub fn page_for_status(&self, status: u16) -> Option<&str> {
        let mut pages = self.0.iter().filter(|_| status >= 400);
        let found = pages.find(|((from, to), _)| (*from..=*to).contains(&status));
        found.map(|(_, path)| path.as_str())
    }
}

/// Returns the request for the page of a status. REQUEST_URI stays that of the client's request; conditional fields are removed,
/// because they are about another file. `None`: the page's path is not valid.
pub fn page_request(asked: &Head, mut head: Head, status: u16) -> Option<Head> {
    head.fields.remove(&cond::FIELDS);
    if status == 401 {
        // The credentials are wrong: the page's route would verify them again and log another failure.
        head.fields.remove(&["authorization"]);
    }
    let (path, query) = (head.target.path().to_vec(), head.target.query().to_owned());
    head.target = redirect::target_at(&asked.target, path, Some(query))?;
    Some(head)
}

/// Returns the error with that page as its body.
///
/// # Errors
/// The error without a page, and the status of the page's response: that response is not a page to show.
pub fn with_page(error: Response, mut page: Response) -> Result<Response, (Response, u16)> {
    // If galgo made this answer itself, the page does not exist.
    let own = matches!(page.body, Body::Bytes(_) | Body::Empty);
    match page.status {
        200 => page.status = error.status,
        // A program, an application or a `respond` route may know a more precise error status.
        400.. if !own => {}
        status => return Err((error, status)),
    }
    page.reason = None;
    /// Fields that tell the client about the error: they stay, whatever the page says.
    const KEPT: [&str; 4] = ["WWW-Authenticate", "Allow", "Retry-After", "Content-Range"];
    /// Fields about the page's file, which has another address.
    const ABOUT: [&str; 3] = ["etag", "last-modified", "accept-ranges"];
    page.fields.remove(&ABOUT);
    page.fields.remove(&KEPT);
    let kept = error.fields.iter();
    for (name, value) in kept.filter(|(name, _)| is_one_of(name, &KEPT)) {
        page.fields.push(name, value);
    }
    if !page.fields.has_field("cache-control") {
        page.fields.push("Cache-Control", "no-store");
    }
    Ok(page)
}
