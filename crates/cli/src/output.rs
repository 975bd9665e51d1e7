//! Results on stdout, everything else on stderr; neither panics when its reader is gone.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::sync::LazyLock;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use inference_core::{LoadProgress, WeightsRead};
use serde::Serialize;

use crate::bytes;
use crate::failure::{Failure, Result, without_numbers};
use crate::ranks;

/// Writes `text` to stdout and flushes it. Of several ranks, the first one does. A pipe or a file
/// gets it as it is; a terminal gets it [`harmless`].
///
/// # Errors
/// [`Failure::ClosedPipe`] when nobody reads any more.
pub fn print(text: &str) -> Result<()> {
    static IS_TERMINAL: LazyLock<bool> = LazyLock::new(|| io::stdout().is_terminal());
    let text = if *IS_TERMINAL { harmless(text) } else { Cow::Borrowed(text) };
    print_rendered(&text)
}

/// [`print`] of text in which a terminal may obey all that is there: it is [`harmless`] but for our
/// own sequences.
///
/// # Errors
/// As [`print`].
pub fn print_rendered(text: &str) -> Result<()> {
    if ranks::other().is_some() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::from_stdout)
}

/// [`print`], and a line end.
///
/// # Errors
/// As [`print`].
pub fn print_line(text: impl Display) -> Result<()> {
    print(&format!("{text}\n"))
}

/// `value` as one line of JSON on stdout.
///
/// # Errors
/// As [`print`].
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::Other(format!("the result as JSON: {error}")))?;
    print_line(text)
}

/// A line for the person on stderr. That stderr is closed is nobody's loss.
pub fn note(text: impl Display) {
    if ranks::other().is_none() {
        line(printable(&text.to_string()));
    }
}

