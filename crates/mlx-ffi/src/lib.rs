//! Placeholder.
#![allow(unsafe_code)]

mod sys;
