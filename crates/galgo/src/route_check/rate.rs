//! Limits on how often an address may ask a route: `rate_limit`.

use std::time::Duration;

use galgo_handlers::rate_limit::RateSettings;

use crate::config_text::{
    config_error::{Checked, ConfigText},
    raw::{RawRateLimit, Typed},
};

/// Limit of `requests`: no client could exceed a higher number.
const MOST: usize = 1_000_000;
/// Limit of `burst`. At the slowest rate, a request a day, 100,000 requests can still be counted in nanoseconds.
const MOST_AT_ONCE: usize = 100_000;
const DAY: u64 = 24 * 3_600_000;

impl ConfigText<'_> {
    /// Checks `rate_limit`; returns `default` if it is not typed.
    pub(crate) fn check_rate_limit(
        &self,
        typed: &Typed<RawRateLimit>,
        default: Option<RateSettings>,
    ) -> Checked<Option<RateSettings>> {
        let Some(typed) = typed else {
            return Ok(default);
        };
        let raw = match typed.get_ref() {
            RawRateLimit::Text(_) => return Ok(None),
            RawRateLimit::Table(raw) => raw,
        };
        if raw.requests.is_none() {
            let message =
                "lacks `requests`: write it as in { requests = 10, per = \"1s\", burst = 20 }";
            return Err(self.error_at(typed.span(), message));
        }
        let requests = self.check_number(&raw.requests, 1, 1, MOST as u64)?;
        let at_once = requests.min(MOST_AT_ONCE);
        Ok(Some(RateSettings {
            requests,
            per: self.check_time(&raw.per, Duration::from_secs(1), 1, DAY)?,
            burst: self.check_number(&raw.burst, at_once, 1, MOST_AT_ONCE as u64)?,
        }))
    }
}
