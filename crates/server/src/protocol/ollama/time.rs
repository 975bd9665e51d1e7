//! Points in time as RFC 3339 has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// This moment.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(since)
}

/// The moment so long after the beginning of 1970, in UTC.
pub fn rfc3339(since: Duration) -> String {
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let micros = since.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Year, month and day so many days after the beginning of 1970: Howard Hinnant's `civil_from_days`.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
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
