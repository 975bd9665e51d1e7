//! Reading of a user's files, and its refusals.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread;

use super::{MAX_BYTES, read, read_all, read_lines, read_regular};

/// A pipe with a name in `folder`.
fn pipe(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

#[test]
fn an_input_without_an_end_is_refused() {
    let error = read_all(std::io::repeat(b'a'), "stdin").unwrap_err().to_string();
    assert_eq!(error, "stdin: over 64 MiB, at most that are read");
    let most = std::io::Read::take(std::io::repeat(b'a'), MAX_BYTES);
    assert_eq!(read_all(most, "stdin").unwrap().len() as u64, MAX_BYTES);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    for read in [read, read_regular] {
        let error = read(Path::new("no/such/prompt.txt")).unwrap_err();
        assert_eq!(error.to_string(), "no/such/prompt.txt: no such file or directory");
    }
}

#[test]
fn text_that_is_not_utf8_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("latin1.txt");
    fs::write(&path, b"caf\xe9").unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("latin1.txt: not valid UTF-8 at byte 3"), "{error}");
}

#[test]
fn a_flag_reads_a_pipe_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = pipe(folder.path());
    let writer = {
        let path = path.clone();
        thread::spawn(move || {
            let mut pipe = fs::File::options().write(true).open(path).unwrap();
            pipe.write_all(b"one\n").unwrap();
            pipe.write_all(b"two\n").unwrap();
        })
    };
    assert_eq!(read(&path).unwrap(), "one\ntwo\n");
    writer.join().unwrap();
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |path: &Path| read_regular(path).unwrap_err().to_string();
    assert!(refusal(&pipe(folder.path())).ends_with("pipe: is a pipe, expected a regular file"));
    assert!(refusal(folder.path()).ends_with(": is a folder, expected a regular file"));
    let device = refusal(Path::new("/dev/zero"));
    assert_eq!(device, "/dev/zero: is a device, expected a regular file");
    let file = folder.path().join("file");
    fs::write(&file, "text").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert_eq!(read_regular(&link).unwrap(), "text");
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("labels.txt");
    fs::write(&path, "\u{feff}positive\r\nnegative\n").unwrap();
    assert_eq!(read_lines(&path).unwrap(), ["positive", "negative"]);
    for read in [read, read_regular] {
        assert_eq!(read(&path).unwrap(), "positive\r\nnegative\n");
        let utf16 = "\u{feff}positive".encode_utf16().flat_map(u16::to_le_bytes);
        let other = folder.path().join("utf16.txt");
        fs::write(&other, utf16.collect::<Vec<u8>>()).unwrap();
        let error = read(&other).unwrap_err().to_string();
        assert!(error.ends_with("utf16.txt: is UTF-16, not UTF-8; convert it to UTF-8 first"));
    }
}
