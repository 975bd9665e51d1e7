//! Requirements of an archive's programs and libraries on a system.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Result;

/// The newest versions that are asked for, by what is asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs(BTreeMap<&'static str, Vec<u32>>);

/// How versioned symbols name what has them, and what that is.
const NAMES: [(&str, &str); 2] = [("GLIBC_", "glibc"), ("GLIBCXX_", "libstdc++ with GLIBCXX")];

/// The requirements of the files in `bin` and `lib`.
pub fn of(folder: &Path) -> Result<Needs> {
    let mut needs = Needs::default();
    for part in ["bin", "lib"] {
        for entry in fs::read_dir(folder.join(part))? {
            let path = entry?.path();
            if path.is_file() {
                needs.add(&fs::read(&path)?);
            }
        }
    }
    Ok(needs)
}

impl Needs {
    /// Adds what an ELF file asks for: the versions stand in its table of names, each ended by a
    /// NUL.
    fn add(&mut self, bytes: &[u8]) {
        for (prefix, name) in NAMES {
            for at in memmem(bytes, prefix.as_bytes()) {
                let rest = &bytes[at + prefix.len()..];
                let end = rest.iter().position(|byte| *byte == 0).unwrap_or(0).min(16);
                let text = String::from_utf8_lossy(&rest[..end]);
                let version: Result<Vec<u32>, _> = text.split('.').map(str::parse).collect();
                if let Ok(version) = version.map_err(|_: std::num::ParseIntError| ()) {
                    let known = self.0.entry(name).or_default();
                    *known = version.max(known.clone());
                }
            }
        }
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> = self
            .0
            .iter()
            .map(|(name, version)| {
                let version: Vec<String> = version.iter().map(u32::to_string).collect();
                format!("{name} {} or newer", version.join("."))
            })
            .collect();
        match each.is_empty() {
            true => f.write_str("nothing but the system"),
            false => f.write_str(&each.join(" and ")),
        }
    }
}

/// The offsets at which `what` begins in `bytes`, with nothing of a name before it.
fn memmem<'a>(bytes: &'a [u8], what: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let starts = bytes.windows(what.len() + 1).enumerate();
    starts.filter(move |(_, window)| window[0] == 0 && &window[1..] == what).map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts_by_its_numbers() {
        let mut needs = Needs::default();
        needs
            .add(b"\x7fELF\0GLIBC_2.4\0GLIBC_2.34\0GLIBC_PRIVATE\0GLIBCXX_3.4.9\0GLIBCXX_3.4.30\0");
        let text = needs.to_string();
        assert_eq!(text, "glibc 2.34 or newer and libstdc++ with GLIBCXX 3.4.30 or newer");
        assert_eq!(Needs::default().to_string(), "nothing but the system");
    }
}
