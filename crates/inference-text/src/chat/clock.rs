//! The wall clock as an argument, for templates that print today's date.

/// A local date and time, without its zone.
///
/// Templates read it through `strftime_now`; it is passed in so that a render
/// is a function of its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    /// Seconds since 1970-01-01 00:00:00 **local** time.
    pub seconds: i64,
}

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

struct Civil {
    year: i64,
    /// 1 to 12.
    month: usize,
    /// 1 to 31.
    day: i64,
    /// 0 is Sunday.
    weekday: usize,
    /// 1 to 366.
    yearday: i64,
}

impl LocalTime {
    /// Now, in UTC: the zone of a server is nobody's business in a prompt.
    pub fn now_utc() -> LocalTime {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        LocalTime { seconds: since.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(0)) }
    }

    /// Formats as Python's `datetime.strftime` does in the C locale.
    ///
    /// Directives: `a A b B c d e f F D H I j m M p S T R U w W x X y Y Z z %`, and
    /// glibc's `-` flag (`%-d`). An unknown directive is kept as it is written.
    pub fn strftime(&self, format: &str) -> String {
        let mut out = String::new();
        self.write(format, &mut out);
        out
    }

    fn write(&self, format: &str, out: &mut String) {
        let date = self.civil();
        let second_of_day = self.seconds.rem_euclid(86_400);
        let (hour, minute, second) =
            (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
        let hour12 = (hour + 11) % 12 + 1;
        let month = MONTHS[date.month - 1];
        let weekday = date.weekday as i64;
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut directive = chars.next();
            let padded = directive != Some('-');
            if !padded {
                directive = chars.next();
            }
            let mut number = |value: i64, width: usize, fill: char| {
                let digits = value.to_string();
                if padded {
                    out.extend(std::iter::repeat_n(fill, width.saturating_sub(digits.len())));
                }
                out.push_str(&digits);
            };
            match directive {
                Some('d') => number(date.day, 2, '0'),
                Some('e') => number(date.day, 2, ' '),
                Some('m') => number(date.month as i64, 2, '0'),
                Some('y') => number(date.year.rem_euclid(100), 2, '0'),
                Some('Y') => number(date.year, 1, '0'),
                Some('H') => number(hour, 2, '0'),
                Some('I') => number(hour12, 2, '0'),
                Some('M') => number(minute, 2, '0'),
                Some('S') => number(second, 2, '0'),
                Some('j') => number(date.yearday, 3, '0'),
                Some('w') => number(weekday, 1, '0'),
                Some('U') => number((date.yearday + 6 - weekday) / 7, 2, '0'),
                Some('W') => number((date.yearday + 6 - (weekday + 6) % 7) / 7, 2, '0'),
                Some('f') => out.push_str("000000"),
                Some('a') => out.push_str(&DAYS[date.weekday][..3]),
                Some('A') => out.push_str(DAYS[date.weekday]),
                Some('b' | 'h') => out.push_str(&month[..3]),
                Some('B') => out.push_str(month),
                Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
                Some('c') => self.write("%a %b %e %H:%M:%S %Y", out),
                Some('x' | 'D') => self.write("%m/%d/%y", out),
                Some('X' | 'T') => self.write("%H:%M:%S", out),
                Some('R') => self.write("%H:%M", out),
                Some('F') => self.write("%Y-%m-%d", out),
                // A naive datetime has no zone: Python prints nothing.
                Some('Z' | 'z') => {}
                Some('%') => out.push('%'),
                Some(other) => {
                    out.push('%');
                    if !padded {
                        out.push('-');
                    }
                    out.push(other);
                }
                None => out.push('%'),
            }
        }
    }

    /// Days to a civil date, after Howard Hinnant's `civil_from_days`.
    fn civil(&self) -> Civil {
        // Years beyond these bounds are no dates; it also keeps the sums from overflowing.
        let days = self.seconds.div_euclid(86_400).clamp(-700_000, 3_000_000);
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let doe = z.rem_euclid(146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + i64::from(month <= 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month as usize - 1];
        let yearday = before + day + i64::from(leap && month > 2);
        Civil {
            year,
            month: month as usize,
            day,
            weekday: (days + 4).rem_euclid(7) as usize,
            yearday,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LocalTime;

    #[test]
    fn dates_print_as_python_prints_them() {
        // datetime(2024, 7, 26, 14, 5, 9)
        let t = LocalTime { seconds: 1_722_002_709 };
        assert_eq!(t.strftime("%d %b %Y"), "26 Jul 2024");
        assert_eq!(
            t.strftime("%A, %-d %B %Y %H:%M:%S %I %p %j %%"),
            "Friday, 26 July 2024 14:05:09 02 PM 208 %"
        );
        assert_eq!(
            t.strftime("%c|%x|%F|%U|%W|%w"),
            "Fri Jul 26 14:05:09 2024|07/26/24|2024-07-26|29|30|5"
        );
        // datetime(2000, 2, 29), datetime(1969, 12, 31)
        assert_eq!(LocalTime { seconds: 951_782_400 }.strftime("%Y-%m-%d %j"), "2000-02-29 060");
        assert_eq!(LocalTime { seconds: -86_400 }.strftime("%Y-%m-%d %a"), "1969-12-31 Wed");
        assert_eq!(LocalTime { seconds: i64::MIN }.strftime("%Q %").len(), 4);
    }
}
