//! Files as torch writes them.

mod hostile;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mlx_ffi::Dtype;
use tempfile::TempDir;

use super::headers;
use crate::files::ModelFiles;
use crate::weights::TensorHeader;

const NAME: &str = "pytorch_model.bin";

/// A stored entry of a zip file.
struct Entry {
    name: String,
    bytes: Vec<u8>,
    method: u16,
    /// Its size in the list, where that is not the one of its bytes.
    told: Option<u32>,
    /// Its place in the list, where that is another.
    at: Option<u32>,
    flags: u16,
}

fn entry(name: &str, bytes: &[u8]) -> Entry {
    let name = format!("archive/{name}");
    Entry { name, bytes: bytes.to_vec(), method: 0, told: None, at: None, flags: 0 }
}

fn zip(entries: &[Entry]) -> Vec<u8> {
    let (mut bytes, mut list) = (Vec::new(), Vec::new());
    for entry in entries {
        let at = entry.at.unwrap_or(bytes.len() as u32);
        let size = entry.told.unwrap_or(entry.bytes.len() as u32);
        let shared = |out: &mut Vec<u8>| {
            for field in [20, entry.flags, entry.method, 0, 0, 0, 0] {
                out.extend(field.to_le_bytes());
            }
            out.extend(size.to_le_bytes());
            out.extend((entry.bytes.len() as u32).to_le_bytes());
            out.extend((entry.name.len() as u16).to_le_bytes());
            out.extend(0_u16.to_le_bytes());
        };
        list.extend(b"PK\x01\x02\x14\0");
        shared(&mut list);
        list.extend([0; 10]);
        list.extend(at.to_le_bytes());
        list.extend(entry.name.as_bytes());
        bytes.extend(b"PK\x03\x04");
        shared(&mut bytes);
        bytes.extend(entry.name.as_bytes());
        bytes.extend(&entry.bytes);
    }
    let start = bytes.len() as u32;
    bytes.extend(&list);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    for _ in 0..2 {
        bytes.extend((entries.len() as u16).to_le_bytes());
    }
    bytes.extend((list.len() as u32).to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend(0_u16.to_le_bytes());
    bytes
}

/// A zip file with sizes and places in 64 bits, as files over 4 GiB have them.
fn zip_64(entries: &[Entry]) -> Vec<u8> {
    let small = zip(entries);
    let at = |back: usize| small.len() - back;
    let start = u32::from_le_bytes(small[at(6)..at(2)].try_into().expect("four bytes")) as usize;
    let mut bytes = small[..start].to_vec();
    let mut rest = &small[start..at(22)];
    while !rest.is_empty() {
        let name = usize::from(rest[28]);
        let (entry, others) = rest.split_at(46 + name);
        let mut fixed = entry[..46].to_vec();
        let places = [24..28, 20..24, 42..46];
        let mut extra = vec![1, 0, 24, 0];
        for place in places {
            extra.extend(&fixed[place.clone()]);
            extra.extend([0; 4]);
            fixed[place].fill(0xff);
        }
        fixed[30] = extra.len() as u8;
        bytes.extend([&fixed[..], &entry[46..], &extra].concat());
        rest = others;
    }
    let (end, count) = (bytes.len() as u64, entries.len() as u64);
    bytes.extend(b"PK\x06\x06\x2c\0\0\0\0\0\0\0");
    bytes.extend([0; 12]);
    for number in [count, count, end - start as u64, start as u64] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(b"PK\x06\x07\0\0\0\0");
    bytes.extend(end.to_le_bytes());
    bytes.extend(b"\x01\0\0\0PK\x05\x06");
    bytes.extend([0; 4]);
    bytes.extend([0xff; 12]);
    bytes.extend([0; 2]);
    bytes
}

/// A file of a pickle and one storage of sixteen bytes.
fn file(pickle: &[u8]) -> Vec<u8> {
    let numbers: Vec<u8> = (0..16).collect();
    zip(&[entry("data.pkl", pickle), entry("byteorder", b"little"), entry("data/0", &numbers)])
}

fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

fn int(number: i64) -> Vec<u8> {
    [&[0x8a, 8][..], &number.to_le_bytes()].concat()
}

fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
    [b"(", &items.concat()[..], b"t"].concat()
}

