//! The facade over a model that says what it is told.

#![allow(clippy::unwrap_used, reason = "a test ends where its setting fails")]

mod calls;
mod gemma;
mod loading;
mod stopping;
