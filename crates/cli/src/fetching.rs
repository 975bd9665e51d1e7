//! Fetching models from the hub: with its progress, and with a question before it where a model is
//! named that is not here.

mod progress;

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::OnceLock;

use hub::{Name, Patience, Planned, Pull, Pulled, Settings};

use crate::bytes::human;
use crate::failure::{Failure, Result};
use crate::nearest::explained;
use crate::output::printable;
use crate::ranks;
use progress::Progress;

/// How the command line wants models that are named and not here.
#[derive(Clone, Copy, Debug, Default)]
struct Wish {
    /// They are fetched without a question.
    yes: bool,
    quiet: bool,
}

/// How often the hub is asked for the list of files that a question is about.
const QUESTION_TRIES: u32 = 2;

static WISH: OnceLock<Wish> = OnceLock::new();

/// Takes note of what the command line says: whether models are fetched without a question, and
/// without progress.
pub fn start(yes: bool, quiet: bool) {
    let _ = WISH.set(Wish { yes, quiet });
}

/// Fetches `name` and shows how far that is, unless `quiet`.
///
/// # Errors
/// The hub's refusals, files that arrive wrong, and the disk's.
pub fn fetch(pull: &Pull<'_>, name: &Name, quiet: bool) -> Result<Pulled> {
    let progress = (!quiet).then(|| Progress::new(name.to_string()));
    let pulled = pull.run(name, &|event| {
        if let Some(progress) = &progress {
            progress.tell(&event);
        }
    });
    if let Some(progress) = &progress {
        progress.finish(pulled.is_ok());
    }
    pulled.map_err(|error| explained(error, name))
}

/// Fetches `name`, which is not here, where `--yes` or the person at the terminal wants that.
/// `None` where nobody does.
///
/// # Errors
/// As [`fetch`], and a terminal that cannot be read.
pub fn fetch_if_wanted(name: &Name, settings: &Settings) -> Result<Option<Pulled>> {
    let Wish { yes, quiet } = WISH.get().copied().unwrap_or_default();
    // Of several ranks, each would ask.
    if settings.offline || ranks::from_environment()?.is_some() {
        return Ok(None);
    }
    let asks = io::stdin().is_terminal() && io::stderr().is_terminal();
    let is_wanted = yes || asks && is_wanted(name, &planned(name, settings)?)?;
    is_wanted.then(|| fetch(&Pull::new(settings), name, quiet)).transpose()
}

/// The files of `name` that would come. A person waits for them, so that a hub that does not answer
/// is given up soon.
fn planned(name: &Name, settings: &Settings) -> Result<Vec<Planned>> {
    let patience = Patience { tries: QUESTION_TRIES, ..Patience::default() };
    let pull = Pull { patience, ..Pull::new(settings) };
    pull.plan(name).map_err(|error| explained(error, name))
}

/// The answer of the person at the terminal.
fn is_wanted(name: &Name, files: &[Planned]) -> Result<bool> {
    let memory = metal_backend::system().ok().map(|system| system.memory_limit_bytes);
    let (question, usual) = question(name, files, memory);
    let cannot = |error| Failure::Other(format!("terminal: {error}"));
    let mut terminal = io::stderr().lock();
    write!(terminal, "{} ", printable(&question))
        .and_then(|()| terminal.flush())
        .map_err(cannot)?;
    let mut answer = String::new();
    let is_answered = io::stdin().lock().read_line(&mut answer).map_err(cannot)? > 0;
    Ok(is_answered && said_yes(&answer, usual))
}

/// The question, and whether nothing means yes: not where the weights are larger than the memory.
fn question(name: &Name, files: &[Planned], memory: Option<u64>) -> (String, bool) {
    let sum = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(0, u64::saturating_add);
    let missing = sum(&mut files.iter().map(|file| file.size - file.present));
    let is_weights = |file: &&Planned| {
        [".safetensors", ".gguf", ".bin"]
            .iter()
            .any(|end| file.path.to_ascii_lowercase().ends_with(end))
    };
    let weights = sum(&mut files.iter().filter(is_weights).map(|file| file.size));
    let fits = memory.is_none_or(|memory| weights <= memory);
    let memory = match memory {
        Some(memory) if fits => format!(" of {} that may be used here", human(memory)),
        Some(memory) => format!(", more than the {} that may be used here", human(memory)),
        None => String::new(),
    };
    let choice = if fits { "[Y/n]" } else { "[y/N]" };
    let (missing, weights) = (human(missing), human(weights));
    let text = format!(
        "{name} is not here: fetch {missing}? Its weights take {weights}{memory}. {choice}"
    );
    (text, fits)
}

fn said_yes(answer: &str, usual: bool) -> bool {
    match answer.trim().to_lowercase().as_str() {
        "" => usual,
        answer => ["y", "yes"].contains(&answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_tells_what_comes_and_whether_it_fits() {
        let file = |path: &str, size, present| Planned { path: path.into(), size, present };
        let files = [file("config.json", 1 << 10, 0), file("a.safetensors", 3 << 30, 1 << 30)];
        let name: Name = "org/name".parse().unwrap();
        let (fits, usual) = question(&name, &files, Some(8 << 30));
        assert_eq!(
            fits,
            "org/name is not here: fetch 2.0 GiB? Its weights take 3.0 GiB of 8.0 GiB that may be used here. [Y/n]"
        );
        assert!(usual);
        let (large, usual) = question(&name, &files, Some(2 << 30));
        assert!(large.contains("3.0 GiB, more than the 2.0 GiB") && large.ends_with("[y/N]"));
        assert!(!usual);
        assert!(question(&name, &files, None).0.contains("take 3.0 GiB. [Y/n]"));
    }

    #[test]
    fn an_empty_answer_is_the_usual_one() {
        assert!(said_yes("\n", true) && !said_yes("\n", false));
        assert!(said_yes(" Yes\n", false) && said_yes("y", false));
        assert!(!said_yes("n\n", true) && !said_yes("what?", true));
    }
}
