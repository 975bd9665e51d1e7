//! Answers as a terminal shows them.

use super::Markdown;

const BOLD: &str = "\x1b[1m";
const OFF: &str = "\x1b[0m";

/// Returns the text that a terminal of so many columns gets. Whole and a character at a time, it is
/// the same.
fn shown(text: &str, width: usize) -> String {
    rendered(text, width, true)
}

fn rendered(text: &str, width: usize, is_styled: bool) -> String {
    let mut markdown = Markdown::new(is_styled);
    let whole = markdown.push(text, Some(width)) + &markdown.finish();
    let mut parts = String::new();
    for c in text.chars() {
        parts += &markdown.push(&c.to_string(), Some(width));
    }
    parts += &markdown.finish();
    assert_eq!(parts, whole);
    whole
}

/// Without what makes text more or less prominent.
fn plain(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut rest = &*shown(text, width);
    while let Some((before, behind)) = rest.split_once("\x1b[") {
        out += before;
        rest = behind.split_once('m').unwrap().1;
    }
    out + rest
}

#[test]
fn lines_break_between_words() {
    assert_eq!(shown("The quick brown fox\njumps", 10), "The quick\nbrown fox\njumps");
    assert_eq!(shown("abcdefghijklmnop q", 10), "abcdefghijklmnop q");
    assert_eq!(shown("一二三四五六", 8), "一二三四\n五六");
    assert_eq!(shown("a 👍🏽👍🏽👍🏽 b", 9), "a 👍🏽👍🏽👍🏽\nb");
    assert_eq!(shown("one two", 0), "one two");
    assert_eq!(shown("  one\ttwo", 80), "  one   two");
}

#[test]
fn a_word_comes_out_with_the_space_behind_it() {
    let mut markdown = Markdown::new(true);
    assert_eq!(markdown.push("One tw", Some(80)), "One");
    assert_eq!(markdown.push("o three", Some(80)), " two");
    assert_eq!(markdown.finish(), " three");
}

#[test]
fn emphasis_is_shown_and_its_marks_are_not() {
    assert_eq!(shown("a **b c** d", 80), format!("a {BOLD}b{OFF} {BOLD}c{OFF} d"));
    assert_eq!(shown("*x* _y_ ~~z~~", 80), "\x1b[3mx\x1b[0m \x1b[3my\x1b[0m \x1b[9mz\x1b[0m");
    assert_eq!(shown("`a*b* c`.", 80), "\x1b[36ma*b*\x1b[0m \x1b[36mc\x1b[0m.");
    assert_eq!(shown("**重要**说", 80), format!("{BOLD}重{OFF}{BOLD}要{OFF}说"));
    // Emphasis that nothing ends holds for its block alone.
    assert_eq!(shown("**a\n\nb", 80), format!("{BOLD}a{OFF}\n\nb"));
}

#[test]
fn marks_that_emphasise_nothing_stay() {
    for text in [
        "2 * 3 * 4",
        "snake_case_name",
        "2*3*4",
        "a ** b",
        r"\(x_1*y_1\) \[E\]",
        "a_",
        "1.5",
        "-5",
        "#tag",
    ] {
        assert_eq!(shown(text, 80), text);
    }
    assert_eq!(shown(r"\*no\*", 80), "*no*");
}

#[test]
fn headings_lists_and_quotations_have_their_form() {
    assert_eq!(shown("## A *b*\nc", 80), format!("{BOLD}A{OFF} \x1b[1;3mb{OFF}\nc"));
    assert_eq!(plain("- one two\n* three\n  - four", 8), "• one\n  two\n• three\n  • four");
    assert_eq!(plain("1. one two\n10) x", 8), "1. one\n   two\n10) x");
    assert_eq!(plain("> one two\nx", 6), "│ one\n│ two\nx");
    assert_eq!(plain("a\n\n---\nb", 5), "a\n\n─────\nb");
    assert_eq!(plain("**x**\n- - -", 3), "x\n───");
}

#[test]
fn code_is_shown_as_it_is() {
    let code = "```rust\nfn a() { *b_c_ } // **long long line**\n\n  | x | y |\n# z\n```\n*a*";
    let expected = code.replace("*a*", "a");
    assert_eq!(plain(code, 10), expected);
    // A longer fence holds a shorter one, and the end of the answer ends both.
    assert_eq!(plain("````\n```\n**a**", 80), "````\n```\n**a**");
    assert_eq!(plain("~~~\na\n~~~", 80), "~~~\na\n~~~");
    assert_eq!(
        plain("1. x\n   ```\n   **a**\n   ```\n**b**", 80),
        "1. x\n   ```\n   **a**\n   ```\nb"
    );
}

#[test]
fn tables_have_columns() {
    let table = "| Name | n |\n|:--|--:|\n| **fox** | 1 |\n| 狐 | 1000 |\nbehind";
    let expected = "Name │    n\n─────┼─────\nfox  │    1\n狐   │ 1000\nbehind";
    assert_eq!(plain(table, 80), expected);
    // In a narrow terminal, cells have several lines.
    let table = "| a | b |\n|---|---|\n| one two three | x<br>y |";
    assert_eq!(plain(table, 11), "a       │ b\n────────┼──\none two │ x\nthree   │ y");
    // What is no table stays.
    assert_eq!(plain("| a | b\nc", 80), "| a | b\nc");
    assert_eq!(plain("  | a |\n  |---|", 80), "a\n─");
}

#[test]
fn a_model_cannot_write_escape_sequences() {
    let text = "\x1b[31m**a\x1b]0;x\x07**\n```\n\x1b[2J\n```\n| \x1b[1m |\n|---|\n";
    let out = shown(text, 80);
    let ours = ["\x1b[1m", "\x1b[2m", "\x1b[0m"];
    let rest = ours.iter().fold(out, |out, ours| out.replace(ours, ""));
    assert!(!rest.chars().any(|c| c.is_control() && c != '\n'), "{rest:?}");
    assert!(rest.contains("␛[31m") && rest.contains("␛[2J"), "{rest:?}");
}

#[test]
fn without_styles_marks_stay() {
    let text = "# A **b**\n- `c`";
    assert_eq!(rendered(text, 80, false), "# A **b**\n• `c`");
}

#[test]
fn a_bar_at_the_beginning_of_words_makes_no_table() {
    assert_eq!(shown("# |x| y\nz\n", 80), "\x1b[1m|x|\x1b[0m \x1b[1my\x1b[0m\nz\n");
    assert_eq!(rendered("## |x| y\nz\n", 80, false), "## |x| y\nz\n");
}
