//! Shapes, types, joins and cuts against literal numbers, by hand.

use mlx_ffi::{Array, Dtype, Result, ops};

fn counted(shape: &[i32]) -> Result<Array> {
    let values: Vec<f32> = (0..shape.iter().product()).map(|value: i32| value as f32).collect();
    Array::from_f32(&values, shape)
}

const TYPES: [(Dtype, usize, bool); 14] = [
    (Dtype::Bool, 1, false),
    (Dtype::U8, 1, false),
    (Dtype::U16, 2, false),
    (Dtype::U32, 4, false),
    (Dtype::U64, 8, false),
    (Dtype::I8, 1, false),
    (Dtype::I16, 2, false),
    (Dtype::I32, 4, false),
    (Dtype::I64, 8, false),
    (Dtype::F16, 2, true),
    (Dtype::F32, 4, true),
    (Dtype::F64, 8, true),
    (Dtype::Bf16, 2, true),
    (Dtype::Complex64, 8, false),
];

#[test]
fn each_type_has_its_size_and_survives_a_round_trip() -> Result<()> {
    for (dtype, size, float) in TYPES {
        let array = ops::zeros(&[3, 5], dtype)?;
        assert_eq!((array.dtype(), array.size(), array.nbytes()), (dtype, 15, 15 * size));
        assert_eq!((dtype.size(), dtype.is_float()), (size, float));
        let from_bytes = Array::from_bytes(&vec![1; 2 * size], &[2], dtype)?;
        assert_eq!((from_bytes.dtype(), from_bytes.nbytes()), (dtype, 2 * size));
        let one = Array::scalar(1.0, dtype)?;
        assert_eq!((one.dtype(), one.item_f32()?), (dtype, 1.0));
    }
    Ok(())
}

#[test]
fn bytes_are_copied_at_any_alignment() -> Result<()> {
    let mut bytes = vec![0];
    bytes.extend([1.5_f32, -2.0].iter().flat_map(|value| value.to_ne_bytes()));
    let array = Array::from_bytes(&bytes[1..], &[2], Dtype::F32)?;
    drop(bytes);
    assert_eq!(array.to_vec_f32()?, [1.5, -2.0]);
    Ok(())
}

#[test]
fn bf16_and_f16_bytes_mean_what_the_formats_say() -> Result<()> {
    let bytes = |values: [u16; 2]| values.map(u16::to_ne_bytes).concat();
    let bf16 = Array::from_bytes(&bytes([0x3fc0, 0xc000]), &[2], Dtype::Bf16)?;
    assert_eq!(bf16.to_vec_f32()?, [1.5, -2.0]);
    let f16 = Array::from_bytes(&bytes([0x3e00, 0xc000]), &[2], Dtype::F16)?;
    assert_eq!(f16.to_vec_f32()?, [1.5, -2.0]);
    Ok(())
}

#[test]
fn a_scalar_has_no_dimensions() -> Result<()> {
    let scalar = Array::scalar(2.5, Dtype::F32)?;
    assert_eq!((scalar.shape(), scalar.size(), scalar.item_f32()?), (&[][..], 1, 2.5));
    assert_eq!(scalar.dims::<0>()?, [0; 0]);
    assert_eq!(Array::from_f32(&[4.0], &[])?.shape(), []);
    assert_eq!(format!("{scalar:?}"), "Array([], F32)");
    Ok(())
}

#[test]
fn dims_names_both_ranks() -> Result<()> {
    let array = counted(&[2, 3])?;
    assert_eq!(array.dims::<2>()?, [2, 3]);
    let error = array.dims::<3>().expect_err("the rank is 2");
    assert_eq!(error.to_string(), "expected 3 dimensions, found 2: [2, 3]");
    Ok(())
}

