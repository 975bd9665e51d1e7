//! Arrays that are read from files.

use std::fs::File;
use std::io::Write;

use mlx_ffi::{Array, Device, Dtype, Result, ops, random, use_device};

/// A file of so many bytes, each of which tells where it lies, and what it holds.
fn file(bytes: usize) -> (File, Vec<u8>) {
    let data: Vec<u8> =
        (0..bytes as u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let mut file = tempfile::tempfile().expect("a temporary folder");
    file.write_all(&data).expect("a writable file");
    (file, data)
}

#[test]
fn values_of_any_size_and_place_are_those_of_the_file() {
    // Several pieces for several threads, the last one shorter; places that no type is aligned to.
    let (file, data) = file((20 << 20) + 100);
    for (offset, values) in [(0, 1), (3, 16), (13, 5 << 20), (97, 5 << 20)] {
        let array = Array::read(&file, offset, &[values, 1], Dtype::U32).unwrap();
        assert_eq!((array.shape(), array.dtype()), (&[values, 1][..], Dtype::U32));
        let from = offset as usize;
        let expected: Vec<u32> = data[from..from + 4 * values as usize]
            .chunks_exact(4)
            .map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()))
            .collect();
        assert!(array.to_vec_u32().unwrap() == expected, "{values} values from byte {offset}");
    }
    assert_eq!(Array::read(&file, 5, &[0, 7], Dtype::F32).unwrap().to_vec_f32().unwrap(), []);
    let scalar = Array::read(&file, 8, &[], Dtype::U32).unwrap();
    let expected = u32::from_ne_bytes(data[8..12].try_into().unwrap());
    assert_eq!(scalar.to_vec_u32().unwrap(), [expected]);
}

#[test]
fn segments_are_read_in_turn_and_nothing_else() {
    let (file, data) = file(5 << 20);
    let segments = [(7, 3), (2 << 20, 2 << 20), (0, 1), (100, 4)];
    let bytes: usize = segments.iter().map(|(_, bytes)| bytes).sum();
    let array = Array::read_segments(&file, &segments, &[bytes as i32 / 4, 4], Dtype::U8).unwrap();
    let expected: Vec<u8> = segments
        .iter()
        .flat_map(|(start, bytes)| &data[*start as usize..*start as usize + bytes])
        .copied()
        .collect();
    let words = Array::from_bytes(&expected, &[bytes as i32 / 4], Dtype::U32).unwrap();
    let found = Array::read_segments(&file, &segments, &[bytes as i32 / 4], Dtype::U32).unwrap();
    assert_eq!(array.shape(), [bytes as i32 / 4, 4]);
    assert!(found.to_vec_u32().unwrap() == words.to_vec_u32().unwrap());
    for (segments, shape, dtype, reason) in [
        (&[(0, 4)][..], 2, Dtype::U32, "segments"),
        (&[(5 << 20, 4)], 1, Dtype::U32, "ends early"),
        (&[(0, 1)], 1, Dtype::Bool, "segments"),
        (&[(0, usize::MAX), (0, 2)], 1, Dtype::U8, "segments"),
    ] {
        let error = Array::read_segments(&file, segments, &[shape], dtype).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn what_a_file_does_not_hold_is_an_error() {
    let (file, _) = file(9 << 20);
    for (offset, shape) in [(1, [9 << 20]), (10 << 20, [1]), ((9 << 20) - 1, [2])] {
        let error = Array::read(&file, offset, &shape, Dtype::U8).unwrap_err().to_string();
        assert!(error.contains("ends early"), "{error}");
    }
    let error = Array::read(&file, 0, &[-1], Dtype::U8).unwrap_err().to_string();
    assert!(error.contains("-1"), "{error}");
    let error = Array::read(&file, 0, &[i32::MAX; 4], Dtype::U8).unwrap_err().to_string();
    assert!(error.contains("shape"), "{error}");
    // Two of these bytes are neither 0 nor 1.
    let error = Array::read(&file, 0, &[4], Dtype::Bool).unwrap_err().to_string();
    assert!(error.contains("Bool"), "{error}");
}

#[test]
fn joined_rows_are_those_of_all_parts_in_turn() -> Result<()> {
    use_device(Device::Cpu)?;
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let part = |rows: i32| random::normal(&[rows, 3, 700], dtype, &random::key(rows as u64)?);
        let parts = [part(5)?, part(400)?, part(0)?, part(1)?];
        let parts: Vec<&Array> = parts.iter().collect();
        let (found, expected) = (Array::joined(&parts)?, ops::concatenate(&parts, 0)?);
        assert_eq!((found.shape(), found.dtype()), (expected.shape(), dtype));
        assert!(found.to_vec_f32()? == expected.to_vec_f32()?, "{dtype:?}");
    }
    let none = ops::zeros(&[0], Dtype::Bf16)?;
    assert_eq!(Array::joined(&[&none, &none])?.shape(), [0]);
    let (a, b) = (ops::zeros(&[2, 3], Dtype::F32)?, ops::zeros(&[2, 4], Dtype::F32)?);
    let scalar = ops::zeros(&[], Dtype::F32)?;
    let other = ops::zeros(&[2, 3], Dtype::F16)?;
    for parts in [&[][..], &[&a, &b], &[&a, &other], &[&scalar], &[&ops::swap_axes(&a, 0, 1)?]] {
        Array::joined(parts).expect_err("they do not fit");
    }
    Ok(())
}