fn ints(numbers: &[i64]) -> Vec<u8> {
    tuple(&numbers.iter().map(|number| int(*number)).collect::<Vec<_>>())
}

fn global(module: &str, name: &str) -> Vec<u8> {
    format!("c{module}\n{name}\n").into_bytes()
}

fn storage(kind: &str, key: &str, elements: i64) -> Vec<u8> {
    let kind = global("torch", &format!("{kind}Storage"));
    let id = tuple(&[text("storage"), kind, text(key), text("cpu"), int(elements)]);
    [&id[..], b"Q"].concat()
}

fn rebuilt(storage: Vec<u8>, offset: i64, shape: &[i64], strides: &[i64]) -> Vec<u8> {
    let hooks = [global("collections", "OrderedDict"), b")R".to_vec()].concat();
    let arguments = tuple(&[storage, int(offset), ints(shape), ints(strides), vec![0x89], hooks]);
    [&global("torch._utils", "_rebuild_tensor_v2")[..], &arguments, b"R"].concat()
}

/// A pickle of a dictionary with one value.
fn of_one(value: &[u8]) -> Vec<u8> {
    [b"\x80\x02}q\0(", &text("a")[..], value, b"u."].concat()
}

fn float(offset: i64, shape: &[i64], strides: &[i64]) -> Vec<u8> {
    of_one(&rebuilt(storage("Float", "0", 4), offset, shape, strides))
}

fn written(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(NAME);
    fs::write(&path, bytes).expect("a writable folder");
    (folder, path)
}

fn read(bytes: &[u8]) -> Result<BTreeMap<String, TensorHeader>, String> {
    let (_folder, path) = written(bytes);
    let began = Instant::now();
    let read = headers(&path, NAME).map_err(|error| error.to_string());
    assert!(began.elapsed() < Duration::from_secs(10));
    read
}

/// The numbers of the only tensor of a file.
fn values(pickle: &[u8]) -> Vec<f32> {
    let (folder, path) = written(&file(pickle));
    let headers = headers(&path, NAME).expect("a sound file");
    let files = ModelFiles::Folder(folder.path().to_owned());
    let array = files.read_tensor(&headers["a"]).expect("a tensor of it");
    array.to_vec_f32().expect("floats")
}

#[test]
fn views_are_what_they_show_of_their_storage() {
    let all: Vec<f32> =
        (0..4_u8).map(|at| f32::from_le_bytes([0, 1, 2, 3].map(|byte| 4 * at + byte))).collect();
    let of = |places: &[usize]| places.iter().map(|place| all[*place]).collect::<Vec<_>>();
    for (offset, shape, strides, places) in [
        (0, &[2, 2][..], &[2, 1][..], &[0, 1, 2, 3][..]),
        (0, &[2, 2], &[1, 2], &[0, 2, 1, 3]),
        (1, &[3], &[1], &[1, 2, 3]),
        (1, &[2], &[2], &[1, 3]),
        (3, &[1, 1], &[77, 99], &[3]),
        (2, &[], &[], &[2]),
        (0, &[2, 1, 2], &[1, 9, 2], &[0, 2, 1, 3]),
        (4, &[0, 3], &[3, 1], &[]),
    ] {
        let found = values(&float(offset, shape, strides));
        assert_eq!(found, of(places), "{offset} {shape:?} {strides:?}");
    }
}

#[test]
fn files_over_4_gib_have_the_same_tensors() {
    let pickle = float(1, &[2], &[1]);
    let entries = [entry("data.pkl", &pickle), entry("data/0", &[7; 16])];
    let small = read(&zip(&entries)).expect("a sound file");
    assert_eq!(read(&zip_64(&entries)).expect("a sound file"), small);
    let mut beyond = zip_64(&entries);
    let locator = beyond.len() - 42 + 8;
    beyond[locator + 7] = 0x7f;
    let error = read(&beyond).expect_err("the record is not there");
    assert!(error.contains("the record of a large file reaches"), "{error}");
}

