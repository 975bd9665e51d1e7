//! Byte counts as people write and read them.

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

const UNITS: [(&str, u64); 13] = [
    ("", 1),
    ("B", 1),
    ("K", KIB),
    ("M", MIB),
    ("G", GIB),
    ("KiB", KIB),
    ("MiB", MIB),
    ("GiB", GIB),
    ("TiB", TIB),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// A count of bytes from `17179869184`, `16GiB`, `16 GB` or `1.5G`, in any case. `K`, `M` and `G`
/// alone are the binary units.
///
/// # Errors
/// The expected form, for a person.
pub fn parse(text: &str) -> Result<u64, String> {
    let expected = || "expected bytes, such as 17179869184, 512MiB or 16GiB".to_owned();
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let (_, scale) =
        UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(expected)?;
    let too_large = || format!("more than {} bytes", u64::MAX);
    if number.contains('.') {
        let bytes = number.parse::<f64>().map_err(|_| expected())? * *scale as f64;
        // Rounding to f64 makes the limit itself ambiguous, so it is refused as well.
        return if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(too_large()) };
    }
    if number.is_empty() {
        return Err(expected());
    }
    number.parse::<u64>().ok().and_then(|n| n.checked_mul(*scale)).ok_or_else(too_large)
}

/// `18.2 GiB`, `512.0 MiB`, `17 B`.
pub fn human(count: u64) -> String {
    let scaled = |unit: u64| count as f64 / unit as f64;
    match count {
        GIB.. => format!("{:.1} GiB", scaled(GIB)),
        MIB.. => format!("{:.1} MiB", scaled(MIB)),
        KIB.. => format!("{:.1} KiB", scaled(KIB)),
        _ => format!("{count} B"),
    }
}

/// `0.5 of 2.9 GiB`, `512 of 1024 MiB`: so many bytes of `total`, in the unit of the latter.
pub fn of_all(count: u64, total: u64) -> String {
    match total {
        GIB.. => format!("{:.1} of {}", count as f64 / GIB as f64, human(total)),
        _ => format!("{} of {} MiB", count.div_ceil(MIB), total.div_ceil(MIB)),
    }
}

/// `7.4M`, `1.5B`, `812` for a count of parameters.
pub fn parameters(count: u64) -> String {
    match count {
        1_000_000_000.. => format!("{:.1}B", count as f64 / 1e9),
        1_000_000.. => format!("{:.1}M", count as f64 / 1e6),
        1_000.. => format!("{:.1}K", count as f64 / 1e3),
        _ => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{human, parameters, parse};

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("17179869184"), Ok(16 << 30));
        assert_eq!(parse("16GiB"), Ok(16 << 30));
        assert_eq!(parse("16 gib"), Ok(16 << 30));
        assert_eq!(parse("16G"), Ok(16 << 30));
        assert_eq!(parse("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse("2MB"), Ok(2_000_000));
        assert_eq!(parse("512 B"), Ok(512));
    }

    #[test]
    fn sizes_that_are_no_sizes_are_refused() {
        for text in ["", "GiB", "-1", "1.2.3", "16Gi", "NaN", "inf", "1e9", "."] {
            assert!(parse(text).is_err_and(|e| e.starts_with("expected bytes")), "{text}");
        }
        for text in ["99999999999999999999", "99999999999TiB", "99999999999.5TiB"] {
            assert!(parse(text).is_err_and(|e| e.starts_with("more than")), "{text}");
        }
    }

    #[test]
    fn counts_are_printed_for_people() {
        assert_eq!(human(17), "17 B");
        assert_eq!(human(1536), "1.5 KiB");
        assert_eq!(human(3 << 29), "1.5 GiB");
        assert_eq!(parameters(7_350_000), "7.3M");
        assert_eq!(parameters(812), "812");
    }
}
