//! Rules for every file: size, last line, paths of one machine, open work.

use super::violation::Violation;
use super::words::has_word;
use crate::repository::{File, MAX_FILE_BYTES};

/// Written by people here, so that the rules of form hold. Fixtures come as others wrote them.
const OURS: &[&str] = &["rs", "toml", "md", "py", "sh", "yml", "yaml", "c", "cpp", "h", "hpp"];

/// Starts of paths that exist on one machine only; split so that this file has none.
const MACHINE_PATHS: [&str; 3] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/tm", "p/w/")];

/// Marks of open work; split as above.
pub const OPEN_WORK: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

pub const OPEN_WORK_REMEDY: &str = "do it, or say in the documentation what is not there";

pub fn check(files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files {
        if file.bytes > MAX_FILE_BYTES {
            let message = format!("{} bytes; a file may have 16 MiB: make it smaller", file.bytes);
            violations.push(Violation::new(&file.path, 1, message));
        }
        for (index, line) in file.text.lines().enumerate() {
            if let Some(path) = MACHINE_PATHS.iter().find(|path| names_path(line, path)) {
                let message = format!("`{path}` is a path of one machine; use a relative one");
                violations.push(Violation::new(&file.path, index + 1, message));
            }
        }
        if is_ours(file) {
            if !file.text.is_empty() && !file.text.ends_with('\n') {
                let line = file.text.lines().count();
                let message = "the last line does not end; add a newline";
                violations.push(Violation::new(&file.path, line, message));
            }
            if !file.has_extension(&["rs", "md"]) {
                violations.extend(open_work(file));
            }
        }
    }
    violations
}

fn is_ours(file: &File) -> bool {
    let plain = !file.name().trim_start_matches('.').contains('.');
    plain || file.has_extension(OURS)
}

/// Returns true when an absolute path that starts with `path` is in `line`.
fn names_path(line: &str, path: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || "_.})*~".contains(c);
    line.match_indices(path).any(|(at, _)| !line[..at].ends_with(continues))
}

fn open_work(file: &File) -> impl Iterator<Item = Violation> {
    file.text.lines().enumerate().filter_map(|(index, line)| {
        let word = OPEN_WORK.iter().find(|word| has_word(line, word))?;
        let message = format!("open `{word}`; {OPEN_WORK_REMEDY}");
        Some(Violation::new(&file.path, index + 1, message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::Tree;

    #[test]
    fn a_file_over_the_limit_is_named() {
        let large = "x".repeat(16 << 20);
        Tree::new().with("a.bin", &large).expect(&[]);
        Tree::new().with("a.bin", &format!("{large}x")).expect(&[("a.bin:1", "16 MiB")]);
    }

    #[test]
    fn paths_of_one_machine_are_found_in_files_of_every_kind() {
        for path in MACHINE_PATHS {
            Tree::new()
                .with("a.json", &format!("{{\n\"x\": \"{path}y\"}}"))
                .expect(&[("a.json:2", path)]);
        }
    }

    #[test]
    fn a_relative_path_and_a_longer_name_pass() {
        let [work, root, temporary] = MACHINE_PATHS;
        let text =
            format!("a{work}b .{root}b ${{x}}{work} {}eights\n", temporary.trim_end_matches('/'));
        Tree::new().with("a.md", &text).expect(&[]);
    }

    #[test]
    fn a_last_line_without_an_end_is_found_in_our_files_but_not_in_fixtures() {
        Tree::new().with("a.json", "{}").with("b.jinja", "x").with("c.toml", "").expect(&[]);
        Tree::new().with("a.toml", "[a]\nb = 1").expect(&[("a.toml:2", "newline")]);
        Tree::new().with("LICENSE", "x").expect(&[("LICENSE:1", "newline")]);
        Tree::new().with(".gitignore", "x").expect(&[(".gitignore:1", "newline")]);
    }

    #[test]
    fn open_work_is_found_as_a_word() {
        for word in OPEN_WORK {
            Tree::new()
                .with("a.py", &format!("x = 1\n# {word}: later\n"))
                .expect(&[("a.py:2", word)]);
        }
        Tree::new().with("a.sh", "mktemp a.XXXXXX\n").expect(&[]);
    }
}
