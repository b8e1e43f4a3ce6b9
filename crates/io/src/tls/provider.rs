//! The cryptography that TLS uses.

use std::sync::{Arc, OnceLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Returns the AWS-LC provider.
pub(super) fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider()))
}
