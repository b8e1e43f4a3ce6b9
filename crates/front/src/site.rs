//! The site of an event loop, which answers its requests.

use std::sync::Arc;

use galgo_service::service::Service;
use tokio::sync::oneshot;

use crate::{front_settings::Settings, listener::Listener};

/// Answers the requests of one event loop, as configured. A request keeps the site that it began with. So a site and its
/// resources are dropped with its last request.
pub trait SiteService: Service + 'static {
    /// Returns the settings for connections with clients.
    fn settings(&self) -> &Settings;
}

/// A site that is to replace the current site. It is made on the thread of its event loop.
pub struct NewSite<S> {
    /// Makes the new site, given the current one.
    pub make: Box<dyn FnOnce(&S) -> S + Send>,
    /// The listeners that only the new site names.
    pub listeners: Vec<Listener>,
    /// Dropped once the event loop has the new site.
    pub taken: Arc<oneshot::Sender<()>>,
}
