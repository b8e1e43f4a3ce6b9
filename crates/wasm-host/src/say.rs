//! Messages of the processes of this crate on standard error.

/// Writes a line, at once.
pub(crate) fn write_line(words: &str) {
    let line = format!("{words}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

/// Formats words as a message of the worker.
pub(crate) fn with_worker_prefix(words: &str) -> String {
    format!("galgo: wasm worker: {words}")
}

/// Writes a line in the name of the worker.
pub(crate) fn log_as_worker(words: &str) {
    write_line(&with_worker_prefix(words));
}
