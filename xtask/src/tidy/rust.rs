//! Rules for Rust sources: headers, lengths, `unsafe`, names, open work.

use super::lexer::{self, Line};
use super::text::{OPEN_WORK, OPEN_WORK_REMEDY};
use super::violation::Violation;
use super::words::has_word;
use crate::manifest::package_name;
use crate::repository::File;

/// The crates that may contain `unsafe`.
const UNSAFE_CRATES: [&str; 2] = ["crates/mlx-ffi/", "crates/cpu-kernels/"];

/// Made by bindgen: no rule of form holds for it.
pub(super) const GENERATED: &str = "bindings.rs";

const MAX_LINES: usize = 500;

/// One architecture a file.
const MODELS: &str = "crates/metal-backend/src/models/";
const MAX_MODEL_LINES: usize = 250;

/// Names that say nothing of what a module does.
const EMPTY_NAMES: [&str; 4] = ["utils", "common", "helpers", "manager"];

pub fn check(files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|f| f.has_extension(&["rs"]) && f.name() != GENERATED) {
        let lines = lexer::lines(&file.text);
        violations.extend(header(file));
        violations.extend(length(file));
        violations.extend(names(file, &lines));
        violations.extend(open_work(file, &lines));
        violations.extend(unsafe_code(file, &lines));
    }
    violations.extend(crate_roots(files));
    violations
}

fn header(file: &File) -> Option<Violation> {
    let message = "no `//!` on the first line; say there what the file is";
    (!file.text.starts_with("//!")).then(|| Violation::new(&file.path, 1, message))
}

fn length(file: &File) -> Option<Violation> {
    let lines = file.text.lines().count();
    let (limit, remedy) = match file.path.starts_with(MODELS) {
        true => (MAX_MODEL_LINES, "move what architectures share to the layers"),
        false => (MAX_LINES, "split it by what its parts do"),
    };
    let message = format!("{lines} lines; a file here may have {limit}: {remedy}");
    (lines > limit).then(|| Violation::new(&file.path, limit + 1, message))
}

fn names(file: &File, lines: &[Line]) -> Vec<Violation> {
    let remedy = "says nothing of its contents; name it after what it does";
    let parts = file.path.split('/').map(|part| part.trim_end_matches(".rs"));
    let in_path = parts
        .filter(|part| EMPTY_NAMES.contains(part))
        .map(|part| Violation::new(&file.path, 1, format!("the name `{part}` {remedy}")));
    let declared = lines.iter().enumerate().filter_map(|(index, line)| {
        // A declared file is found by its path.
        let rest = line.code.split_once("mod ")?.1.trim_end();
        let name = EMPTY_NAMES.iter().find(|name| rest.strip_suffix(" {") == Some(**name))?;
        Some(Violation::new(&file.path, index + 1, format!("the name `{name}` {remedy}")))
    });
    in_path.chain(declared).collect()
}

fn open_work(file: &File, lines: &[Line]) -> Vec<Violation> {
    let found = lines.iter().enumerate().filter_map(|(index, line)| {
        let comment = OPEN_WORK.iter().find(|word| has_word(&line.comment, word));
        let what = match comment {
            Some(word) => *word,
            None if has_word(&line.code, "todo!") => "todo!",
            None if has_word(&line.code, "unimplemented!") => "unimplemented!",
            None if line.code.contains("#[ignore") && !is_run_by_another(file, index) => {
                "#[ignore]"
            }
            None => return None,
        };
        let message = format!("open `{what}`; {OPEN_WORK_REMEDY}");
        Some(Violation::new(&file.path, index + 1, message))
    });
    found.collect()
}

/// How tests are ignored that another command runs.
const RUN_BY_ANOTHER: [&str; 2] = [
    r#"#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]"#,
    r#"#[ignore = "needs published checkpoints: cargo xtask real-models"]"#,
];

/// Returns true for an ignored test on a line that another command runs.
fn is_run_by_another(file: &File, line: usize) -> bool {
    file.text.lines().nth(line).is_some_and(|line| RUN_BY_ANOTHER.contains(&line.trim()))
}

