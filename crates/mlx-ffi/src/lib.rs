//! Placeholder.
#![allow(unsafe_code)]
