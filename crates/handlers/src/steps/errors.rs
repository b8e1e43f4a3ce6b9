//! Pages of errors: a file or a program, which is asked once.

use galgo_proto::{Fields, h1::Head};

use super::redirect;
use crate::body::{Body, Response};

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
    const ABOUT: [&str; 6] = [
        "range",
        "if-match",
        "if-none-match",
        "if-modified-since",
        "if-unmodified-since",
        "if-range",
    ];
    // What was shown is wrong: it would be verified again, and be logged as another failure.
    let refused = (status == 401).then_some("authorization");
    head.fields.retain(|name, _| {
        let mut dropped = ABOUT.into_iter().chain(refused);
        !dropped.any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
    });
    let (path, query) = (head.target.path().to_vec(), head.target.query().to_owned());
    head.target = redirect::at(&asked.target, path, Some(query))?;
    Some(head)
}

/// The error with that page.
///
/// # Errors
/// The error as it is: the page was answered with this status, and is none to show.
pub fn with_page(mut error: Response, mut page: Response) -> Result<Response, (Response, u16)> {
    let program = matches!(page.body, Body::Stream(_));
    match page.status {
        200 => page.status = error.status,
        // A program may know better which error it is.
        400.. if program => {}
        status => return Err((error, status)),
    }
    page.reason = None;
    /// What a client needs to know of the error, whatever its page says.
    const KEPT: [&str; 4] = ["WWW-Authenticate", "Allow", "Retry-After", "Content-Range"];
    /// What is about a file that has a place of its own.
    const ABOUT: [&str; 3] = ["etag", "last-modified", "accept-ranges"];
    let has = |list: &[&str], name: &[u8]| {
        list.iter()
            .any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
    };
    page.fields
        .retain(|name, _| !has(&ABOUT, name) && !has(&KEPT, name));
    let fields = std::mem::replace(&mut error.fields, Fields::new());
    for (name, value) in fields.iter().filter(|(name, _)| has(&KEPT, name)) {
        page.fields.push(name, value);
    }
    if !page.fields.has("cache-control") {
        page.fields.push("Cache-Control", "no-store");
    }
    Ok(page)
}
