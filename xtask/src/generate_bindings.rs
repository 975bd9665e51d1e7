//! Writes the Rust declarations of mlx-c and of our shim to stdout.
//!
//! `cargo xtask bindings` runs it, with libclang and the compiler's headers in its
//! environment: `generate-bindings MLX_C_SOURCES SHIM_FOLDER`.
#![forbid(unsafe_code)]

use std::env;
use std::io::stdout;

use anyhow::{Context, Result};
use bindgen::Builder;

/// The headers whose declarations are taken whole.
const HEADERS: &[&str] = &[
    "array",
    "closure",
    "compile",
    "cuda",
    "device",
    "distributed",
    "distributed_group",
    "error",
    "fast",
    "linalg",
    "memory",
    "metal",
    "ops",
    "optional",
    "random",
    "stream",
    "string",
    "transforms",
    "transforms_impl",
    "vector",
    "version",
];

/// Functions of other headers: our shim's. Nothing of `io.h`: MLX's readers trust the sizes that a
/// file states.
const FUNCTIONS: &[&str] = &["mlxrs_.*"];

/// Functions whose types exist on some processors only.
const BLOCKED: &[&str] = &[".*_b?float16"];

fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let mlx_c = args.next().context("usage: generate-bindings MLX_C_SOURCES SHIM_FOLDER")?;
    let shim = args.next().context("usage: generate-bindings MLX_C_SOURCES SHIM_FOLDER")?;
    let mut builder = Builder::default()
        .header(format!("{shim}/bindings.h"))
        .clang_args([format!("-I{mlx_c}"), format!("-I{shim}")])
        .raw_line("// Made by `cargo xtask bindings` from the headers of mlx-c; not to be edited.")
        .disable_header_comment()
        // The newest that this bindgen knows; edition 2024 needs it.
        .rust_target(
            bindgen::RustTarget::stable(85, 0).map_err(|error| anyhow::anyhow!("{error}"))?,
        )
        .rust_edition(bindgen::RustEdition::Edition2024)
        .allowlist_recursively(true)
        .prepend_enum_name(false)
        .layout_tests(false)
        .merge_extern_blocks(true)
        .sort_semantically(true)
        .formatter(bindgen::Formatter::Rustfmt);
    for header in HEADERS {
        builder = builder.allowlist_file(format!(".*/mlx/c/{header}\\.h"));
    }
    for function in FUNCTIONS {
        builder = builder.allowlist_function(function);
    }
    for function in BLOCKED {
        builder = builder.blocklist_function(function);
    }
    builder.generate()?.write(Box::new(stdout())).context("cannot write the bindings")
}
