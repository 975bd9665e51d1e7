//! A terminal for the programs of tests.

use std::fs::File;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Both sides of a new terminal: the one that a person sees, and the program's.
pub fn terminal() -> (File, File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let side = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (File::from(terminal), side)
}
