//! Arguments that nobody should give: each is an error before a kernel runs, so that no safe
//! function reads or writes outside of an array.

use mlx_ffi::{
    Array, Device, Dtype, Indices, QuantMode, Quantization, Quantized, Result, gather_qmm, ops,
    quantize, random, use_device,
};

const AFFINE_4: Quantization = Quantization { mode: QuantMode::Affine, bits: 4, group_size: 32 };

/// `[3, 4]`.
fn table() -> Result<Array> {
    ops::reshape(&ops::arange(0, 12, Dtype::F32)?, &[3, 4])
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T>, part_of_the_text: &str) {
    let error = result.expect_err("the arguments must be refused").to_string();
    assert!(error.contains(part_of_the_text), "{error}");
}

/// Indices just beyond an axis of four, and far beyond.
fn beyond() -> [Result<Indices>; 2] {
    [4, u32::MAX].map(|index| Indices::from_u32(&[0, 1, index], &[3, 1]))
}

#[test]
fn take_refuses_indices_beyond_the_axis() -> Result<()> {
    for indices in beyond() {
        let indices = indices?;
        assert_refused(ops::take(&table()?, &indices, 1), "[take] indices reach up to");
        assert_refused(ops::take(&table()?, &indices, -1), "expected indices below 4");
        // An index of the other axis is no index of this one.
        let last = Indices::from_u32(&[3], &[1])?;
        assert_refused(ops::take(&table()?, &last, 0), "expected indices below 3");
        assert_eq!(ops::take(&table()?, &last, 1)?.to_vec_f32()?, [3.0, 7.0, 11.0]);
    }
    assert_refused(
        ops::take(&ops::zeros(&[0, 4], Dtype::F32)?, &Indices::from_u32(&[0], &[1])?, 0),
        "expected indices below 0",
    );
    Ok(())
}

#[test]
fn take_positions_refuses_indices_beyond_all_rows() -> Result<()> {
    let rows = ops::reshape(&table()?, &[3, 2, 2])?;
    for shape in [[3, 1], [1, 3]] {
        let indices = Indices::from_u32(&[5, 0, 2], &shape)?;
        let [n, _] = shape;
        let found = ops::take_positions(&rows, &indices)?;
        assert_eq!(found.shape(), [n, 3 / n, 2]);
        assert_eq!(found.to_vec_f32()?, [10.0, 11.0, 0.0, 1.0, 4.0, 5.0]);
    }
    let beyond = Indices::from_u32(&[6], &[1, 1])?;
    assert_refused(ops::take_positions(&rows, &beyond), "expected indices below 6");
    ops::take_positions(&table()?, &Indices::from_u32(&[0], &[1, 1])?)
        .expect_err("no rows of rows");
    Ok(())
}

#[test]
fn take_along_axis_refuses_indices_beyond_the_axis_or_of_another_shape() -> Result<()> {
    for indices in beyond() {
        assert_refused(ops::take_along_axis(&table()?, &indices?, 1), "indices reach up to");
    }
    for shape in [&[2][..], &[2, 1], &[1, 2, 1], &[6, 1]] {
        let count = shape.iter().product::<i32>() as usize;
        let indices = Indices::from_u32(&vec![0; count], shape)?;
        assert_refused(ops::take_along_axis(&table()?, &indices, 1), "do not fit axis 1");
    }
    Ok(())
}

#[test]
fn put_along_axis_refuses_indices_beyond_the_axis_or_of_another_shape() -> Result<()> {
    let value = Array::scalar(1.0, Dtype::F32)?;
    for indices in beyond() {
        assert_refused(ops::put_along_axis(&table()?, &indices?, &value, 1), "reach up to");
    }
    for shape in [&[2][..], &[2, 1], &[6, 1]] {
        let indices = Indices::from_u32(&vec![0; shape[0] as usize], shape)?;
        assert_refused(ops::put_along_axis(&table()?, &indices, &value, 1), "do not fit axis 1");
    }
    let indices = Indices::from_u32(&[0, 1, 2], &[3, 1])?;
    let wide = ops::zeros(&[3, 5], Dtype::F32)?;
    assert_refused(ops::put_along_axis(&table()?, &indices, &wide, 1), "do not broadcast");
    Ok(())
}

