//! Messages of the processes of this crate on standard error.

/// Writes a line, at once.
pub(crate) fn line(words: &str) {
    let line = format!("{words}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

/// Formats words as a message of the worker.
pub(crate) fn of_worker(words: &str) -> String {
    format!("galgo: wasm worker: {words}")
}

/// Writes a line in the name of the worker.
pub(crate) fn say(words: &str) {
    line(&of_worker(words));
}
