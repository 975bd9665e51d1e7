//! HTTP: connections, the guard that every request passes, bodies within bounds, and responses.

pub mod access_log;
pub mod address;
pub mod body;
pub mod connection;
pub mod form;
pub mod guard;
pub mod handshake;
pub mod ignored;
pub mod path;
pub mod query;
pub mod response;
pub mod timed_io;
pub mod traced;
pub mod unread;
