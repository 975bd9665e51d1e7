//! An answer as a person sees it: content and calls on stdout, reasoning on stderr.

use inference_core::Piece;

use crate::failure::Result;
use crate::output::{dim, print};

/// Prints an answer as it comes.
pub struct AnswerPrinter {
    layout: Layout,
    has_begun: bool,
}

impl AnswerPrinter {
    /// A printer that leaves the reasoning out where `hides_reasoning` says so.
    pub fn new(hides_reasoning: bool) -> Self {
        let layout = Layout { hides_reasoning, last: None };
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
        print(&shown.stdout)
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
                shown.stdout.push_str(text);
                shown
            }
            Piece::ToolCall { name, .. } => {
                let mut shown = self.turn_to(Part::Call);
                shown.stdout.push_str(name);
                shown.stdout.push('(');
                shown
            }
            Piece::Arguments { text, .. } => Shown { stdout: text.clone(), ..Shown::default() },
        }
    }

    /// Ends the last part where `next` is another one, or another call. Each reasoning and each
    /// call is on lines of its own.
    fn turn_to(&mut self, next: Part) -> Shown {
        let last = self.last.replace(next);
        let (stderr, stdout) = match (last, next) {
            (Some(Part::Reasoning), Part::Content | Part::Call)
            | (Some(Part::Content), Part::Reasoning) => ("\n", ""),
            (Some(Part::Call), Part::Reasoning) => ("\n", ")\n"),
            (Some(Part::Call), _) => ("", ")\n"),
            (Some(Part::Content), Part::Call) => ("", "\n"),
            _ => ("", ""),
        };
        Shown { stderr: stderr.to_owned(), stdout: stdout.to_owned() }
    }

    /// Ends the last part, but for the line end of stdout.
    fn end(&mut self) -> Shown {
        let (stderr, stdout) = match self.last.take() {
            Some(Part::Reasoning) => ("\n", ""),
            Some(Part::Call) => ("", ")"),
            Some(Part::Content) | None => ("", ""),
        };
        Shown { stderr: stderr.to_owned(), stdout: stdout.to_owned() }
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
        let hiding = Layout { hides_reasoning: true, last: None };
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