#[test]
fn astype_converts_and_view_reinterprets() -> Result<()> {
    let a = Array::from_f32(&[1.0, -2.0], &[2])?;
    assert_eq!(ops::view(&a, Dtype::U32)?.to_vec_u32()?, [0x3f80_0000, 0xc000_0000]);
    let halves = ops::view(&a, Dtype::U16)?;
    assert_eq!((halves.shape(), halves.to_vec_u32()?), (&[4][..], vec![0, 0x3f80, 0, 0xc000]));
    let truncated = ops::astype(&Array::from_f32(&[1.9, 3.0], &[2])?, Dtype::U32)?;
    assert_eq!(truncated.to_vec_u32()?, [1, 3]);
    let wrapped = ops::astype(&Array::from_i32(&[300, -1], &[2])?, Dtype::I8)?;
    assert_eq!(wrapped.to_vec_f32()?, [44.0, -1.0]);
    Ok(())
}

#[test]
fn reshape_infers_one_dimension() -> Result<()> {
    let a = ops::reshape(&counted(&[2, 6])?, &[3, -1, 2])?;
    assert_eq!(a.shape(), [3, 2, 2]);
    assert_eq!(a.to_vec_f32()?[5], 5.0);
    assert_eq!(ops::reshape(&counted(&[1])?, &[])?.shape(), []);
    assert_eq!(ops::reshape(&counted(&[0])?, &[3, 0])?.shape(), [3, 0]);
    Ok(())
}

#[test]
fn views_read_in_their_own_order() -> Result<()> {
    let a = counted(&[2, 3])?;
    let transposed = ops::swap_axes(&a, -1, 0)?;
    assert_eq!(transposed.shape(), [3, 2]);
    assert_eq!(transposed.to_vec_f32()?, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_eq!(transposed.to_vec_u32()?, [0, 3, 1, 4, 2, 5]);
    let slice = ops::slice_axis(&transposed, 0, 1, 3)?;
    assert_eq!(slice.to_vec_f32()?, [1.0, 4.0, 2.0, 5.0]);
    let broadcast = ops::broadcast_to(&Array::from_f32(&[7.0, 8.0], &[2, 1])?, &[2, 2, 3])?;
    let rows = [7.0, 7.0, 7.0, 8.0, 8.0, 8.0];
    assert_eq!(broadcast.to_vec_f32()?, [rows, rows].concat());
    Ok(())
}

#[test]
fn dimensions_of_one_come_and_go() -> Result<()> {
    let a = counted(&[2, 3])?;
    let expanded = ops::expand_dims(&a, -2)?;
    assert_eq!(expanded.shape(), [2, 1, 3]);
    assert_eq!(ops::squeeze(&expanded, 1)?.shape(), [2, 3]);
    assert_eq!(ops::expand_dims(&a, 2)?.shape(), [2, 3, 1]);
    Ok(())
}

#[test]
fn concatenate_joins_along_any_axis() -> Result<()> {
    let (a, b) = (counted(&[2, 1])?, counted(&[2, 2])?);
    let joined = ops::concatenate(&[&a, &b, &a], -1)?;
    assert_eq!(joined.shape(), [2, 4]);
    assert_eq!(joined.to_vec_f32()?, [0.0, 0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 1.0]);
    let empty = ops::zeros(&[0, 2], Dtype::F32)?;
    assert_eq!(ops::concatenate(&[&empty, &b], 0)?.to_vec_f32()?, [0.0, 1.0, 2.0, 3.0]);
    Ok(())
}

#[test]
fn arange_and_zeros_fill_new_arrays() -> Result<()> {
    assert_eq!(ops::arange(-1, 3, Dtype::F16)?.to_vec_f32()?, [-1.0, 0.0, 1.0, 2.0]);
    let ids = ops::arange(3, 5, Dtype::U32)?;
    assert_eq!((ids.dtype(), ids.to_vec_u32()?), (Dtype::U32, vec![3, 4]));
    assert_eq!(ops::arange(5, 3, Dtype::I32)?.shape(), [0]);
    assert_eq!(ops::zeros(&[2, 0, 3], Dtype::Bf16)?.size(), 0);
    assert_eq!(ops::zeros(&[], Dtype::I32)?.item_u32()?, 0);
    Ok(())
}
