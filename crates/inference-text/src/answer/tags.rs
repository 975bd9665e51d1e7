//! The marks of calls that are elements, family by family.

/// The marks of an element.
#[derive(Debug, PartialEq, Eq)]
pub struct Tags {
    /// The mark before the name; empty where there is none.
    pub open: &'static str,
    /// The mark behind the name; empty where the next mark ends it.
    pub named: &'static str,
    /// The mark before a key.
    pub key: &'static str,
    /// The marks between a key and its value, with or without whitespace between these.
    pub value: &'static [&'static str],
    /// The mark that ends a value.
    pub value_end: &'static str,
    /// The mark that ends the element.
    pub end: &'static str,
    /// The line breaks around a value.
    pub lines: Lines,
}

/// The line breaks around a value: a part of the format or of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// One before and one after it.
    Own,
    /// They belong to the value.
    None,
}

/// Qwen 3 Coder's.
pub const CODER: Tags = Tags {
    open: "<function=",
    named: ">",
    key: "<parameter=",
    value: &[">"],
    value_end: "</parameter>",
    end: "</function>",
    lines: Lines::Own,
};

/// Seed-OSS's: Qwen 3 Coder's on one line.
pub const SEED: Tags = Tags { lines: Lines::None, ..CODER };

/// MiniMax M2's.
pub const INVOKE: Tags = Tags {
    open: "<invoke name=\"",
    named: "\">",
    key: "<parameter name=\"",
    value: &["\">"],
    value_end: "</parameter>",
    end: "</invoke>",
    lines: Lines::None,
};

/// Muse's.
pub const ATEM: Tags = Tags {
    open: "<atem:invoke name=\"",
    named: "\">",
    key: "<atem:parameter name=\"",
    value: &["\">"],
    value_end: "</atem:parameter>",
    end: "</atem:invoke>",
    lines: Lines::None,
};

/// GLM's, whose end is that of the call.
pub const GLM: Tags = Tags {
    open: "",
    named: "",
    key: "<arg_key>",
    value: &["</arg_key>", "<arg_value>"],
    value_end: "</arg_value>",
    end: "</tool_call>",
    lines: Lines::None,
};
