//! A strict sandbox without a helper: the command's own process is its program's.

use std::sync::Arc;

use galgo_spawn::sandbox::Prepared;

use crate::config::Cgi;

/// Enters namespaces, where that may be, and prepares the rest: before the command becomes anybody.
pub(super) fn prepare(cgi: Option<&Arc<Cgi>>) -> Result<Option<Prepared>, String> {
    let Some((cgi, strict)) = cgi.and_then(|cgi| Some((cgi, cgi.options.strict.as_ref()?))) else {
        return Ok(None);
    };
    let interpreters = cgi.interpreters.iter().map(|(_, path)| path.as_path());
    let interpreters: Vec<_> = interpreters.collect();
    let prepared = strict.prepare(cgi.root.path(), &interpreters, None);
    let prepared = prepared.map_err(|e| format!("cannot confine the program: {e}"))?;
    Ok(Some(prepared))
}
