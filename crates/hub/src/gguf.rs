//! Models in files of GGUF, of which a repository has many: one for each way in which weights are
//! quantised.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Error, Name, Result};

/// Files whose names begin so draft for the model beside them.
const DRAFTS: [&str; 3] = ["mtp-", "dflash-", "eagle3-"];

/// Of so many models it is looked at how each may be called, for which it is held against all
/// others; further ones are called by their paths.
const MOST_LABELLED: usize = 200;

/// Returns true for a file beside models: a projector of pictures, an imatrix, or a draft model.
///
/// `inference-core` follows the same rule for folders that it lists.
fn stands_beside(stem: &str) -> bool {
    let small = stem.to_ascii_lowercase();
    let file = small.rsplit('/').next().unwrap_or(&small);
    file.contains("mmproj")
        || file.starts_with("imatrix")
        || file.ends_with("imatrix")
        || DRAFTS.iter().any(|start| file.starts_with(start))
}

/// The models among `paths`: each by its path without the ending, with its files in their order.
fn models<'a>(paths: impl IntoIterator<Item = &'a str>) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut models: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for path in paths {
        let Some(stem) = stem(path) else { continue };
        if !stands_beside(stem) {
            models.entry(stem).or_default().push(path);
        }
    }
    models.values_mut().for_each(|files| files.sort_unstable());
    models
}

/// The path of a file of GGUF without its ending and the number of its part; `None` for another
/// file.
fn stem(path: &str) -> Option<&str> {
    let (stem, ending) = path.rsplit_once('.')?;
    let is_gguf = ending.eq_ignore_ascii_case("gguf");
    is_gguf.then(|| part(stem).map_or(stem, |(whole, _)| whole))
}

/// Of `NAME-00001-of-00003`, the name and the number of parts.
fn part(stem: &str) -> Option<(&str, usize)> {
    let (rest, of) = stem.rsplit_once("-of-")?;
    let (whole, number) = rest.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    if is_number(number) && is_number(of) { Some((whole, of.parse().ok()?)) } else { None }
}

/// Returns true when a model is called `wanted`, which is in lower case.
///
/// It is called by the end of its file's name, or by its folder.
fn is_called(stem: &str, wanted: &str) -> bool {
    let stem = stem.to_ascii_lowercase();
    let before = stem.strip_suffix(wanted);
    before.is_some_and(|before| before.is_empty() || before.ends_with(['-', '.', '_', '/']))
        || stem.split('/').rev().skip(1).any(|folder| folder == wanted)
}

/// The name of the file that is meant where several are there and none is named: a good balance of
/// size and exactness, which llama.cpp and Ollama take as well.
const USUAL: &str = "q4_k_m";

/// The files of the model among `paths` that `name` means, the first part first; none where it says
/// no file and there is no such model.
///
/// # Errors
/// [`Error::Choice`] where it means none of them, or several.
pub fn chosen<'a>(
    name: &Name,
    paths: impl IntoIterator<Item = &'a str>,
) -> Result<Option<Vec<&'a str>>> {
    let models = models(paths);
    let wanted = name.file().map(|file| {
        let small = file.to_ascii_lowercase();
        small.strip_suffix(".gguf").map(str::to_owned).unwrap_or(small)
    });
    let means = |stem: &str| wanted.as_ref().is_none_or(|wanted| is_called(stem, wanted));
    let meant: Vec<&str> = models.keys().copied().filter(|stem| means(stem)).collect();
    let usual: Vec<&str> = meant.iter().copied().filter(|stem| is_called(stem, USUAL)).collect();
    let usual = if name.file().is_none() { usual } else { Vec::new() };
    match (meant.as_slice(), name.file()) {
        _ if usual.len() == 1 => Ok(models.get(usual[0]).cloned()),
        ([one], _) => Ok(models.get(one).cloned()),
        ([], None) => Ok(None),
        (_, file) => {
            let reason = match (meant.len(), file) {
                (_, None) => "it has several models in files of GGUF: say which".to_owned(),
                (0, Some(file)) => format!("it has no file of GGUF that is called `{file}`"),
                (_, Some(file)) => format!("`{file}` means several of its files of GGUF"),
            };
            let stems = models.keys().take(MOST_LABELLED);
            let labels: Vec<String> = stems.map(|stem| label(stem, &models)).collect();
            Err(Error::Choice { name: name.without_file().to_string(), reason, labels })
        }
    }
}

/// The label of a model's file: the end of its name, such as `Q4_K_M`.
///
/// It is the path without `.gguf` where the end means others too, or there are over 200 models.
fn label(stem: &str, models: &BTreeMap<&str, Vec<&str>>) -> String {
    let end = stem.rsplit(['-', '.', '/']).next().unwrap_or(stem);
    let small = end.to_ascii_lowercase();
    let is_alone = models.len() <= MOST_LABELLED
        && models.keys().filter(|other| is_called(other, &small)).count() == 1;
    if is_alone && !end.is_empty() { end.to_owned() } else { stem.to_owned() }
}

