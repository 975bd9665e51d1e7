//! Traces in the form of OpenTelemetry: spans of requests, which wait in a bounded queue and are
//! sent in the background.

pub mod context;
pub mod queue;
pub mod sender;
pub mod settings;
pub mod span;
