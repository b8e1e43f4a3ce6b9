//! What the worker says on its standard error.

pub(super) fn say(words: &str) {
    let line = format!("galgo: wasm worker: {words}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}