/// The models among `paths`: what each may be called, and its first file.
pub fn labelled<'a>(paths: impl IntoIterator<Item = &'a str>) -> Vec<(String, &'a str)> {
    let models = models(paths);
    let first =
        |(stem, files): (&&'a str, &Vec<&'a str>)| Some((label(stem, &models), *files.first()?));
    models.iter().filter_map(first).collect()
}

/// The parts that are not among `paths`, of models of which some are.
pub fn lacking<'a>(paths: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut lacking = Vec::new();
    for files in models(paths).values() {
        let Some((folder, stem)) = files.first().map(|path| {
            let (folder, file) = path.rsplit_once('/').map_or(("", *path), |(f, file)| (f, file));
            (folder, file.rsplit_once('.').map_or(file, |(stem, _)| stem))
        }) else {
            continue;
        };
        let Some((whole, count)) = part(stem) else { continue };
        let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let files: BTreeSet<&str> = files.iter().copied().collect();
        // A number of five digits: at most 99,999 names.
        let parts = (1..=count).map(|at| format!("{folder}{whole}-{at:05}-of-{count:05}.gguf"));
        lacking.extend(parts.filter(|part| !files.contains(&**part)));
    }
    lacking
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [&str; 8] = [
        "README.md",
        "Big-Q8_0/Big-Q8_0-00002-of-00002.gguf",
        "Big-Q8_0/Big-Q8_0-00001-of-00002.gguf",
        "Big-Q4_K_M.gguf",
        "Big-UD-Q4_K_M.gguf",
        "Big.IQ4_XS.gguf",
        "Big-BF16.gguf",
        "mmproj-Big-BF16.gguf",
    ];

    fn found(name: &str) -> Result<Option<Vec<&'static str>>> {
        chosen(&name.parse().unwrap(), FILES)
    }

    #[test]
    fn a_model_is_named_by_the_end_of_its_file() {
        for (name, file) in [
            ("a/b:IQ4_XS", "Big.IQ4_XS.gguf"),
            ("a/b:iq4_xs", "Big.IQ4_XS.gguf"),
            ("a/b:bf16", "Big-BF16.gguf"),
            ("a/b:UD-Q4_K_M@main", "Big-UD-Q4_K_M.gguf"),
            ("a/b:Big-Q4_K_M", "Big-Q4_K_M.gguf"),
            ("a/b:Big-Q4_K_M.gguf", "Big-Q4_K_M.gguf"),
        ] {
            assert_eq!(found(name).unwrap(), Some(vec![file]), "{name}");
        }
        assert_eq!(found("a/b:Q8_0").unwrap(), Some(vec![FILES[2], FILES[1]]));
    }

    #[test]
    fn who_names_none_or_several_is_told_which_there_are() {
        let there = "BF16, Big-Q4_K_M, Q8_0, Big-UD-Q4_K_M, IQ4_XS";
        for (name, reason) in [
            ("a/b", "several models in files of GGUF"),
            ("a/b@v1", "several models in files of GGUF"),
            ("a/b:Q4_K_M", "`Q4_K_M` means several"),
            ("a/b:Q2_K", "no file of GGUF that is called `Q2_K`"),
            ("a/b:_K_M", "no file of GGUF that is called `_K_M`"),
        ] {
            let error = found(name).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(there), "{name}: {error}");
        }
        assert_eq!(chosen(&"a/b".parse().unwrap(), ["x.bin"]).unwrap(), None);
        let beside = ["x.gguf", "mmproj-x.gguf", "mtp-x.gguf", "q/dflash-x.gguf"];
        let only = chosen(&"a/b".parse().unwrap(), beside).unwrap();
        assert_eq!(only, Some(vec!["x.gguf"]));
    }

    #[test]
    fn of_several_the_usual_one_is_meant_where_none_is_named() {
        let paths = ["m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q2_K.gguf"];
        let meant = |name: &str| chosen(&name.parse().unwrap(), paths).unwrap();
        assert_eq!(meant("a/b"), Some(vec![paths[1]]));
        assert_eq!(meant("a/b@v1"), Some(vec![paths[1]]));
        assert_eq!(meant("a/b:q8_0"), Some(vec![paths[0]]));
    }

    #[test]
    fn parts_that_are_missing_are_told() {
        let there = ["Q8/m-00001-of-00003.gguf", "Q8/m-00003-of-00003.gguf", "other.gguf"];
        assert_eq!(lacking(there), ["Q8/m-00002-of-00003.gguf"]);
        assert!(lacking(FILES).is_empty());
        assert_eq!(labelled(there), [("m".to_owned(), there[0]), ("other".to_owned(), there[2])]);
    }
}
