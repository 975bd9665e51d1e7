//! Points in time as RFC 3339 has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use inference_text::LocalTime;

/// This moment.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(since)
}

/// The moment so long after the beginning of 1970, in UTC.
pub fn rfc3339(since: Duration) -> String {
    let at = LocalTime { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX) };
    format!("{}.{:06}Z", at.strftime("%FT%T"), since.subsec_micros())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::rfc3339;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| rfc3339(Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000000Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59.000000Z");
        let part = Duration::from_micros(1_709_164_800_000_007);
        assert_eq!(rfc3339(part), "2024-02-29T00:00:00.000007Z");
    }
}
