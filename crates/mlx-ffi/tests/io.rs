//! Reading safetensors files, good and bad.

use std::path::{Path, PathBuf};

use mlx_ffi::{Dtype, Result, load_safetensors, ops};

/// A folder of its own in the temporary one, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("mlx-ffi-io-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary folder takes a folder");
        Folder(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("the folder takes a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

const TWO: &str = r#"{"__metadata__":{"format":"mlx"},"model.w":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},"ids":{"dtype":"U32","shape":[1],"data_offsets":[4,8]}}"#;

#[test]
fn arrays_come_by_name_with_shape_type_and_values() -> Result<()> {
    let folder = Folder::new("good");
    // 1.5 and -2 in bf16, then 7.
    let data = [0xc0, 0x3f, 0x00, 0xc0, 7, 0, 0, 0];
    let arrays = load_safetensors(&folder.file("two ü.safetensors", &safetensors(TWO, &data)))?;
    assert_eq!(arrays.len(), 2);
    let w = &arrays["model.w"];
    assert_eq!((w.shape(), w.dtype()), (&[2, 1][..], Dtype::Bf16));
    assert_eq!(w.to_vec_f32()?, [1.5, -2.0]);
    assert_eq!(arrays["ids"].item_u32()?, 7);
    Ok(())
}

#[test]
fn an_array_outlives_the_rest_of_its_file_and_the_file() -> Result<()> {
    let folder = Folder::new("outlives");
    let path = folder.file("two.safetensors", &safetensors(TWO, &[1, 0, 0, 0, 9, 0, 0, 0]));
    let mut arrays = load_safetensors(&path)?;
    let ids = arrays.remove("ids").expect("the file has it");
    drop(arrays);
    drop(folder);
    assert_eq!(ids.item_u32()?, 9);
    Ok(())
}

#[test]
fn a_file_without_arrays_gives_none() -> Result<()> {
    let folder = Folder::new("none");
    assert!(
        load_safetensors(&folder.file("none.safetensors", &safetensors("{}", &[])))?.is_empty()
    );
    Ok(())
}

#[track_caller]
fn assert_refused(path: &Path, part_of_the_text: &str) {
    let error = load_safetensors(path).expect_err("MLX refuses the file");
    assert!(error.to_string().contains(part_of_the_text), "{error}");
    let sum = ops::zeros(&[2], Dtype::F32).and_then(|zeros| ops::sum(&zeros, 0, false)?.item_f32());
    assert_eq!(sum, Ok(0.0), "the next good call works");
}

#[test]
fn files_that_are_missing_truncated_or_garbage_are_errors() {
    let folder = Folder::new("bad");
    let missing = folder.0.join("missing.safetensors");
    assert_refused(&missing, "Failed to open file");
    let whole = safetensors(TWO, &[0; 8]);
    for (name, bytes, text) in [
        ("empty", vec![], "Unable to read"),
        ("short", b"xyz".to_vec(), "Unable to read"),
        ("header cut", whole[..40].to_vec(), "bytes long but the file is only"),
        ("data cut", whole[..whole.len() - 1].to_vec(), "exceeding the size of the file"),
        ("garbage", vec![b'x'; 200], "Invalid json header length"),
        ("no header", 0_u64.to_le_bytes().to_vec(), "Invalid json header length"),
        ("no json", safetensors("not json at all", &[]), "parse error"),
        ("a list", safetensors("[1, 2]", &[]), "Invalid json metadata"),
        ("no keys", safetensors(r#"{"a":{}}"#, &[]), "not found"),
        (
            "unknown type",
            safetensors(r#"{"a":{"dtype":"Q9","shape":[1],"data_offsets":[0,4]}}"#, &[0; 4]),
            "unsupported dtype",
        ),
        (
            "negative dimension",
            safetensors(r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, &[0; 4]),
            "invalid data offsets",
        ),
        (
            "wrong size",
            safetensors(r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,4]}}"#, &[0; 4]),
            "invalid data offsets",
        ),
        (
            "text for a shape",
            safetensors(r#"{"a":{"dtype":"F32","shape":"x","data_offsets":[0,4]}}"#, &[0; 4]),
            "type must be",
        ),
    ] {
        assert_refused(&folder.file(&format!("{name}.safetensors"), &bytes), text);
    }
    assert_refused(&folder.0, "Unable to read");
}

#[test]
fn paths_that_cannot_be_passed_on_are_errors() {
    assert_refused(Path::new("a\0b.safetensors"), "zero byte");
}

#[test]
fn a_percent_sign_in_a_message_is_text() {
    assert_refused(Path::new("100%s%n.safetensors"), "100%s%n.safetensors");
    let folder = Folder::new("percent");
    let header = r#"{"a":{"dtype":"%s%n","shape":[1],"data_offsets":[0,4]}}"#;
    assert_refused(&folder.file("dtype.safetensors", &safetensors(header, &[0; 4])), "%s%n");
}

#[test]
fn data_that_disappears_before_it_is_read_is_an_error_or_zeros() -> Result<()> {
    let folder = Folder::new("shrinks");
    let path = folder.file("two.safetensors", &safetensors(TWO, &[0; 8]));
    let arrays = load_safetensors(&path)?;
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file is ours");
    file.set_len(20).expect("the file can shrink");
    // What matters is that the process lives on.
    let _ = arrays["ids"].to_vec_u32();
    assert_eq!(ops::zeros(&[1], Dtype::F32)?.item_f32()?, 0.0);
    Ok(())
}
