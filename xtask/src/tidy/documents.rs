//! Rules for documents: links lead somewhere, to headings too, the changelog is open, the README is
//! tested.

use std::collections::BTreeSet;
use std::path::Path;

use super::violation::Violation;
use crate::repository::File;

/// The README's commands, each below a comment `<!-- ci: NAME -->`, which `.ci/run` reads.
const README_COMMANDS: [&str; 2] = ["generate", "test"];

pub fn check(root: &Path, files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let text = |path| files.iter().find(|file| file.path == path).map_or("", |f| f.text.as_str());

    let changelog = "CHANGELOG.md";
    if !text(changelog).lines().any(|line| line.starts_with("## [Unreleased]")) {
        let message = "no section `## [Unreleased]`; add it on top, for what comes next";
        violations.push(Violation::new(changelog, 1, message));
    }
    for name in README_COMMANDS {
        if command(text("README.md"), name).is_none() {
            let message = format!(
                "no command below `<!-- ci: {name} -->`; put it on one line of an `sh` block there"
            );
            violations.push(Violation::new("README.md", 1, message));
        }
        if !text(".ci/run").contains(&format!("readme_command {name}")) {
            let message =
                format!("the README's command `{name}` is not run; call `readme_command {name}`");
            violations.push(Violation::new(".ci/run", 1, message));
        }
    }
    for file in files.iter().filter(|file| file.has_extension(&["md"])) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, target) in links(&file.text) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let page = if path.is_empty() { file.path.clone() } else { joined(folder, path) };
            let page = files.iter().find(|file| file.path == page && file.has_extension(&["md"]));
            let is_there = path.is_empty() || root.join(folder).join(path).exists();
            let has_anchor =
                |page: &File| anchor.is_empty() || anchors(&page.text).contains(anchor);
            if path.contains(':') || is_there && page.is_none_or(has_anchor) {
                continue;
            }
            let message = format!("the link to `{target}` leads nowhere; mend it or take it out");
            violations.push(Violation::new(&file.path, line, message));
        }
    }
    violations
}

/// The command below the marker of that name.
fn command<'a>(readme: &'a str, name: &str) -> Option<&'a str> {
    let marker = format!("<!-- ci: {name} -->");
    let mut lines = readme.lines().skip_while(|line| line.trim() != marker).skip(1);
    let fence = lines.by_ref().find(|line| !line.trim().is_empty())?;
    let command = lines.next().filter(|line| !line.trim().is_empty() && !line.starts_with("```"));
    command.filter(|_| fence.starts_with("```sh") && lines.next() == Some("```"))
}

/// `path` from `folder` on, by the root.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchors of a page's headings, as GitHub makes them: links have them behind `#`.
fn anchors(markdown: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut in_fence = false;
    for line in markdown.lines() {
        in_fence ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if in_fence || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = |c: &char| c.is_alphanumeric() || ['-', '_', ' '].contains(c);
        let anchor: String = heading.trim().to_lowercase().chars().filter(kept).collect();
        let anchor = anchor.replace(' ', "-");
        let again = (1..).map(|count| format!("{anchor}-{count}"));
        let free = [anchor.clone()].into_iter().chain(again).find(|one| !found.contains(one));
        found.extend(free);
    }
    found
}

/// The targets of `[text](target)` with their lines, code left out.
fn links(markdown: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_fence = false;
    for (index, line) in markdown.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        }
        if in_fence {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let in_code = line[..at].matches('`').count() % 2 == 1;
            if let Some((target, _)) = line[at + 2..].split_once(')')
                && !in_code
            {
                // A title may follow the target.
                found.push((index + 1, target.split(' ').next().unwrap_or_default()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::Tree;

    #[test]
    fn links_to_files_and_folders_that_exist_pass_and_addresses_are_not_followed() {
        let text = "# Part\n[a](../README.md) [b](.#part) [c](#part) [d](https://example.org/x) \
                    [e](mailto:x@example.org) `[f](nowhere)` [g](b.md \"title\")\n\
                    ```\n[h](nowhere)\n```\n";
        Tree::new().with("docs/a.md", text).with("docs/b.md", "").expect(&[]);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found_relative_to_its_file() {
        Tree::new()
            .with("docs/a.md", "one\n\n[README](README.md) and [b](b.md#x)\n")
            .expect(&[("docs/a.md:3", "`README.md`"), ("docs/a.md:3", "`b.md#x`")]);
    }

    #[test]
    fn a_link_to_a_heading_that_is_not_there_is_found() {
        let page = "# `ml` and: its Flags\n## Part\n## Part\n```sh\n# None\n```\n";
        let text =
            "[a](../b.md#ml-and-its-flags) [b](../b.md#part-1)\n[c](#none)\n[d](../b.md#none)\n";
        Tree::new()
            .with("b.md", page)
            .with("docs/a.md", text)
            .expect(&[("docs/a.md:2", "`#none`"), ("docs/a.md:3", "`../b.md#none`")]);
    }

    #[test]
    fn a_changelog_without_a_place_for_news_is_found() {
        let remedy = [("CHANGELOG.md:1", "Unreleased")];
        Tree::new().with("CHANGELOG.md", "## [0.1.0]\n").expect(&remedy);
    }

    #[test]
    fn a_readme_without_its_commands_is_found() {
        for readme in [
            "<!-- ci: generate -->\n\n```sh\nrun\n```\n",
            "<!-- ci: generate -->\n```sh\nrun\n```\n<!-- ci: test -->\ncargo test\n",
            "<!-- ci: generate -->\n```sh\nrun\n```\n<!-- ci: test -->\n```sh\none\ntwo\n```\n",
        ] {
            Tree::new().with("README.md", readme).expect(&[("README.md:1", "ci: test")]);
        }
    }

    #[test]
    fn a_command_of_the_readme_that_nothing_runs_is_found() {
        Tree::new()
            .with(".ci/run", "readme_command generate\ncargo test\n")
            .expect(&[(".ci/run:1", "readme_command test")]);
    }

    #[test]
    fn a_command_is_the_one_line_of_its_block() {
        let readme = "<!-- ci: test -->\n\n```sh\ncargo test --workspace\n```\n";
        assert_eq!(command(readme, "test"), Some("cargo test --workspace"));
        assert_eq!(command(readme, "generate"), None);
    }
}
