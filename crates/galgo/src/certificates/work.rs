//! What there is to do for certificates, by the configuration that is in use.

use std::sync::Arc;

use galgo_io::tls::Shown;

use super::{
    settings::{Automatic, FromFiles},
    store::Store,
};

/// What the keeper has to do.
#[derive(Debug, Default)]
pub struct CertificateWork {
    /// Where what comes is shown.
    pub shown: Arc<Shown>,
    /// The certificates from files.
    pub files: Vec<FromFiles>,
    /// The certificates that come by themselves.
    pub automatic: Option<Automatic>,
    /// What was obtained.
    pub store: Option<Arc<Store>>,
    /// A listener takes requests without TLS, by which an authority may ask for proofs.
    pub http: bool,
    /// Every client has to show a certificate, which an authority does not have.
    pub required: bool,
}
