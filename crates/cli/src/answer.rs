//! An answer as a person sees it: content and calls on stdout, reasoning on stderr.

use std::borrow::Cow;
use std::io::{self, IsTerminal};

use inference_core::Piece;

use crate::failure::Result;
use crate::markdown::Markdown;
use crate::output::{columns, dim, harmless, print, print_rendered, takes_styles};

/// The form in which a terminal shows an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    Plain,
    /// Rendered, and wrapped between words.
    Markdown,
}

/// Prints an answer as it comes.
pub struct AnswerPrinter {
    layout: Layout,
    has_begun: bool,
}

impl AnswerPrinter {
    /// A printer that leaves the reasoning out where `hides_reasoning` says so. A terminal gets
    /// what is said in this `form`.
    pub fn new(hides_reasoning: bool, form: Form) -> Self {
        let renders = form == Form::Markdown && io::stdout().is_terminal();
        let markdown = renders.then(|| Box::new(Markdown::new(takes_styles())));
        let layout = Layout { hides_reasoning, last: None, markdown };
        AnswerPrinter { layout, has_begun: false }
    }

    /// Prints the next piece.
    ///
    /// # Errors
    /// Nobody reads stdout any more.
    pub fn add(&mut self, piece: &Piece) -> Result<()> {
        let shown = self.layout.add(piece);
        self.show(&shown)
    }

    /// Ends the lines that are open. After an error only what was begun is ended, so that the error
    /// stands on its own line.
    ///
    /// # Errors
    /// Nobody reads stdout any more.
    pub fn end<T>(mut self, answered: &Result<T>) -> Result<()> {
        let shown = self.layout.end();
        self.show(&shown)?;
        if self.has_begun || answered.is_ok() { print("\n") } else { Ok(()) }
    }

    fn show(&mut self, shown: &Shown) -> Result<()> {
        if !shown.stderr.is_empty() {
            dim(&shown.stderr);
        }
        if shown.stdout.is_empty() {
            return Ok(());
        }
        self.has_begun = true;
        match self.layout.markdown {
            Some(_) => print_rendered(&shown.stdout),
            None => print(&shown.stdout),
        }
    }
}

/// The text that a piece adds: first to stderr, then to stdout.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shown {
    stderr: String,
    stdout: String,
}

/// Separates the parts of an answer, piece by piece.
#[derive(Default)]
struct Layout {
    hides_reasoning: bool,
    /// The part that the last piece belongs to.
    last: Option<Part>,
    /// Renders the content; all that goes to stdout is harmless then.
    markdown: Option<Box<Markdown>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Reasoning,
    Content,
    Call,
}

impl Layout {
    fn add(&mut self, piece: &Piece) -> Shown {
        match piece {
            Piece::Reasoning(_) if self.hides_reasoning => Shown::default(),
            Piece::Reasoning(text) => {
                let mut shown = self.turn_to(Part::Reasoning);
                shown.stderr.push_str(text);
                shown
            }
            Piece::Content(text) => {
                let mut shown = self.turn_to(Part::Content);
                match &mut self.markdown {
                    Some(markdown) => shown.stdout.push_str(&markdown.push(text, columns())),
                    None => shown.stdout.push_str(text),
                }
                shown
            }
            Piece::ToolCall { name, .. } => {
                let mut shown = self.turn_to(Part::Call);
                shown.stdout.push_str(&self.as_it_is(name));
                shown.stdout.push('(');
                shown
            }
            Piece::Arguments { text, .. } => {
                Shown { stdout: self.as_it_is(text).into_owned(), ..Shown::default() }
            }
        }
    }

