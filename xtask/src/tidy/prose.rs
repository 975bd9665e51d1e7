//! Prose that is quick to read: ARCHITECTURE.md, README.md and the page of figures are short, and
//! so are the sentences of all pages.

use super::violation::Violation;
use crate::pictures;
use crate::repository::File;

/// Pages with the most lines that each may have, and what to do with more of them.
const PAGES: [(&str, usize, &str); 3] = [
    ("ARCHITECTURE.md", 150, "move what only one part needs to a page in docs/design/"),
    ("README.md", 150, "move what a first minute does not need to a page in docs/"),
    ("docs/benchmarks.md", 200, "take rows out of the tables; their files keep them"),
];
/// The pages and folders whose sentences are short.
const SHORT: [&str; 5] = ["ARCHITECTURE.md", "README.md", "COMPARE.md", "CONTRIBUTING.md", "docs/"];

const MAX_WORDS: usize = 30;

pub fn check(files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    // What the pictures say of a module is the beginning of its source.
    let is_drawn = |file: &&File| file.path.starts_with(pictures::FOLDER);
    for file in files.iter().filter(|file| file.has_extension(&["md"]) && !is_drawn(file)) {
        violations.extend(length(file));
        if SHORT.iter().any(|place| file.path.starts_with(place)) {
            violations.extend(long_sentences(file));
        }
    }
    violations
}

fn length(file: &File) -> Option<Violation> {
    let (path, most, remedy) = PAGES.iter().find(|(path, ..)| file.path == *path)?;
    let lines = file.text.lines().count();
    let message = format!("{lines} lines; this page may have {most}: {remedy}");
    (lines > *most).then(|| Violation::new(path, most + 1, message))
}

fn long_sentences(file: &File) -> impl Iterator<Item = Violation> {
    let long = sentences(&file.text).into_iter().filter_map(|(line, sentence)| {
        let words = sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric));
        let (count, begin): (usize, Vec<&str>) =
            words.fold((0, Vec::new()), |(count, mut begin), word| {
                begin.extend((count < 5).then_some(word));
                (count + 1, begin)
            });
        let message = format!(
            "a sentence of {count} words (\"{} …\"); it may have {MAX_WORDS}: say one fact a sentence",
            begin.join(" ")
        );
        (count > MAX_WORDS).then(|| Violation::new(&file.path, line, message))
    });
    long.collect::<Vec<_>>().into_iter()
}

/// The sentences of a page, each with the line where its paragraph, item or row begins. Headings
/// and blocks of code have none.
fn sentences(markdown: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut paragraph = (1, String::new());
    let mut in_fence = false;
    for (index, line) in markdown.lines().enumerate() {
        let text = line.trim();
        let is_fence = text.starts_with("```");
        in_fence ^= is_fence;
        let item = item(text);
        if text.is_empty() || in_fence || is_fence || text.starts_with(['#', '|']) || item.is_some()
        {
            end(&mut paragraph, &mut found);
        }
        if text.is_empty() || in_fence || is_fence || text.starts_with('#') {
            continue;
        }
        if text.starts_with('|') {
            for cell in text.split('|') {
                paragraph = (index + 1, cell.to_owned());
                end(&mut paragraph, &mut found);
            }
            continue;
        }
        if paragraph.1.is_empty() {
            paragraph.0 = index + 1;
        }
        paragraph.1 += item.unwrap_or(text);
        paragraph.1.push(' ');
    }
    end(&mut paragraph, &mut found);
    found
}

/// The text of a list's item that begins here.
fn item(line: &str) -> Option<&str> {
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    match digits.len() < line.len() {
        true => digits.strip_prefix(". "),
        false => line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")),
    }
}

/// Takes the sentences of a paragraph, which is empty then.
fn end(paragraph: &mut (usize, String), found: &mut Vec<(usize, String)>) {
    let (line, text) = std::mem::take(paragraph);
    let text = without_code(&text);
    let mut sentence = String::new();
    for word in text.split_whitespace() {
        sentence += word;
        if word.trim_end_matches(['"', '*', ')', '_']).ends_with(['.', '!', '?']) {
            found.push((line, std::mem::take(&mut sentence)));
        } else {
            sentence.push(' ');
        }
    }
    if !sentence.is_empty() {
        found.push((line, sentence));
    }
}

/// The text with each piece of code as one word, and links without their targets.
fn without_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let plain = parts.map(|(index, part)| if index % 2 == 1 { "code" } else { part });
    let mut rest = plain.collect::<String>();
    while let Some((before, after)) = rest.split_once("](")
        && let Some((_, after)) = after.split_once(')')
    {
        rest = format!("{before}{after}");
    }
    rest
}

#[cfg(test)]
mod tests {
    use crate::tidy::tests::Tree;

    fn words(count: usize) -> String {
        vec!["word"; count].join(" ")
    }

    #[test]
    fn a_long_sentence_is_found_in_paragraphs_items_and_cells() {
        let (fits, long) = (format!("{}.", words(30)), format!("{}.", words(31)));
        for (text, line) in [
            (format!("Short.\n{long}"), 1),
            (format!("# Title\n\n{fits}\n\n{long} {fits}"), 5),
            (format!("- {fits}\n- {fits}\n- {long}"), 3),
            (format!("1. {fits}\n2. {long}"), 2),
            (format!("| a | b |\n|---|---|\n| {fits} | {long} |"), 3),
            (format!("{}\n{}", words(15), words(16)), 1),
        ] {
            let found = [(&*format!("docs/design/a.md:{line}"), "a sentence of 31 words")];
            Tree::new().with("docs/design/a.md", &format!("{text}\n")).expect(&found);
            let found = [(&*format!("docs/a.md:{line}"), "a sentence of 31 words")];
            Tree::new().with("docs/a.md", &format!("{text}\n")).expect(&found);
            Tree::new().with("crates/a/README.md", &format!("{text}\n")).expect(&[]);
        }
    }

    #[test]
    fn code_links_headings_and_marks_do_not_make_a_sentence_long() {
        let long = words(31);
        let text = format!(
            "# {long}\n\n```\n{long}\n```\n\n{} `{long}` [a](b.md \"{long}\") – –\n\n**{}.** {}.\n",
            words(28),
            words(20),
            words(20)
        );
        Tree::new().with("docs/design/a.md", &text).with("docs/design/b.md", "").expect(&[]);
    }

    #[test]
    fn the_first_pages_are_short() {
        Tree::new()
            .with("docs/benchmarks.md", &"a.\n".repeat(201))
            .expect(&[("docs/benchmarks.md:201", "201 lines; this page may have 200")]);
        Tree::new().with("ARCHITECTURE.md", &"a.\n".repeat(150)).expect(&[]);
        Tree::new()
            .with("ARCHITECTURE.md", &"a.\n".repeat(151))
            .with("docs/design/a.md", &"a.\n".repeat(151))
            .expect(&[("ARCHITECTURE.md:151", "151 lines; this page may have 150")]);
    }
}
