//! Python's strings, followed byte by byte in text that has not ended.

/// The position of a byte: in a string or outside of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a string, or it is a quote around one.
    Inside,
    Outside,
    /// A string on one line cannot have it.
    Broken,
}

/// Which bytes belong to strings.
#[derive(Debug, Default)]
pub struct Strings {
    quote: Option<Quote>,
    escaped: bool,
}

/// A string that the text is in.
#[derive(Clone, Copy, Debug)]
struct Quote {
    byte: u8,
    /// How many quotes stand side by side here.
    run: u8,
    /// The string's text has begun.
    begun: bool,
    /// Three quotes began it, so that three end it.
    triple: bool,
}

impl Strings {
    /// Returns true when a string has begun and not ended.
    pub fn is_open(&self) -> bool {
        // Two quotes are an empty string, unless a third one follows.
        self.quote.is_some_and(|quote| quote.begun || quote.run != 2)
    }

    /// Takes the next byte and returns its position.
    pub fn next(&mut self, byte: u8) -> Place {
        if std::mem::take(&mut self.escaped) {
            return Place::Inside;
        }
        match self.quote {
            Some(quote) if self.is_open() || quote.byte == byte => self.within(quote, byte),
            _ => {
                let opens = matches!(byte, b'"' | b'\'');
                let quote = Quote { byte, run: 1, begun: false, triple: false };
                self.quote = opens.then_some(quote);
                if opens { Place::Inside } else { Place::Outside }
            }
        }
    }

    fn within(&mut self, quote: Quote, byte: u8) -> Place {
        let quote = match byte == quote.byte {
            true if !quote.begun && quote.run == 2 => {
                Quote { run: 0, begun: true, triple: true, ..quote }
            }
            true => Quote { run: quote.run + 1, ..quote },
            false => Quote { run: 0, begun: true, ..quote },
        };
        self.escaped = byte == b'\\';
        let over = quote.begun && quote.run == if quote.triple { 3 } else { 1 };
        self.quote = (!over).then_some(quote);
        if byte == b'\n' && !quote.triple { Place::Broken } else { Place::Inside }
    }
}
