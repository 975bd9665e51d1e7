//! Slices, gathers and scatters against literal numbers, by hand.

use mlx_ffi::{Array, Dtype, Indices, Result, ops};

fn table() -> Result<Array> {
    Array::from_f32(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], &[3, 2])
}

#[test]
fn slices_take_part_of_one_axis() -> Result<()> {
    let a = table()?;
    assert_eq!(ops::slice_axis(&a, 0, 1, 3)?.to_vec_f32()?, [2.0, 3.0, 4.0, 5.0]);
    assert_eq!(ops::slice_axis(&a, -1, 1, 2)?.to_vec_f32()?, [1.0, 3.0, 5.0]);
    assert_eq!(ops::slice_axis(&a, 0, 3, 3)?.shape(), [0, 2]);
    Ok(())
}

#[test]
fn slice_updates_leave_the_original_alone() -> Result<()> {
    let a = table()?;
    let update = Array::from_f32(&[9.0], &[1, 1])?;
    let updated = ops::slice_update_axis(&a, &update, 0, 1, 2)?;
    assert_eq!(updated.to_vec_f32()?, [0.0, 1.0, 9.0, 9.0, 4.0, 5.0]);
    let updated = ops::slice_update_axis(&a, &update, -1, 0, 1)?;
    assert_eq!(updated.to_vec_f32()?, [9.0, 1.0, 9.0, 3.0, 9.0, 5.0]);
    assert_eq!(a.to_vec_f32()?, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    Ok(())
}

#[test]
fn take_gathers_rows_and_columns() -> Result<()> {
    let a = table()?;
    let rows = ops::take(&a, &Indices::from_u32(&[2, 0, 2, 1], &[2, 2])?, 0)?;
    assert_eq!(rows.shape(), [2, 2, 2]);
    assert_eq!(rows.to_vec_f32()?, [4.0, 5.0, 0.0, 1.0, 4.0, 5.0, 2.0, 3.0]);
    let last = ops::take(&a, &Indices::from_u32(&[1], &[1])?, -1)?;
    assert_eq!(last.to_vec_f32()?, [1.0, 3.0, 5.0]);
    let none = ops::take(&a, &Indices::from_u32(&[], &[0])?, 0)?;
    assert_eq!(none.shape(), [0, 2]);
    Ok(())
}

#[test]
fn take_and_put_along_an_axis_are_inverse() -> Result<()> {
    let a = table()?;
    let indices = Indices::from_u32(&[1, 0, 0, 1, 1, 0], &[3, 2])?;
    let taken = ops::take_along_axis(&a, &indices, -1)?;
    assert_eq!(taken.to_vec_f32()?, [1.0, 0.0, 2.0, 3.0, 5.0, 4.0]);
    let back = ops::put_along_axis(&a, &indices, &taken, 1)?;
    assert_eq!(back.to_vec_f32()?, a.to_vec_f32()?);
    let masked = ops::put_along_axis(
        &a,
        &Indices::from_u32(&[0, 1, 0], &[3, 1])?,
        &Array::scalar(-7.0, Dtype::F32)?,
        -1,
    )?;
    assert_eq!(masked.to_vec_f32()?, [-7.0, 1.0, 2.0, -7.0, -7.0, 5.0]);
    Ok(())
}

#[test]
fn scattered_sums_add_up_repeated_indices() -> Result<()> {
    let zeros = ops::zeros(&[1, 4], Dtype::F32)?;
    let indices = Indices::from_u32(&[1, 3, 1], &[1, 3])?;
    let values = Array::from_f32(&[1.0, 2.0, 4.0], &[1, 3])?;
    let counts = ops::scatter_add_axis(&zeros, &indices, &values, -1)?;
    assert_eq!(counts.to_vec_f32()?, [0.0, 5.0, 0.0, 2.0]);
    Ok(())
}
