//! Pictures against the answers of Pillow, torchvision and transformers, and pictures that are
//! refused. `tests/fixtures/make.py` made the files and the answers.

mod bad;
mod decoding;
mod processors;
mod profiles;
mod resizing;

use std::path::PathBuf;

use pictures::{Limits, Picture, PictureError};
use serde_json::Value;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The rows of a file of answers; there is at least one.
fn answers(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(fixtures().join(name)).expect("the fixture is there");
    let rows: Vec<Value> = serde_json::from_str(&text).expect("the fixture is JSON");
    assert!(!rows.is_empty(), "{name} is empty");
    rows
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join("files").join(name)).expect("the fixture is there")
}

fn number(value: &Value) -> u32 {
    value.as_u64().and_then(|number| u32::try_from(number).ok()).expect("a number of pixels")
}

fn decoded(bytes: &[u8]) -> Result<Picture, PictureError> {
    Picture::decode(bytes, &Limits::default())
}

/// FNV-1a with 64 bits, as `make.py` writes it.
fn hash(bytes: &[u8]) -> String {
    let value = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |value, byte| {
        (value ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{value:016x}")
}
