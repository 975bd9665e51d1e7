//! The mark that ends a call, found outside of the call's strings.

use super::elements::Ends;
use super::json_scan::Step;
use super::marks::{Found, Prefix, find, prefix};
use super::strings::{Place, Strings};

/// Looks for the mark that ends a call whose values are in quotes.
#[derive(Debug)]
pub struct CloseScan {
    close: &'static str,
    at: usize,
    quotes: Quotes,
    /// The first such mark inside of a string.
    within_string: Option<usize>,
}

#[derive(Debug)]
enum Quotes {
    /// This mark begins and ends a string.
    Mark { quote: &'static str, is_open: bool },
    /// Those of Python.
    Python(Strings),
    /// There are none, or they do not pair.
    Unpaired,
}

impl CloseScan {
    /// A scan from byte `at` on, with strings between two `quote`s.
    pub fn quoted(at: usize, close: &'static str, quote: &'static str, ends: Ends) -> CloseScan {
        CloseScan::new(at, close, Quotes::Mark { quote, is_open: false }, ends)
    }

    /// A scan from byte `at` on, with strings in Python's quotes.
    pub fn python(at: usize, close: &'static str, ends: Ends) -> CloseScan {
        CloseScan::new(at, close, Quotes::Python(Strings::default()), ends)
    }

    fn new(at: usize, close: &'static str, quotes: Quotes, ends: Ends) -> CloseScan {
        let quotes = if ends == Ends::Weighed { quotes } else { Quotes::Unpaired };
        CloseScan { close, at, quotes, within_string: None }
    }

    /// The first end that lies within what seems to be a string. It counts where the call cannot be
    /// read up to a later one.
    pub fn within_string(&self) -> Option<usize> {
        self.within_string
    }

    /// Goes on in `text`, which begins as it did the last time.
    pub fn scan(&mut self, text: &str) -> Step {
        loop {
            let step = match &mut self.quotes {
                Quotes::Mark { .. } => self.marks(text),
                Quotes::Python(_) => self.python_strings(text),
                Quotes::Unpaired => match self.within_string {
                    Some(end) => Step::Done(end),
                    None => match find(&text[self.at..], &[self.close]) {
                        Found::Mark(at, _) => Step::Done(self.at + at),
                        Found::Nothing(at) => {
                            self.at += at;
                            Step::More
                        }
                    },
                },
            };
            match step {
                Step::Bad(at) => (self.at, self.quotes) = (at, Quotes::Unpaired),
                step => return step,
            }
        }
    }

    fn marks(&mut self, text: &str) -> Step {
        let Quotes::Mark { quote, is_open } = &mut self.quotes else { return Step::Bad(self.at) };
        loop {
            match find(&text[self.at..], &[self.close, quote]) {
                Found::Mark(at, mark) if mark == *quote => {
                    *is_open = !*is_open;
                    self.at += at + mark.len();
                }
                Found::Mark(at, mark) if *is_open => {
                    self.within_string.get_or_insert(self.at + at);
                    self.at += at + mark.len();
                }
                Found::Mark(at, _) => return Step::Done(self.at + at),
                Found::Nothing(at) => {
                    self.at += at;
                    return Step::More;
                }
            }
        }
    }

    fn python_strings(&mut self, text: &str) -> Step {
        let Quotes::Python(strings) = &mut self.quotes else { return Step::Bad(self.at) };
        let first = self.close.as_bytes().first();
        while let Some(byte) = text.as_bytes().get(self.at) {
            if Some(byte) == first {
                match prefix(&text[self.at..], self.close) {
                    Prefix::Whole if !strings.is_open() => return Step::Done(self.at),
                    Prefix::Whole => drop(self.within_string.get_or_insert(self.at)),
                    Prefix::Part => return Step::More,
                    Prefix::No => {}
                }
            }
            if strings.next(*byte) == Place::Broken {
                return Step::Bad(self.at);
            }
            self.at += 1;
        }
        Step::More
    }
}