#[test]
fn scatter_add_axis_refuses_indices_beyond_the_axis_or_of_another_shape() -> Result<()> {
    let value = Array::scalar(1.0, Dtype::F32)?;
    for indices in beyond() {
        assert_refused(ops::scatter_add_axis(&table()?, &indices?, &value, 1), "reach up to");
    }
    for shape in [&[2][..], &[2, 1], &[6, 1]] {
        let indices = Indices::from_u32(&vec![0; shape[0] as usize], shape)?;
        assert_refused(ops::scatter_add_axis(&table()?, &indices, &value, 1), "do not fit axis 1");
    }
    let indices = Indices::from_u32(&[0, 1, 2], &[3, 1])?;
    for shape in [&[6, 1][..], &[1, 3, 1], &[3, 2]] {
        let values = ops::zeros(shape, Dtype::F32)?;
        let result = ops::scatter_add_axis(&table()?, &indices, &values, 1);
        assert_refused(result, "do not broadcast");
    }
    Ok(())
}

#[test]
fn values_of_another_type_are_converted_before_they_are_written() -> Result<()> {
    let indices = Indices::from_u32(&[3, 0, 1], &[3, 1])?;
    for dtype in [Dtype::U8, Dtype::F16, Dtype::I64] {
        let values = ops::astype(&Array::from_u32(&[7, 8, 9], &[3, 1])?, dtype)?;
        let put = ops::put_along_axis(&table()?, &indices, &values, 1)?;
        let expected = [0.0, 1.0, 2.0, 7.0, 8.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0];
        assert_eq!((put.dtype(), put.to_vec_f32()?), (Dtype::F32, expected.to_vec()));
    }
    Ok(())
}

#[test]
fn gather_mm_refuses_indices_beyond_the_matrices_and_empty_operands() -> Result<()> {
    use_device(Device::Cpu)?;
    let (x, w) = (ops::zeros(&[3, 1, 8], Dtype::F32)?, ops::zeros(&[4, 8, 2], Dtype::F32)?);
    for indices in beyond() {
        let indices = indices?.squeeze(1)?;
        for sorted in [false, true] {
            assert_refused(ops::gather_mm(&x, &w, &indices, sorted), "expected indices below 4");
        }
    }
    let none = Indices::from_u32(&[], &[0])?;
    assert_refused(ops::gather_mm(&x, &w, &none, false), "empty");
    let empty = ops::zeros(&[0, 1, 8], Dtype::F32)?;
    assert_refused(ops::gather_mm(&empty, &w, &none, false), "empty");
    let first = Indices::from_u32(&[0; 3], &[3])?;
    ops::gather_mm(&ops::zeros(&[3, 1, 7], Dtype::F32)?, &w, &first, false).expect_err("7 by 8");
    ops::gather_mm(&x, &w, &first, false)?.eval()
}

#[test]
fn gather_qmm_refuses_indices_beyond_the_matrices_and_empty_operands() -> Result<()> {
    use_device(Device::Cpu)?;
    let w = quantize(&random::normal(&[4, 8, 64], Dtype::F32, &random::key(1)?)?, AFFINE_4)?;
    let x = ops::zeros(&[3, 1, 64], Dtype::F32)?;
    for indices in beyond() {
        let indices = indices?.squeeze(1)?;
        for sorted in [false, true] {
            assert_refused(gather_qmm(&x, &w, &indices, sorted), "expected indices below 4");
        }
    }
    let none = Indices::from_u32(&[], &[0])?;
    assert_refused(gather_qmm(&x, &w, &none, false), "empty");
    assert_refused(gather_qmm(&ops::zeros(&[0, 1, 64], Dtype::F32)?, &w, &none, false), "empty");
    let first = Indices::from_u32(&[0; 3], &[3])?;
    gather_qmm(&ops::zeros(&[3, 1, 32], Dtype::F32)?, &w, &first, false).expect_err("32 by 64");
    gather_qmm(&x, &w, &first, false)?.eval()
}

#[test]
fn packed_weights_whose_parts_have_other_types_are_refused() -> Result<()> {
    let w = || quantize(&random::normal(&[4, 8, 64], Dtype::F32, &random::key(1)?)?, AFFINE_4);
    let x = ops::zeros(&[1, 1, 64], Dtype::F32)?;
    let first = Indices::from_u32(&[0], &[1])?;
    let bytes = ops::zeros(&[4, 8, 2], Dtype::U8)?;
    for broken in [
        Quantized { weight: ops::zeros(&[4, 8, 8], Dtype::U8)?, ..w()? },
        Quantized { biases: Some(bytes.share()?), ..w()? },
        Quantized { scales: bytes.share()?, biases: Some(bytes.share()?), ..w()? },
        Quantized { biases: Some(ops::zeros(&[1, 8, 2], Dtype::F32)?), ..w()? },
    ] {
        assert_refused(gather_qmm(&x, &broken, &first, false), "do not fit");
    }
    Ok(())
}

