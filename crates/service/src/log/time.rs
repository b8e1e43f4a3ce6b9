//! Points in time as logs write them, in UTC.

use std::{
    cell::Cell,
    time::{SystemTime, UNIX_EPOCH},
};

/// Year, month, day, hour, minute, second of a point in time.
struct Civil {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    milli: u32,
}

/// Converts days to a date in the proleptic Gregorian calendar (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms").
fn to_civil_date(t: SystemTime) -> Civil {
    let since = t.duration_since(UNIX_EPOCH).unwrap_or_default();
    let secs = since.as_secs();
    let z = secs / 86_400 + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let day_secs = secs % 86_400;
    Civil {
        year: yoe + era * 400 + u64::from(month <= 2),
        month,
        day: doy - (153 * mp + 2) / 5 + 1,
        hour: day_secs / 3600,
        minute: day_secs / 60 % 60,
        second: day_secs % 60,
        milli: since.subsec_millis(),
    }
}

/// Whether this is the first call in this second; `last` is the second of the last call, since the epoch.
pub fn first_of_second(last: &Cell<u64>) -> bool {
    let second = current_second();
    last.replace(second) != second
}

/// Returns the current second since the epoch.
pub(super) fn current_second() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Formats a time as `2026-11-21T01:04:23.250Z` (RFC 3339).
pub fn format_rfc3339(t: SystemTime) -> String {
    let c = to_civil_date(t);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        c.year, c.month, c.day, c.hour, c.minute, c.second, c.milli
    )
}

/// Formats a time as `21/Nov/2026:01:04:23 +0000`, as in the Common Log Format.
pub fn format_clf(t: SystemTime) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let c = to_civil_date(t);
    let month = usize::try_from(c.month - 1)
        .ok()
        .and_then(|m| MONTHS.get(m))
        .unwrap_or(&"???");
    format!(
        "{:02}/{month}/{:04}:{:02}:{:02}:{:02} +0000",
        c.day, c.year, c.hour, c.minute, c.second
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn known_dates() {
        let at = |s| UNIX_EPOCH + Duration::from_millis(s);
        assert_eq!(format_rfc3339(at(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            format_rfc3339(at(951_782_400_001)),
            "2000-02-29T00:00:00.001Z"
        );
        assert_eq!(
            format_clf(at(1_795_223_063_000)),
            "21/Nov/2026:01:04:23 +0000"
        );
        assert_eq!(
            format_clf(at(1_735_689_599_000)),
            "31/Dec/2024:23:59:59 +0000"
        );
    }
}
