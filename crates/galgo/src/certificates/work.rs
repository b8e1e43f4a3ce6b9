//! The work for certificates that the current configuration asks for.

use std::sync::Arc;

use galgo_io::tls::Shown;

use super::store::Store;
use crate::certificates::certificate_settings::{Automatic, FromFiles};

/// The work of the keeper.
#[derive(Debug, Default)]
pub struct CertificateWork {
    /// The place that makes new certificates visible to the listeners.
    pub shown: Arc<Shown>,
    /// The certificates from files.
    pub files: Vec<FromFiles>,
    /// The settings of automatic certificates.
    pub automatic: Option<Automatic>,
    /// The folder of obtained certificates.
    pub store: Option<Arc<Store>>,
    /// A listener takes requests without TLS, over which an authority may ask for proofs.
    pub http: bool,
    /// Every client has to show a certificate, and an authority has none.
    pub required: bool,
}
