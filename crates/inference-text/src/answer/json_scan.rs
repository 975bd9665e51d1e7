//! Finds the end of a JSON value, byte by byte in text that has not ended.

/// How far a scan got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The text may go on.
    More,
    /// The end was found, before this byte.
    Done(usize),
    /// The text from this byte on cannot belong to it.
    Bad(usize),
}

/// Brackets within brackets; more than any call has, fewer than the parser refuses.
pub const MAX_DEPTH: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Value,
    FirstItem,
    FirstKey,
    Key,
    Colon,
    Next,
    Scalar,
    String(Role),
    Escape(Role),
    Hex(Role, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Key,
    Value,
}

/// Follows one JSON object or array. Numbers and literals are not checked.
#[derive(Debug)]
pub struct JsonScan {
    at: usize,
    /// The bracket that closes each open value.
    closers: Vec<u8>,
    expect: Expect,
    /// The byte of the value's first key, after its quote; not needed once it was looked at.
    first_key: Option<usize>,
    /// The names that the first key may have, where it matters.
    keys: Option<&'static [&'static str]>,
}

impl JsonScan {
    /// A scan of the object or array that begins at byte `at`; its first key must be one of `keys`.
    pub fn new(at: usize, keys: Option<&'static [&'static str]>) -> JsonScan {
        JsonScan { at, closers: Vec::new(), expect: Expect::Value, first_key: None, keys }
    }

    /// Goes on in `text`, which begins as it did the last time.
    pub fn scan(&mut self, text: &str) -> Step {
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            let known = match self.expect {
                Expect::String(role) => self.in_string(role, byte, bytes),
                Expect::Escape(role) => match byte {
                    b'u' => self.then(Expect::Hex(role, 4)),
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                        self.then(Expect::String(role))
                    }
                    _ => false,
                },
                Expect::Hex(role, left) if byte.is_ascii_hexdigit() => match left {
                    1 => self.then(Expect::String(role)),
                    _ => self.then(Expect::Hex(role, left - 1)),
                },
                Expect::Hex(..) => false,
                Expect::Scalar if byte.is_ascii_alphanumeric() || b"+-.".contains(&byte) => true,
                _ if b" \t\r\n".contains(&byte) => {
                    if self.expect == Expect::Scalar {
                        self.expect = Expect::Next;
                    }
                    true
                }
                _ => self.between(byte),
            };
            if !known {
                return Step::Bad(self.at);
            }
            self.at += 1;
            if self.closers.is_empty() {
                return Step::Done(self.at);
            }
        }
        Step::More
    }

    /// The brackets that end the value here; none where it has ended.
    pub fn closers(&self) -> String {
        self.closers.iter().rev().map(|byte| char::from(*byte)).collect()
    }

    /// Lets the text begin `len` bytes later.
    pub fn forget(&mut self, len: usize) {
        self.at -= len;
    }

    fn then(&mut self, expect: Expect) -> bool {
        self.expect = expect;
        true
    }

    fn in_string(&mut self, role: Role, byte: u8, bytes: &[u8]) -> bool {
        match (byte, role) {
            (b'"', Role::Value) => self.then(Expect::Next),
            (b'"', Role::Key) => {
                if let (Some(start), Some(keys)) = (self.first_key.take(), self.keys.take()) {
                    let key = &bytes[start..self.at];
                    if !keys.iter().any(|name| name.as_bytes() == key) {
                        return false;
                    }
                }
                self.then(Expect::Colon)
            }
            (b'\\', _) => self.then(Expect::Escape(role)),
            (0..=0x1f, _) => false,
            _ => true,
        }
    }

    /// A byte that is in no string and no whitespace.
    fn between(&mut self, byte: u8) -> bool {
        match (self.expect, byte) {
            (Expect::FirstItem, b']') | (Expect::FirstKey, b'}') => self.close(byte),
            (Expect::Next | Expect::Scalar, b'}' | b']') => self.close(byte),
            (Expect::Next | Expect::Scalar, b',') => match self.closers.last() {
                Some(b'}') => self.then(Expect::Key),
                _ => self.then(Expect::Value),
            },
            (Expect::Colon, b':') => self.then(Expect::Value),
            (Expect::FirstKey | Expect::Key, b'"') => {
                if self.keys.is_some() {
                    self.first_key = Some(self.at + 1);
                }
                self.then(Expect::String(Role::Key))
            }
            (Expect::Value | Expect::FirstItem, b'{') => self.open(b'}', Expect::FirstKey),
            (Expect::Value | Expect::FirstItem, b'[') => self.open(b']', Expect::FirstItem),
            (Expect::Value | Expect::FirstItem, b'"') => self.then(Expect::String(Role::Value)),
            (Expect::Value | Expect::FirstItem, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                self.then(Expect::Scalar)
            }
            _ => false,
        }
    }

    fn open(&mut self, closer: u8, expect: Expect) -> bool {
        self.closers.push(closer);
        self.expect = expect;
        self.closers.len() <= MAX_DEPTH
    }

    fn close(&mut self, byte: u8) -> bool {
        self.expect = Expect::Next;
        self.closers.pop() == Some(byte)
    }
}
