//! `ml launch --print`: what an agent would be started with.

use std::path::Path;

use super::setup::{API_KEY, Setup};
use crate::args::LaunchArgs;
use crate::failure::Result;
use crate::output::print_line;

/// The place of a folder that is made as the agent starts.
const FOLDER: &str = "FOLDER";

/// Prints how `program` would be started with `setup`. `trust` is its variable for authorities.
///
/// # Errors
/// Nobody reads it.
pub fn print(args: &LaunchArgs, program: &str, setup: &Setup, trust: &str) -> Result<()> {
    lines(args, program, setup, trust).iter().try_for_each(print_line)
}

fn lines(args: &LaunchArgs, program: &str, setup: &Setup, trust: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(model) = &args.model {
        let name = args.model_name.iter().map(|name| format!(" --model-name {}", word(name)));
        let (model, name) = (word(&model.to_string_lossy()), name.collect::<String>());
        lines.push(format!("# as long as the agent: ml serve --model {model}{name}"));
    }
    let folder = Path::new(FOLDER);
    if let Some(made) = &setup.folder {
        lines.push(format!("# {FOLDER}/{}, in a folder that goes with the agent:", made.file.path));
        lines.push(format!("# {}", made.file.shown.as_ref().unwrap_or(&made.file.text)));
        let links = made.beside.as_ref().filter(|beside| beside.is_dir());
        let parent = folder.join(made.file.path);
        let parent = parent.parent().unwrap_or(folder);
        lines.extend(links.map(|beside| {
            format!("# {}: links to the rest of {}", parent.display(), beside.display())
        }));
    }
    let mut words = vec!["env".to_owned()];
    let removed = [API_KEY].into_iter().chain(setup.removed.iter().copied());
    words.extend(removed.flat_map(|name| ["-u".to_owned(), name.to_owned()]));
    let mut set = |name: &str, value: &str| words.push(format!("{name}={}", word(value)));
    setup.variables.iter().for_each(|(name, value)| set(name, value));
    if let Some(file) = &args.tls_ca {
        set(trust, &file.to_string_lossy());
    }
    let made = setup.folder.as_ref();
    if let Some(name) = made.and_then(|made| made.variable()) {
        set(name, FOLDER);
    }
    words.push(program.to_owned());
    let of_folder = made.map(|made| made.arguments(folder)).unwrap_or_default();
    let arguments = of_folder.iter().chain(&setup.arguments).chain(&args.arguments);
    words.extend(arguments.map(|argument| word(&argument.to_string_lossy())));
    lines.push(words.join(" "));
    lines
}

/// A word as shells read it.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.,:=@+%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn words_are_those_of_shells() {
        assert_eq!(word("--model=a/b:1"), "--model=a/b:1");
        assert_eq!(word(""), "''");
        assert_eq!(word("it's $a"), r"'it'\''s $a'");
    }
}