fn line(text: impl Display) {
    // Formatted first, so that two processes' lines do not mix within one line.
    let line = format!("{text}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}

/// The line `error: …` on stderr, where there is something to tell.
pub fn report(failure: &Failure) {
    match failure {
        Failure::ClosedPipe | Failure::Interrupted | Failure::Agent(_) | Failure::Unhealthy => {}
        _ => {
            let text = joined(&failure.to_string());
            match ranks::other() {
                None => line(format_args!("error: {text}")),
                Some(rank) => line(format_args!("rank {rank}: error: {text}")),
            }
        }
    }
}

/// [`note`], less prominent where stderr is a terminal that shows it.
pub fn dim_note(text: impl Display) {
    if !styled() {
        note(text);
    } else if ranks::other().is_none() {
        line(format_args!("\x1b[2m{}\x1b[0m", printable(&text.to_string())));
    }
}

/// Text on stderr without a line end: as it is, but [`harmless`] where stderr is a terminal, and
/// less prominent where that shows it.
pub fn dim(text: &str) {
    if ranks::other().is_some() {
        return;
    }
    let shown = if io::stderr().is_terminal() { harmless(text) } else { Cow::Borrowed(text) };
    let shown = if styled() { Cow::Owned(format!("\x1b[2m{shown}\x1b[0m")) } else { shown };
    let _ = io::stderr().write_all(shown.as_bytes());
}

/// `1 text`, `2 texts`.
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns true when stderr is a terminal that takes escape sequences.
fn styled() -> bool {
    io::stderr().is_terminal() && takes_styles()
}

/// Returns true unless `TERM` or `NO_COLOR` say that a terminal is to get no escape sequences.
pub fn takes_styles() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    !no_color && !dumb
}

/// Returns how many columns the terminal has that stdout is; `None` where it is none, or does not
/// tell.
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Turns on stderr until it is dropped; shows nothing where stderr is no terminal.
pub struct Spinner(ProgressBar);

impl Spinner {
    /// A spinner beside `text`.
    pub fn new(text: String) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        Spinner::styled(text, style)
    }

    fn styled(text: String, style: ProgressStyle) -> Self {
        let bar = match ranks::other() {
            None => ProgressBar::new_spinner(),
            Some(_) => ProgressBar::hidden(),
        };
        let bar = bar.with_style(style).with_message(one_line(&text));
        bar.enable_steady_tick(Duration::from_millis(100));
        Spinner(bar)
    }

    /// A spinner beside `text` and the bytes of weights that `progress` tells, once it does.
    pub fn of_load(text: String, progress: LoadProgress) -> Self {
        let read = move |_: &ProgressState, out: &mut dyn fmt::Write| {
            // What cannot be written is not shown.
            let _ = out.write_str(&weights_read(&progress));
        };
        let style = ProgressStyle::with_template("{spinner} {msg}{read} {elapsed}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        Spinner::styled(text, style.with_key("read", read))
    }

    /// [`dim_note`], above the spinner.
    pub fn note(&self, text: impl Display) {
        self.0.suspend(|| dim_note(text));
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The bytes that `progress` tells, behind the name of what is loaded; nothing before it does.
fn weights_read(progress: &LoadProgress) -> String {
    let told = |weights: WeightsRead| format!(": {}", bytes::of_all(weights.read, weights.total));
    progress.weights().map(told).unwrap_or_default()
}

/// A line on stderr whose text changes, and which is gone when this is dropped. It leaves room for
/// the `^C` that a terminal adds: that would begin another line, which nobody takes away.
pub struct Line(());

impl Line {
    /// An empty line; `None` where stderr is no terminal that can take a line away.
    pub fn open() -> Option<Line> {
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let takes_lines = io::stderr().is_terminal() && !dumb && ranks::other().is_none();
        // Made only then: it takes the line away as it is dropped.
        takes_lines.then(|| Line(()))
    }

    /// Shows `text` in place of what was there.
    pub fn say(&self, text: &str) {
        let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
        let most = usize::from(columns).checked_sub(3).unwrap_or(usize::MAX);
        let text: String = one_line(text).chars().take(most).collect();
        let _ = io::stderr().write_all(format!("\r{text}\x1b[K").as_bytes());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = io::stderr().write_all(b"\r\x1b[K");
    }
}

/// The part of a sound that was heard, as a bar on stderr until it is dropped; nothing where stderr
/// is no terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar beside `text` for so many seconds of sound.
    pub fn of_seconds(text: String, seconds: f64) -> Self {
        const BAR: &str = "{bar:24} {percent:>3} % {msg}, {eta} left";
        let bar = match ranks::other() {
            None if io::stderr().is_terminal() => ProgressBar::new((seconds * 100.0) as u64),
            _ => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template(BAR);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Progress(bar.with_style(style).with_message(one_line(&text)))
    }

    /// So many seconds were heard.
    pub fn at_second(&self, second: f64) {
        self.0.set_position((second * 100.0) as u64);
    }

    /// Runs `write` while the bar is not there.
    pub fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.0.suspend(write)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// `text` as a terminal may have it: control characters that it would obey are shown as pictures of
/// them, each by itself, so that it does not matter where a text is cut. Lines and tabs stay.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| match c {
        c if !obeyed(c) => c,
        '\x7f' => '␡',
        // The pictures of the first 32 characters stand in their order; those from U+0080 on have
        // none.
        c => char::from_u32(0x2400 + u32::from(c)).filter(|_| c < ' ').unwrap_or('\u{fffd}'),
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// `text` without the control characters that a terminal would obey, such as those that a model's
/// files can hold; its lines stay.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

/// [`printable`], on one line.
pub fn one_line(text: &str) -> String {
    printable(text).replace('\n', " ")
}

/// `text` on one line without its indentations, whatever a template or a library put into it.
fn joined(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    without_numbers(&one_line(&lines.collect::<Vec<_>>().join(" ")))
}

#[cfg(test)]
mod tests {
    use inference_core::LoadProgress;

    use super::{harmless, joined, one_line, printable, weights_read};

    #[test]
    fn a_load_tells_its_bytes_once_they_are_known() {
        let progress = LoadProgress::new();
        assert_eq!(weights_read(&progress), "");
        progress.begin(1 << 29);
        progress.reached(1 << 28);
        assert_eq!(weights_read(&progress), ": 256 of 512 MiB");
        progress.begin(3 << 30);
        progress.reached(1 << 29);
        assert_eq!(weights_read(&progress), ": 0.5 of 3.0 GiB");
    }

    #[test]
    fn an_error_is_one_line() {
        assert_eq!(joined("template: line 3\n  | bad\n\n"), "template: line 3 | bad");
        assert_eq!(joined("a: gone (os error 2)"), "a: gone");
        assert_eq!(joined("no prompt `\x1b[31mz`"), "no prompt ` [31mz`");
    }

    #[test]
    fn a_terminal_obeys_nothing_that_a_model_says() {
        assert_eq!(harmless("a\x1b]0;x\x07b\r\n\tc\u{9b}31m\x7f\0"), "a␛]0;x␇b␍\n\tc\u{fffd}31m␡␀");
        // Cut anywhere, each part is shown as it would be in the whole.
        assert_eq!(["a\x1b", "[2J"].map(harmless).concat(), "a␛[2J");
        // Marks of direction are part of a text that is written from right to left.
        let mixed = "\u{200f}שלום\u{202b} (a)\u{202c} é 👍🏽";
        assert_eq!(harmless(mixed), mixed);
    }

    #[test]
    fn a_terminal_obeys_nothing_that_a_file_holds() {
        assert_eq!(printable("a\x1b[2J\nb\u{9b}31m\x07\r"), "a [2J\nb 31m  ");
        assert_eq!(one_line("a\n\x1b]0;x"), "a  ]0;x");
    }
}
