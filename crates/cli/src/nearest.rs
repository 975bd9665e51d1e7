//! Names of models that are most like one that is not known.

use hub::{Cache, Error, Name, Settings, known, short};

use crate::failure::Failure;

/// The most names that an error tells, and how many letters may be others in them.
const MOST: usize = 3;
const OTHER_LETTERS: usize = 3;
/// Letters from which on the beginning of a name stands for it.
const BEGINNING: usize = 4;

/// The names that are most like `text`, the nearest first: those of models that were pulled, and of
/// well-known ones.
pub fn nearest(text: &str) -> Vec<String> {
    let repositories = known().iter().map(|known| known.repository.to_owned());
    let short_names = known().iter().flat_map(|known| known.short_names()).map(str::to_owned);
    let short_names = short_names.filter(|_| !text.contains('/'));
    among(text, pulled().chain(short_names).chain(repositories))
}

/// The names of models that were pulled and are most like `text`, which is none of them.
pub fn nearest_pulled(text: &str) -> Vec<String> {
    among(text, pulled())
}

fn pulled() -> impl Iterator<Item = String> {
    let cached = Settings::from_env().and_then(|settings| Cache::new(&settings.cache).models());
    cached.unwrap_or_default().into_iter().map(|cached| cached.name.to_string())
}

/// Those of `names` that are most like `text`, the nearest first.
pub fn among(text: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let text = short(text);
    let mut near: Vec<_> = names
        .filter_map(|name| Some((distance(&text, &name.to_lowercase())?, name)))
        .filter(|(_, name)| text != name.to_lowercase())
        .map(|(count, name)| (count, strsim::damerau_levenshtein(&text, &name), name))
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(MOST).map(|(_, _, name)| name).collect()
}

/// How many letters are others in `name`, or in its part behind the organisation; `None` where it
/// is no more like `text` than chance has it.
fn distance(text: &str, name: &str) -> Option<usize> {
    let part = match name.split_once('/') {
        Some((_, part)) if !text.contains('/') => part,
        _ => name,
    };
    if text.len() >= BEGINNING && part.starts_with(text) {
        return Some(usize::from(text != part));
    }
    // A tag with more to it, such as other bits.
    if text.strip_prefix(part).is_some_and(|more| more.starts_with('-')) {
        return Some(2);
    }
    let count = strsim::damerau_levenshtein(text, part);
    (count <= OTHER_LETTERS.min(text.len() / 3)).then_some(count)
}

/// The question that an error ends with, where there are `names`: ` (is it qwen3-0.6b?)`.
pub fn question(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!(" (is it {}?)", names.join(", ")),
    }
}

/// The failure of what was asked of the hub or the cache for `name`. Where there is no such model,
/// the nearest ones are told.
pub fn explained(error: Error, name: &Name) -> Failure {
    let names = match error {
        Error::Unknown { .. } => nearest(&name.repository()),
        Error::NotCached { .. } => nearest_pulled(&name.repository()),
        error => return error.into(),
    };
    Failure::Other(format!("{error}{}", question(&names)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(text: &str) -> Vec<String> {
        let names = ["qwen3", "qwen3-0.6b", "qwen3-1.7b", "qwen3.6-27b", "phi4"];
        let names = names.into_iter().chain(["org/demo", "Org/Big-Fox"]);
        among(text, names.map(str::to_owned))
    }

    #[test]
    fn names_with_few_other_letters_are_near() {
        assert_eq!(like("qwen3:0.7b"), ["qwen3-0.6b", "qwen3-1.7b", "qwen3"]);
        assert_eq!(like("Org/demp"), ["org/demo"]);
        assert_eq!(like("org/bigfox"), ["Org/Big-Fox"]);
        assert_eq!(like("phi"), ["phi4"]);
        assert_eq!(like("models/old"), [""; 0]);
        assert_eq!(like("fo"), [""; 0]);
    }

    #[test]
    fn few_other_letters_go_before_a_part_of_a_name() {
        let names = ["qwen3.5", "qwen3.5-2b", "qwen3", "qwen3.5-9b"].map(str::to_owned);
        let near = among("qwen3.5:5b", names.into_iter());
        assert_eq!(near, ["qwen3.5-2b", "qwen3.5-9b", "qwen3.5"]);
    }

    #[test]
    fn a_beginning_and_the_part_behind_the_organisation_are_near() {
        assert_eq!(like("qwen3.6"), ["qwen3.6-27b", "qwen3"]);
        assert_eq!(like("qwen3-0.6b-q8_0"), ["qwen3-0.6b", "qwen3"]);
        assert_eq!(like("demo"), ["org/demo"]);
    }

    #[test]
    fn the_question_is_left_out_where_nothing_is_near() {
        assert_eq!(question(&[]), "");
        assert_eq!(question(&["a".into(), "b".into()]), " (is it a, b?)");
    }
}
