//! What answers the requests of an event loop.

use std::sync::Arc;

use galgo_service::service::Service;
use tokio::sync::oneshot;

use crate::{listener::Listener, settings::Settings};

/// What answers the requests of one event loop, as it is configured. A request holds the site that it began with, so what
/// is behind a site is dropped with the last request of it.
pub trait SiteService: Service + 'static {
    /// How clients are spoken with.
    fn settings(&self) -> &Settings;
}

/// A site that takes the place of another. It is made on the thread of its event loop.
pub struct NewSite<S> {
    /// Makes it, given the one before.
    pub make: Box<dyn FnOnce(&S) -> S + Send>,
    /// The listeners that it is the first to name.
    pub listeners: Vec<Listener>,
    /// Dropped when the event loop has it.
    pub taken: Arc<oneshot::Sender<()>>,
}
