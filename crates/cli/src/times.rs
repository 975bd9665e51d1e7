//! Durations as people read them.

use std::time::Duration;

/// `25 s`, `3 min 5 s`, `2 h 40 min`, `3 d 4 h`.
pub fn human(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if minutes == 0 => format!("{seconds} s"),
        () if hours == 0 => format!("{minutes} min {} s", seconds % 60),
        () if days == 0 => format!("{hours} h {} min", minutes % 60),
        () => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::human;

    #[test]
    fn times_have_their_two_largest_units() {
        let told = |seconds| human(Duration::from_secs(seconds));
        assert_eq!([0, 59, 185, 9600].map(told), ["0 s", "59 s", "3 min 5 s", "2 h 40 min"]);
        assert_eq!(told(3 * 86_400 + 4 * 3600 + 5), "3 d 4 h");
    }
}