#[test]
fn indices_from_operations_are_bounded_by_the_axis_that_they_choose_along() -> Result<()> {
    let a = random::normal(&[3, 5], Dtype::F32, &random::key(1)?)?;
    let key = random::key(2)?;
    for indices in [
        ops::argmax(&a, 1, false)?,
        ops::argsort(&a, 1)?,
        ops::argpartition(&a, 2, -1)?,
        random::categorical(&a, 1, &key)?,
        Indices::up_to(5)?,
    ] {
        assert_eq!((indices.below(), indices.dtype()), (5, Dtype::U32));
        assert!(indices.to_vec_u32()?.iter().all(|index| *index < 5));
        assert_refused(ops::take(&a, &indices, 0), "reach up to 4, expected indices below 3");
    }
    // Of numbers that cannot be compared too.
    let undefined = Array::from_f32(&[f32::NAN; 7], &[7])?;
    for indices in [
        ops::argmax(&undefined, 0, false)?,
        ops::argsort(&undefined, 0)?,
        ops::argpartition(&undefined, 3, 0)?,
        random::categorical(&undefined, 0, &key)?,
    ] {
        assert!(indices.to_vec_u32()?.iter().all(|index| *index < 7), "{indices:?}");
    }
    assert_refused(Indices::up_to(-1), "no -1 indices");
    Ok(())
}

#[test]
fn what_is_made_of_indices_keeps_their_bound() -> Result<()> {
    let indices = Indices::from_u32(&[6, 0, 2, 1], &[2, 2])?;
    let chosen = Indices::from_u32(&[1], &[1])?;
    for made in [
        indices.share()?,
        indices.reshape(&[4])?,
        indices.expand_dims(0)?.squeeze(0)?,
        indices.expand_dims(0)?.broadcast_to(&[3, 2, 2])?,
        indices.slice_axis(0, 0, 1)?,
        indices.take(&chosen, 0)?,
        Indices::concatenate(&[&chosen.expand_dims(0)?.broadcast_to(&[1, 2])?, &indices], 0)?,
    ] {
        assert_eq!(made.below(), 7);
    }
    assert_refused(indices.take(&indices, 0), "reach up to 6, expected indices below 2");
    Ok(())
}

#[test]
fn a_result_whose_size_overflows_is_refused() -> Result<()> {
    let one = ops::zeros(&[1], Dtype::F32)?;
    let long = |shape: &[i32]| ops::broadcast_to(&one, shape);
    let (row, column) = (long(&[1, 1, 1 << 30])?, long(&[1 << 30, 1 << 2, 1])?);
    let text = "no array can have the shape";
    assert_refused(ops::add(&row, &column), text);
    let condition = ops::less(&row, &one)?;
    assert_refused(ops::where_(&condition, &row, &column), text);
    let indices = Indices::from_u32(&[0], &[1])?.broadcast_to(&[1 << 30, 1 << 10])?;
    assert_refused(ops::take(&row, &indices, 0), text);
    // MLX sees this one for itself.
    ops::matmul(&long(&[1 << 30, 1 << 20, 1])?, &long(&[1, 1 << 10])?).expect_err("too large");
    Ok(())
}

#[test]
fn an_axis_that_is_too_long_for_its_number_is_refused() -> Result<()> {
    let byte = ops::zeros(&[1], Dtype::U8)?;
    let long = ops::broadcast_to(&byte, &[i32::MAX])?;
    // MLX's sum of three such sizes is a positive number again.
    assert_refused(ops::concatenate(&[&long, &long, &long], 0), "[concatenate]");
    let floats = ops::broadcast_to(&ops::zeros(&[1], Dtype::F32)?, &[i32::MAX])?;
    assert_refused(ops::view(&floats, Dtype::U8), "[view]");
    Ok(())
}

#[test]
fn rows_that_are_too_many_for_their_number_are_not_joined() -> Result<()> {
    let empty = ops::broadcast_to(&ops::zeros(&[1, 0], Dtype::U8)?, &[i32::MAX, 0])?;
    assert_refused(Array::joined(&[&empty, &empty, &empty]), "no common rows");
    assert_eq!(Array::joined(&[&table()?, &table()?])?.shape(), [6, 4]);
    Ok(())
}

#[test]
fn integers_are_not_seen_as_floats_which_could_be_written_in_place() -> Result<()> {
    let indices = Indices::from_u32(&[1, 2], &[2])?;
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::F64, Dtype::Bool, Dtype::Complex64] {
        assert_refused(ops::view(&indices, dtype), "is no integer type");
    }
    Ok(())
}