fn unsafe_code(file: &File, lines: &[Line]) -> Vec<Violation> {
    let allowed = UNSAFE_CRATES.iter().any(|folder| file.path.starts_with(folder));
    let mut violations = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if !has_word(&line.code, "unsafe") {
            continue;
        }
        if !allowed {
            let message = "`unsafe` outside mlx-ffi; put a safe function there and call it";
            violations.push(Violation::new(&file.path, index + 1, message));
        } else if needs_reason(&line.code) && !has_reason(lines, index) {
            let message = "no `// SAFETY:` above; say there why the call is sound";
            violations.push(Violation::new(&file.path, index + 1, message));
        }
    }
    violations
}

/// Blocks and impls need a reason; a declaration states its conditions in its documentation.
fn needs_reason(code: &str) -> bool {
    ["unsafe {", "unsafe impl"].iter().any(|begin| code.contains(begin))
}

/// Returns true when `// SAFETY:` stands above the statement that the line belongs to.
fn has_reason(lines: &[Line], index: usize) -> bool {
    for line in lines[..index].iter().rev() {
        let code = line.code.trim();
        if line.comment.contains("SAFETY:") && code.is_empty() {
            return true;
        }
        let ends_earlier_statement = code.ends_with([';', '}', '{']) || has_word(code, "unsafe");
        if ends_earlier_statement || code.is_empty() && line.comment.is_empty() {
            return false;
        }
    }
    false
}