    fn as_it_is<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.markdown.is_some() { harmless(text) } else { Cow::Borrowed(text) }
    }

    /// Returns what is held back of the content.
    fn held_back(&mut self) -> String {
        self.markdown.as_mut().map_or_else(String::new, |markdown| markdown.finish())
    }

    /// Ends the last part where `next` is another one, or another call. Each reasoning and each
    /// call is on lines of its own.
    fn turn_to(&mut self, next: Part) -> Shown {
        let last = self.last.replace(next);
        let held_back = match (last, next) {
            (Some(Part::Content), Part::Reasoning | Part::Call) => self.held_back(),
            _ => String::new(),
        };
        let (stderr, stdout) = match (last, next) {
            (Some(Part::Reasoning), Part::Content | Part::Call)
            | (Some(Part::Content), Part::Reasoning) => ("\n", ""),
            (Some(Part::Call), Part::Reasoning) => ("\n", ")\n"),
            (Some(Part::Call), _) => ("", ")\n"),
            (Some(Part::Content), Part::Call) => ("", "\n"),
            _ => ("", ""),
        };
        Shown { stderr: stderr.to_owned(), stdout: held_back + stdout }
    }

    /// Ends the last part, but for the line end of stdout.
    fn end(&mut self) -> Shown {
        let (stderr, stdout) = match self.last.take() {
            Some(Part::Reasoning) => ("\n", String::new()),
            Some(Part::Call) => ("", ")".to_owned()),
            Some(Part::Content) => ("", self.held_back()),
            None => ("", String::new()),
        };
        Shown { stderr: stderr.to_owned(), stdout }
    }
}

#[cfg(test)]
mod tests {
    use inference_core::Piece;

    use super::Layout;

    /// Returns the whole of stderr and of stdout.
    fn shown(mut layout: Layout, pieces: &[Piece]) -> (String, String) {
        let mut all: Vec<_> = pieces.iter().map(|piece| layout.add(piece)).collect();
        all.push(layout.end());
        let stderr = all.iter().map(|shown| shown.stderr.as_str()).collect();
        (stderr, all.iter().map(|shown| shown.stdout.as_str()).collect())
    }

    fn reasoning(text: &str) -> Piece {
        Piece::Reasoning(text.into())
    }

    fn content(text: &str) -> Piece {
        Piece::Content(text.into())
    }

    fn call(index: usize, name: &str, arguments: &str) -> [Piece; 2] {
        let text = arguments.into();
        [Piece::ToolCall { index, name: name.into() }, Piece::Arguments { index, text }]
    }

    #[test]
    fn reasoning_has_lines_of_its_own_on_stderr() {
        let pieces = [reasoning("Hm"), reasoning("."), content("Blue"), content(".")];
        assert_eq!(shown(Layout::default(), &pieces), ("Hm.\n".into(), "Blue.".into()));
        assert_eq!(shown(Layout::default(), &pieces[..1]), ("Hm\n".into(), String::new()));
        let hiding = Layout { hides_reasoning: true, ..Layout::default() };
        assert_eq!(shown(hiding, &pieces), (String::new(), "Blue.".into()));
    }

    #[test]
    fn content_around_reasoning_stays_in_one_piece() {
        let pieces = [content("Bl"), reasoning("Hm."), content("ue.")];
        assert_eq!(shown(Layout::default(), &pieces), ("\nHm.\n".into(), "Blue.".into()));
    }

    #[test]
    fn each_call_is_a_line() {
        let calls = [call(0, "time", "{\"zone\": 1}"), call(1, "now", "{}")].concat();
        let lines = "time({\"zone\": 1})\nnow({})";
        assert_eq!(shown(Layout::default(), &calls), (String::new(), lines.into()));
        let pieces = [&[content("One moment.")][..], &calls, &[content("So.")]].concat();
        let (_, stdout) = shown(Layout::default(), &pieces);
        assert_eq!(stdout, format!("One moment.\n{lines}\nSo."));
        let pieces = [&[reasoning("Hm.")][..], &calls].concat();
        assert_eq!(shown(Layout::default(), &pieces), ("Hm.\n".into(), lines.into()));
    }
}
