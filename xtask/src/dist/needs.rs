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
                let bytes = fs::read(&path)?;
                needs.add(&bytes);
                needs.add_macos(&bytes);
            }
        }
    }
    Ok(needs)
}

/// Returns true for a program or library of 64 bits for macOS.
pub fn is_mach_o(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xcf, 0xfa, 0xed, 0xfe])
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
                    self.newest(name, version);
                }
            }
        }
    }

    /// Adds the oldest macOS that a Mach-O file of 64 bits starts on, which its `LC_BUILD_VERSION`
    /// says.
    pub fn add_macos(&mut self, bytes: &[u8]) {
        const BUILD_VERSION: u32 = 0x32;
        const COMMANDS: usize = 32;
        let number = |at: usize| {
            let four = bytes.get(at..at.checked_add(4)?)?;
            Some(u32::from_le_bytes(four.try_into().ok()?))
        };
        if !is_mach_o(bytes) {
            return;
        }
        let mut at = COMMANDS;
        for _ in 0..number(16).unwrap_or(0) {
            let (Some(kind), Some(size)) = (number(at), number(at + 4)) else { return };
            if kind == BUILD_VERSION
                && let Some(oldest) = number(at + 12)
            {
                self.newest("macOS", vec![oldest >> 16, oldest >> 8 & 0xff]);
            }
            at += size.max(8) as usize;
        }
    }

    fn newest(&mut self, name: &'static str, version: Vec<u32>) {
        let known = self.0.entry(name).or_default();
        *known = version.max(known.clone());
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

    #[test]
    fn the_oldest_macos_is_that_of_the_newest_file() {
        // A header of 32 bytes, a command of another kind, and `LC_BUILD_VERSION`.
        let file = |oldest: u32| {
            let mut words = vec![0xfeed_facf, 0x0100_000c, 0, 6, 2, 56, 0, 0];
            words.extend([0x19, 24, 0, 0, 0, 0, 0x32, 32, 1, oldest, 0x1a_0200, 0, 0, 0]);
            words.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>()
        };
        let mut needs = Needs::default();
        for oldest in [0x0f_0000, 0x1a_0200, 0x0e_0000] {
            needs.add_macos(&file(oldest));
        }
        assert_eq!(needs.to_string(), "macOS 26.2 or newer");
        let mut cut = Needs::default();
        for end in 0..file(0x0f_0000).len() - 20 {
            cut.add_macos(&file(0x0f_0000)[..end]);
        }
        assert_eq!(cut, Needs::default());
    }
}
