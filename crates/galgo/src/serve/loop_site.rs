//! The site as one event loop answers by it.

use std::{rc::Rc, sync::Arc};

use galgo_front::settings::Settings;

use crate::{
    body::Response,
    fault::Fault,
    handler::{Context, files},
    id::Id,
    link::Link,
    request::Request,
    resources::Resources,
    service::{Left, Service},
    site::Site,
};

/// A site, and what handlers have of the event loop that answers by it.
#[derive(Debug)]
pub(super) struct LoopSite {
    pub(super) resources: Rc<Resources>,
    pub(super) site: Arc<Site>,
    pub(super) settings: Arc<Settings>,
}

impl LoopSite {
    /// The event loop answers by another site from now on.
    pub(super) fn succeeded_by(&self, site: Arc<Site>, settings: Arc<Settings>) -> Self {
        self.resources.configure(&site.config);
        files::forget();
        Self {
            resources: self.resources.clone(),
            site,
            settings,
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            resources: &self.resources,
            site: &self.site,
        }
    }
}

impl galgo_front::site::Site for LoopSite {
    fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Service for LoopSite {
    async fn call(&self, request: &mut Request<'_>) -> Result<Response, Left> {
        self.context().call(request).await
    }

    fn cut(&self, request: &Request<'_>, fault: &Fault) {
        self.context().cut(request, fault);
    }

    fn refuse(&self, link: &Link, id: Id, fault: &Fault) -> Response {
        self.context().refuse(link, id, fault)
    }
}
