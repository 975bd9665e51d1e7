//! Completion at the prompt: commands, options, models and files.

use std::fs;
use std::path::Path;

use hub::{Cache, Settings as HubSettings, known};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use super::session::Settings;
use super::slash::{COMMANDS, expand};

/// Completes what is typed.
pub struct Completion;

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        Ok(candidates(&line[..position], models))
    }
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {}
impl Validator for Completion {}
impl Helper for Completion {}

/// Returns where the word begins that is completed, and how it may go on. `models` tells the names
/// of models.
fn candidates(typed: &str, models: impl FnOnce() -> Vec<String>) -> (usize, Vec<Pair>) {
    if !typed.starts_with('/') || typed.starts_with("//") {
        return (typed.len(), Vec::new());
    }
    let Some((command, rest)) = typed.split_once(' ') else {
        return (0, beginning_with(typed, COMMANDS.map(str::to_owned)));
    };
    let start = typed.len() - rest.len();
    match command {
        "/model" => {
            let mut pairs = beginning_with(rest, models());
            pairs.extend(files(rest));
            (start, pairs)
        }
        "/load" | "/save" | "/image" | "/audio" => (start, files(rest)),
        "/set" if !rest.contains(' ') => {
            let names = Settings::names().into_iter().chain(["reset".to_owned()]);
            (start, beginning_with(rest, names))
        }
        _ => (typed.len(), Vec::new()),
    }
}

fn beginning_with(beginning: &str, names: impl IntoIterator<Item = String>) -> Vec<Pair> {
    let names = names.into_iter().filter(|name| name.starts_with(beginning));
    names.map(|name| Pair { display: name.clone(), replacement: name }).collect()
}

/// The files and folders whose paths begin as `typed` does; hidden ones only where that is typed.
fn files(typed: &str) -> Vec<Pair> {
    let (folder, beginning) = match typed.rsplit_once('/') {
        Some((folder, name)) => (format!("{folder}/"), name),
        None => (String::new(), typed),
    };
    let path = if folder.is_empty() { Path::new(".").to_owned() } else { expand(&folder) };
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let pair = |entry: fs::DirEntry| {
        let mut name = entry.file_name().into_string().ok()?;
        let is_wanted = name.starts_with(beginning)
            && (!name.starts_with('.') || beginning.starts_with('.'))
            // A terminal would obey them.
            && !name.contains(char::is_control);
        if !is_wanted {
            return None;
        }
        if entry.path().is_dir() {
            name.push('/');
        }
        let replacement = format!("{folder}{name}");
        Some(Pair { display: name, replacement })
    };
    let mut pairs: Vec<Pair> = entries.filter_map(Result::ok).filter_map(pair).collect();
    pairs.sort_by(|one, other| one.display.cmp(&other.display));
    pairs
}

/// The names of models in the cache, and the short names.
fn models() -> Vec<String> {
    let cached = HubSettings::from_env().and_then(|found| Cache::new(&found.cache).models());
    let mut names: Vec<String> =
        cached.unwrap_or_default().iter().map(|cached| cached.name.to_string()).collect();
    names.extend(known().iter().map(|known| known.name.to_owned()));
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::candidates;

    fn completed(typed: &str) -> (usize, Vec<String>) {
        let models = || vec!["org/fox".to_owned(), "org/owl".to_owned()];
        let (start, pairs) = candidates(typed, models);
        (start, pairs.into_iter().map(|pair| pair.replacement).collect())
    }

    #[test]
    fn commands_options_and_models_are_completed() {
        assert_eq!(completed("/cl"), (0, vec!["/clear".to_owned()]));
        let tops = ["top-k", "top-p", "top-n-sigma"].map(str::to_owned);
        assert_eq!(completed("/set top"), (5, tops.to_vec()));
        assert_eq!(completed("/set top-k 4"), (12, Vec::new()));
        assert_eq!(completed("/model org/f"), (7, vec!["org/fox".to_owned()]));
        assert_eq!(completed("hello /cl"), (9, Vec::new()));
        assert_eq!(completed("//cl"), (4, Vec::new()));
    }

    #[test]
    fn files_are_completed_with_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        for name in ["a fox.json", "b.json", ".hidden"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("afar")).unwrap();
        let (start, found) = completed(&format!("/load {path}/a"));
        assert_eq!(
            (start, found),
            (6, vec![format!("{path}/a fox.json"), format!("{path}/afar/")])
        );
        assert_eq!(completed(&format!("/image {path}/")).1.len(), 3);
        assert_eq!(completed(&format!("/save {path}/.h")).1, [format!("{path}/.hidden")]);
        assert!(completed("/load /no/such/").1.is_empty());
    }
}
