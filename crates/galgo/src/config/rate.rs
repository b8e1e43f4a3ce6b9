//! How often an address may ask a route: `rate_limit`.

use std::time::Duration;

use galgo_handlers::rate_limit::RateSettings;

use super::{
    error::{Checked, ConfigText},
    raw::{RawRateLimit, Typed},
};

/// More are no limit that a client could meet.
const MOST: usize = 1_000_000;
/// So that even the slowest rate can be counted in nanoseconds: 100,000 requests of a day each.
const MOST_AT_ONCE: usize = 100_000;
const DAY: u64 = 24 * 3_600_000;

impl ConfigText<'_> {
    /// What is typed, else what `[defaults]` says.
    pub(super) fn rate_limit(
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
            return Err(self.error(typed.span(), message));
        }
        let requests = self.number(&raw.requests, 1, 1, MOST as u64)?;
        let at_once = requests.min(MOST_AT_ONCE);
        Ok(Some(RateSettings {
            requests,
            per: self.time(&raw.per, Duration::from_secs(1), 1, DAY)?,
            burst: self.number(&raw.burst, at_once, 1, MOST_AT_ONCE as u64)?,
        }))
    }
}
