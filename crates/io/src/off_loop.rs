//! What may take long in the kernel, a file that is opened among others, for an event loop that goes on meanwhile.

use std::io;

use tokio::sync::oneshot;

/// Does it in a thread of its own. Whoever stops waiting leaves it to end by itself.
///
/// # Errors
/// There is no thread to be had.
pub async fn off_loop<T: Send + 'static>(
    name: &str,
    does: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (tell, done) = oneshot::channel();
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        // The task may not be waiting any more.
        let _ = tell.send(does());
    })?;
    done.await
        .map_err(|_| io::Error::other("its thread has panicked"))
}
