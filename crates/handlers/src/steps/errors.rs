//! Pages of errors: a file or a program, which is asked once.

use galgo_proto::{cond, fields::is_one_of, h1::Head};
use galgo_service::body::{Body, Response};

use super::redirect;

/// Which page an error has.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Errors(pub Vec<((u16, u16), String)>);

impl Errors {
    /// The path of the page of a response that galgo has made itself; `None`: it stays as it is. What a program or the
    /// configuration says stays, whatever its status.
    pub fn page(&self, response: &Response) -> Option<&str> {
        let own = matches!(response.body, Body::Bytes(_) | Body::Empty);
        own.then(|| self.of(response.status))?
    }

    /// The path of the page of a status.
    pub fn of(&self, status: u16) -> Option<&str> {
        let mut pages = self.0.iter().filter(|_| status >= 400);
        let found = pages.find(|((from, to), _)| (*from..=*to).contains(&status));
        found.map(|(_, path)| path.as_str())
    }
}

/// The request for the page of a status: REQUEST_URI is what the client asked for, and nothing is about the file that was
/// meant. `None`: there is no such path.
pub fn request(asked: &Head, mut head: Head, status: u16) -> Option<Head> {
    head.fields.remove(&cond::FIELDS);
    if status == 401 {
        // What was shown is wrong: it would be verified again, and be logged as another failure.
        head.fields.remove(&["authorization"]);
    }
    let (path, query) = (head.target.path().to_vec(), head.target.query().to_owned());
    head.target = redirect::at(&asked.target, path, Some(query))?;
    Some(head)
}

/// The error with that page.
///
/// # Errors
/// The error as it is: the page was answered with this status, and is none to show.
pub fn with_page(error: Response, mut page: Response) -> Result<Response, (Response, u16)> {
    // An answer that galgo makes itself says that there is no page.
    let own = matches!(page.body, Body::Bytes(_) | Body::Empty);
    match page.status {
        200 => page.status = error.status,
        // A program, an application or a `respond` route may know better which error it is.
        400.. if !own => {}
        status => return Err((error, status)),
    }
    page.reason = None;
    /// What a client needs to know of the error, whatever its page says.
    const KEPT: [&str; 4] = ["WWW-Authenticate", "Allow", "Retry-After", "Content-Range"];
    /// What is about a file that has a place of its own.
    const ABOUT: [&str; 3] = ["etag", "last-modified", "accept-ranges"];
    page.fields.remove(&ABOUT);
    page.fields.remove(&KEPT);
    let kept = error.fields.iter();
    for (name, value) in kept.filter(|(name, _)| is_one_of(name, &KEPT)) {
        page.fields.push(name, value);
    }
    if !page.fields.has("cache-control") {
        page.fields.push("Cache-Control", "no-store");
    }
    Ok(page)
}
