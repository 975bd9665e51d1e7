//! Answers as API clients expect them: reasoning, content and tool calls told apart as they come.

#![forbid(unsafe_code)]

pub mod answer;
pub mod page;
