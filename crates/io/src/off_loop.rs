//! System calls that may take long, such as opening a file, in a thread, so that the event loop can go on.

use std::io;

use tokio::sync::oneshot;

/// Runs `does` in a new thread, and waits for its result. If the caller stops waiting, the thread runs on to its end.
///
/// # Errors
/// The system gives us no more threads, or `does` has panicked.
pub async fn off_loop<T: Send + 'static>(
    name: &str,
    does: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (tell, done) = oneshot::channel();
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        // If the task does not wait any more, there is no receiver.
        let _ = tell.send(does());
    })?;
    done.await
        .map_err(|_| io::Error::other("its thread has panicked"))
}