#[test]
fn types_are_those_of_storages_and_doubles_become_floats() {
    for (kind, elements, dtype) in [
        ("Float", 4, Dtype::F32),
        ("Half", 8, Dtype::F16),
        ("BFloat16", 8, Dtype::Bf16),
        ("Double", 2, Dtype::F32),
        ("Long", 2, Dtype::I64),
        ("Int", 4, Dtype::I32),
        ("Short", 8, Dtype::I16),
        ("Char", 16, Dtype::I8),
        ("Byte", 16, Dtype::U8),
        ("Bool", 16, Dtype::Bool),
    ] {
        let tensor = rebuilt(storage(kind, "0", elements), 0, &[elements], &[1]);
        let parameter = tuple(&[tensor.clone(), vec![0x88], b"N".to_vec()]);
        let parameter =
            [&global("torch._utils", "_rebuild_parameter")[..], &parameter, b"R"].concat();
        for value in [tensor, parameter] {
            let headers = read(&file(&of_one(&value))).expect("a sound file");
            assert_eq!((headers["a"].dtype, headers["a"].elements()), (dtype, elements as u64));
        }
    }
    let doubles = of_one(&rebuilt(storage("Double", "0", 2), 0, &[2], &[1]));
    let expected = [0..8_u8, 8..16].map(|bytes| {
        f64::from_le_bytes(bytes.collect::<Vec<_>>().try_into().expect("eight")) as f32
    });
    assert_eq!(values(&doubles), expected);
}

#[test]
fn tensors_may_share_a_storage_and_what_a_dictionary_knows_beside_them_is_left_aside() {
    let shared = [&storage("Float", "0", 4)[..], b"q\x01"].concat();
    let first = rebuilt(shared, 0, &[2], &[1]);
    let second = rebuilt(b"h\x01".to_vec(), 2, &[2], &[1]);
    let facts = [&b"}"[..], &text("_metadata"), &int(1), b"sb"].concat();
    let ordered = global("collections", "OrderedDict");
    let items = [text("a"), first, text("b"), second].concat();
    let pickle = [b"\x80\x02", &ordered[..], b")R(", &items, b"u", &facts, b"."].concat();
    let headers = read(&file(&pickle)).expect("a sound file");
    assert_eq!(headers.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert!(headers.values().all(|header| header.shape == [2]));
}

#[test]
fn every_truncation_and_two_thousand_flipped_bits_are_errors_or_harmless() {
    let whole = file(&float(0, &[2, 2], &[1, 2]));
    let (folder, path) = written(&whole);
    let files = ModelFiles::Folder(folder.path().to_owned());
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).expect("a writable folder");
        assert!(headers(&path, NAME).is_err(), "{length} bytes");
    }
    let (mut state, mut refused, mut sound) = (20_261_130_u64, 0, 0);
    let mut random = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % bound
    };
    for _ in 0..2000 {
        let mut bytes = whole.clone();
        bytes[random(whole.len())] ^= 1 << random(8);
        fs::write(&path, &bytes).expect("a writable folder");
        match headers(&path, NAME) {
            Err(_) => refused += 1,
            Ok(headers) => {
                sound += 1;
                for header in headers.values() {
                    files.read_tensor(header).expect("its bytes were checked");
                }
            }
        }
    }
    assert!(refused > 500 && sound > 100, "{refused} {sound}");
}

/// A folder of the fixtures.
fn fixture(name: &str) -> ModelFiles {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    ModelFiles::Folder(fixtures.join(name))
}

#[test]
fn what_torch_saved_has_the_bytes_of_the_safetensors_it_was_made_of() {
    let expected = fixture("embeddings/models/qwen3_embedding");
    let headers = expected.headers().expect("a sound checkpoint");
    assert!(headers.len() > 10);
    for name in ["whole", "shards", "views"] {
        let saved = fixture(&format!("pickled/{name}"));
        let found = saved.headers().expect("a sound checkpoint");
        assert_eq!(found.keys().collect::<Vec<_>>(), headers.keys().collect::<Vec<_>>(), "{name}");
        for (tensor, header) in &headers {
            let saved_header = &found[tensor];
            assert_eq!(saved_header.shape, header.shape, "{name}: {tensor}");
            let bits = |files: &ModelFiles, header: &TensorHeader| {
                let array = files.read_tensor(header).expect("a tensor of it");
                let floats = array.to_vec_f32().expect("floats");
                floats.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            assert_eq!(bits(&saved, saved_header), bits(&expected, header), "{name}: {tensor}");
        }
    }
}
