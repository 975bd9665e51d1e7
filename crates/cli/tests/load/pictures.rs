//! Pictures that are none, and what a server that sees holds after them.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value as Json, json};

use crate::alone;
use crate::client::Reply;
use crate::server::Server;

/// How many are sent at least.
const LEAST: usize = 200;

/// Resident bytes that all rounds after the first may add.
const LEFT: u64 = 8 << 20;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn file(name: &str) -> Vec<u8> {
    fs::read(crates().join("pictures/tests/fixtures/files").join(name)).unwrap()
}

/// The checksum of a chunk of a PNG.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| match crc & 1 {
            1 => (crc >> 1) ^ 0xedb8_8320,
            _ => crc >> 1,
        })
    })
}

/// The PNG with other sides in its header.
fn png_of(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = file("type2_8.png");
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The GIF with another screen.
fn gif_of(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = file("palette.gif");
    bytes[6..8].copy_from_slice(&width.to_le_bytes());
    bytes[8..10].copy_from_slice(&height.to_le_bytes());
    bytes
}

/// The JPEG with other sides in its frame header.
fn jpeg_of(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = file("photo_75_2.jpg");
    let at = bytes.windows(2).position(|two| two == [0xff, 0xc0]).unwrap();
    bytes[at + 5..at + 7].copy_from_slice(&height.to_be_bytes());
    bytes[at + 7..at + 9].copy_from_slice(&width.to_be_bytes());
    bytes
}

/// Files that are no picture, or none that is taken, each with what it is.
fn bad() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for name in ["type2_8.png", "type6_16.png", "photo_75_2.jpg", "palette.gif", "lossless.webp"] {
        let whole = file(name);
        for part in 0..36 {
            let cut = whole[..whole.len() * part / 40].to_vec();
            all.push((format!("{name}, {part} of 40 parts"), cut));
        }
    }
    for side in [0, 20_000, 65_535, 1 << 30, u32::MAX] {
        all.push((format!("a PNG of {side}"), png_of(side, side)));
        all.push((format!("a PNG of {side} columns"), png_of(side, 3)));
    }
    for side in [0, 20_000, 65_535] {
        all.push((format!("a GIF of {side}"), gif_of(side, side)));
        all.push((format!("a JPEG of {side}"), jpeg_of(side, side)));
    }
    for name in [
        "refused_animated.webp",
        "refused_animated.png",
        "refused_profile.png",
        "refused_profile.jpg",
        "refused_profile.webp",
    ] {
        all.push((name.to_owned(), file(name)));
    }
    let others: [&[u8]; 8] = [
        b"hello",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.7\n",
        b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0",
        b"II*\0\x08\0\0\0",
        b"PK\x03\x04",
        b"\0\0\0\x1cftypavif\0\0\0\0",
        b"GIF89a",
    ];
    all.extend(others.map(|bytes| (format!("{bytes:?}"), bytes.to_vec())));
    all
}

fn ask(server: &Server, bytes: &[u8]) -> Reply {
    let url = format!("data:image/png;base64,{}", BASE64_STANDARD.encode(bytes));
    let picture = json!({"type": "image_url", "image_url": {"url": url}});
    let content = json!([{"type": "text", "text": "What is it?"}, picture]);
    let body = json!({"messages": [{"role": "user", "content": content}], "max_tokens": 4,
        "temperature": 0});
    server.post("/v1/chat/completions", &body)
}

#[test]
fn bad_pictures_are_named_and_leave_memory_as_it_was() {
    let _alone = alone();
    let model = crates().join("metal-backend/tests/fixtures/vision/models/gemma3");
    let server = Server::start(&["--model", model.to_str().unwrap()]);
    let good = file("type2_8.png");
    let text = |answer: Reply| -> Json {
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["choices"][0]["message"]["content"].clone()
    };
    let before = text(ask(&server, &good));
    let bad = bad();
    assert!(bad.len() >= LEAST, "{}", bad.len());
    let mut resident = Vec::new();
    for round in 0..3 {
        for (what, bytes) in &bad {
            let answer = ask(&server, bytes);
            assert_eq!(answer.status, 400, "round {round}, {what}: {}", answer.body);
            let error = &answer.json()["error"];
            assert_eq!(error["param"], "messages[0].content[1]", "{what}: {error}");
            let reason = error["message"].as_str().unwrap_or_default();
            assert!(reason.len() > 20, "{what}: {error}");
        }
        resident.extend(server.memory().map(|memory| memory.resident));
    }
    println!("{} bad pictures a round: resident {resident:?}", bad.len());
    if let (Some(first), Some(last)) = (resident.first(), resident.last()) {
        assert!(*last <= first + LEFT, "{resident:?}");
    }
    // A sound profile is not applied.
    for name in ["profile.png", "profile.jpg", "profile.webp"] {
        text(ask(&server, &file(name)));
    }
    assert_eq!(text(ask(&server, &good)), before);
}
