//! Why requests were refused: words for the error log, so that an operator need not guess at a 400. The access log has
//! them all.

use crate::{
    fault::Fault,
    id::Id,
    link::Link,
    log::{ErrorLog, Level, told::NamedClients},
};

/// Clients that one event loop has named in this second.
#[derive(Debug, Default)]
pub(crate) struct Reasons(NamedClients);

impl Reasons {
    /// Says in `errors` why `fault` is the client's. `path` is empty where it is not known.
    pub(crate) fn note(&self, errors: &ErrorLog, link: &Link, id: Id, path: &[u8], fault: &Fault) {
        if !self.0.is_first(link.remote_ip) {
            return;
        }
        let space = if path.is_empty() { "" } else { " " };
        let path = String::from_utf8_lossy(path);
        let about = format!("[{}]{space}{path}", &*id.text());
        let words = format!("{} for {}: {fault}", fault.status(), link.remote);
        errors.write(Level::Info, &about, &words);
    }
}
