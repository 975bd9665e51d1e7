//! The parts of `ml chat`: what is typed, what it means, and the conversation that grows from it.

mod lines;
mod reader;
mod session;
mod slash;

pub use lines::Lines;
pub use reader::{Reader, Typed};
pub use session::{Answer, Session};
pub use slash::{HELP, Slash, said};
