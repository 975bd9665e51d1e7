//! Tasks of this repository: `cargo xtask TASK`.

#![forbid(unsafe_code)]

mod tidy;

use std::path::Path;

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let task = std::env::args().nth(1);
    match task.as_deref() {
        Some("tidy") => tidy::run(&root),
        _ => anyhow::bail!("usage: cargo xtask tidy"),
    }
}