/// Every library and program but those that may contain `unsafe` forbids it.
fn crate_roots(files: &[File]) -> Vec<Violation> {
    const FORBID: &str = "#![forbid(unsafe_code)]";
    let manifests = files.iter().filter(|file| file.name() == "Cargo.toml");
    let folders = manifests
        .filter(|file| package_name(&file.text).is_some())
        .map(|file| file.path.trim_end_matches("Cargo.toml"))
        .filter(|folder| !UNSAFE_CRATES.contains(folder));
    let mut violations = Vec::new();
    for folder in folders {
        let roots = files.iter().filter(|file| {
            let below = file.path.strip_prefix(folder).unwrap_or_default();
            let program = below.strip_prefix("src/bin/").is_some_and(|name| !name.contains('/'));
            below == "src/lib.rs" || below == "src/main.rs" || program
        });
        for root in roots {
            if !lexer::lines(&root.text).iter().any(|line| line.code.trim() == FORBID) {
                let message = format!("no `{FORBID}`; add it below the header");
                violations.push(Violation::new(&root.path, 1, message));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::Tree;

    #[test]
    fn a_file_that_does_not_say_what_it_is_is_found() {
        Tree::new().with("a.rs", "// A.\n").expect(&[("a.rs:1", "no `//!`")]);
        Tree::new().with("a.rs", "\n//! A.\n").expect(&[("a.rs:1", "no `//!`")]);
    }

    #[test]
    fn a_long_file_is_found_and_generated_bindings_are_not() {
        let source = |lines: usize| format!("//! A.\n{}", "\n".repeat(lines - 1));
        Tree::new()
            .with("a.rs", &source(500))
            .with("crates/metal-backend/src/models/a.rs", &source(250))
            .with("crates/mlx-ffi/src/bindings.rs", &"unsafe {}\n".repeat(501))
            .expect(&[]);
        Tree::new().with("a.rs", &source(501)).expect(&[("a.rs:501", "may have 500")]);
        Tree::new().with("crates/metal-backend/src/models/a.rs", &source(251)).expect(&[(
            "crates/metal-backend/src/models/a.rs:251",
            "251 lines; a file here may have 250",
        )]);
    }

    #[test]
    fn names_that_say_nothing_are_found_as_files_folders_and_modules() {
        for name in EMPTY_NAMES {
            let (file, folder) = (format!("a/{name}.rs"), format!("{name}/a.rs"));
            Tree::new().with(&file, "//! A.\n").expect(&[(&format!("{file}:1"), name)]);
            Tree::new().with(&folder, "//! A.\n").expect(&[(&format!("{folder}:1"), name)]);
            Tree::new()
                .with("a.rs", &format!("//! A.\npub mod {name} {{\n}}\n"))
                .expect(&[("a.rs:2", name)]);
        }
        Tree::new().with("common_prefix.rs", "//! A.\nmod managers {\n}\n").expect(&[]);
    }

    #[test]
    fn open_work_is_found_in_comments_and_code_but_not_in_strings() {
        for word in OPEN_WORK {
            let comment = format!("//! A.\nfn a() {{}} // {word}: later\n");
            Tree::new().with("a.rs", &comment).expect(&[("a.rs:2", word)]);
            let string = format!("//! A.\nconst A: &str = \"{word}\";\n");
            Tree::new().with("a.rs", &string).expect(&[]);
        }
        for code in ["todo!()", "unimplemented!()", "#[ignore]", "#[ignore = \"slow\"]"] {
            let part = code.split(['(', ']', ' ']).next().unwrap();
            Tree::new().with("a.rs", &format!("//! A.\n{code}\n")).expect(&[("a.rs:2", part)]);
        }
        for ignored in RUN_BY_ANOTHER {
            Tree::new().with("a.rs", &format!("//! A.\n{ignored}\n")).expect(&[]);
        }
    }

    #[test]
    fn unsafe_code_is_found_wherever_it_may_not_be() {
        let source = "//! A.\n// SAFETY: none.\nfn a() { unsafe { b() } }\n";
        Tree::new().with("a/src/b.rs", source).expect(&[("a/src/b.rs:3", "outside mlx-ffi")]);
        let mentions = "//! On `unsafe`.\n#![deny(unsafe_code)]\nconst A: &str = \"unsafe\";\n";
        Tree::new().with("a/src/b.rs", mentions).expect(&[]);
    }

    #[test]
    fn an_unsafe_block_needs_its_reason_above_its_own_statement() {
        let with =
            |body: &str| Tree::new().with("crates/mlx-ffi/src/a.rs", &format!("//! A.\n{body}\n"));
        with("// SAFETY: why,\n// at length.\nunsafe { b() };").expect(&[]);
        with("// SAFETY: why.\nArray::from_op(|out| unsafe { b(out) })").expect(&[]);
        with("// SAFETY: why.\nlet a =\n    unsafe { b() };").expect(&[]);
        with("// SAFETY: why.\n#[allow(x)]\nunsafe impl A for B {}").expect(&[]);
        with("/// # Safety\n/// When.\npub unsafe fn a() {}").expect(&[]);

        let found = |line| [(line, "no `// SAFETY:`")];
        with("// Why.\nunsafe { b() };").expect(&found("crates/mlx-ffi/src/a.rs:3"));
        with("// SAFETY: why.\n\nunsafe { b() };").expect(&found("crates/mlx-ffi/src/a.rs:4"));
        with("// SAFETY: why.\nc();\nunsafe { b() };").expect(&found("crates/mlx-ffi/src/a.rs:4"));
        with("// SAFETY: why.\nunsafe { b() }\nunsafe { c() }")
            .expect(&found("crates/mlx-ffi/src/a.rs:4"));
    }

    #[test]
    fn every_crate_root_but_those_of_the_unsafe_crates_forbids_unsafe_code() {
        let manifest = "[package]\nname = \"inference-server\"\n";
        let forbid = "//! A.\n#![forbid(unsafe_code)]\n";
        Tree::new()
            .with("a/Cargo.toml", manifest)
            .with("a/src/lib.rs", forbid)
            .with("a/src/main.rs", "//! A.\n// #![forbid(unsafe_code)]\nmod c;\n")
            .with("a/src/bin/b.rs", "//! A.\n")
            .with("a/src/c.rs", "//! A.\n")
            .expect(&[("a/src/bin/b.rs:1", "forbid"), ("a/src/main.rs:1", "forbid")]);
        Tree::new()
            .with("crates/mlx-ffi/Cargo.toml", "[package]\nname = \"mlx-ffi\"\n")
            .with("crates/mlx-ffi/src/lib.rs", "//! A.\n")
            .expect(&[]);
    }
}
