//! Work in progress on another thread, while the task that asked for it does something else.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

/// A future that is kept: a task that gives up waiting for it may wait again.
pub struct Task<T>(Pin<Box<dyn Future<Output = T>>>);

impl<T> Task<T> {
    /// Wraps work, which begins when it is first waited for.
    pub fn new(work: impl Future<Output = T> + 'static) -> Self {
        Self(Box::pin(work))
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.0.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Task")
    }
}
