//! Rows of caches put together by our own kernel for CPUs, against MLX's `concatenate` and `take`.

use mlx_ffi::cpu::{self, Pieces, Stretch};
use mlx_ffi::{Array, Device, Dtype, Indices, Result, ops, use_device};

/// Types of each size of an element.
const TYPES: [Dtype; 5] = [Dtype::U8, Dtype::Bf16, Dtype::F16, Dtype::U32, Dtype::I64];

/// Elements with bytes of all values, in the order of `shape`.
fn counted(shape: &[i32], dtype: Dtype, first: usize) -> Result<Array> {
    use_device(Device::Cpu)?;
    let size = shape.iter().product::<i32>() as usize * dtype.size();
    let bytes: Vec<u8> = (first..first + size).map(|i| (i * 7 % 251) as u8).collect();
    Array::from_bytes(&bytes, shape, dtype)
}

fn bits(x: &Array) -> Result<Vec<u32>> {
    ops::astype(&ops::view(x, Dtype::U8)?, Dtype::U32)?.to_vec_u32()
}

fn pieces(before: usize, stretches: &[(usize, usize, std::ops::Range<usize>)]) -> Pieces {
    let stretch = |(source, row, positions): &(usize, usize, std::ops::Range<usize>)| Stretch {
        source: *source,
        row: *row,
        positions: positions.clone(),
    };
    Pieces { before, stretches: stretches.iter().map(stretch).collect() }
}

#[test]
fn rows_are_those_of_mlx_to_the_bit_in_any_layout() -> Result<()> {
    for dtype in TYPES {
        let row_major = counted(&[3, 2, 7, 5], dtype, 0)?;
        let heads_inside = ops::swap_axes(&counted(&[3, 7, 2, 5], dtype, 9)?, 1, 2)?;
        let cut = ops::slice_axis(&counted(&[3, 2, 11, 9], dtype, 17)?, 2, 3, 10)?;
        let cut = ops::slice_axis(&cut, 3, 2, 7)?;
        let turned = ops::swap_axes(&counted(&[3, 2, 5, 7], dtype, 25)?, 2, 3)?;
        let repeated = ops::broadcast_to(&counted(&[1, 2, 1, 5], dtype, 31)?, &[3, 2, 7, 5])?;
        let all = [&row_major, &heads_inside, &cut, &turned, &repeated];
        for (i, first) in all.into_iter().enumerate() {
            let second = all[(i + 1) % all.len()];
            let rows = vec![
                pieces(2, &[(0, 1, 0..7)]),
                pieces(0, &[(0, 2, 1..4), (1, 0, 5..5), (1, 2, 6..7), (0, 0, 0..2)]),
                pieces(0, &[(1, 1, 0..7), (0, 0, 3..6)]),
                pieces(3, &[]),
            ];
            let expected: Vec<Array> = rows
                .iter()
                .map(|Pieces { before, stretches }| {
                    let zeros = |count| ops::zeros(&[1, 2, count as i32, 5], dtype);
                    let mut parts = vec![zeros(*before)?];
                    for Stretch { source, row, positions } in stretches {
                        let row = Indices::from_u32(&[*row as u32], &[1])?;
                        let row = ops::take([first, second][*source], &row, 0)?;
                        let (start, end) = (positions.start as i32, positions.end as i32);
                        parts.push(ops::slice_axis(&row, 2, start, end)?);
                    }
                    let held: i32 = parts.iter().map(|part| part.shape()[2]).sum();
                    parts.push(zeros((11 - held) as usize)?);
                    ops::concatenate(&parts.iter().collect::<Vec<_>>(), 2)
                })
                .collect::<Result<_>>()?;
            let expected = ops::concatenate(&expected.iter().collect::<Vec<_>>(), 0)?;
            let found = cpu::arrange(&[first, second], rows, 11)?;
            assert_eq!((found.shape(), found.dtype()), (expected.shape(), dtype));
            assert_eq!(bits(&found)?, bits(&expected)?, "{dtype:?}, layout {i}");
        }
    }
    Ok(())
}

#[test]
fn sources_without_positions_and_results_without_rows_are_taken() -> Result<()> {
    let (none, some) =
        (counted(&[1, 2, 0, 3], Dtype::U32, 0)?, counted(&[1, 2, 1, 3], Dtype::U32, 0)?);
    let rows = vec![pieces(1, &[(0, 0, 0..0), (1, 0, 0..1)])];
    let found = cpu::arrange(&[&none, &some], rows, 2)?;
    let expected = ops::concatenate(&[&ops::zeros(&[1, 2, 1, 3], Dtype::U32)?, &some], 2)?;
    assert_eq!(found.to_vec_u32()?, expected.to_vec_u32()?);
    let none = cpu::arrange(&[&some], Vec::new(), 4)?;
    none.eval()?;
    assert_eq!(none.shape(), [0, 2, 4, 3]);
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_when_it_is_made() -> Result<()> {
    let x = counted(&[2, 2, 4, 3], Dtype::U32, 0)?;
    let whole = || vec![pieces(0, &[(0, 0, 0..4)])];
    let error = |sources: &[&Array], rows, capacity| {
        cpu::arrange(sources, rows, capacity).expect_err("refused").to_string()
    };
    for other in [
        counted(&[2, 3, 4, 3], Dtype::U32, 0)?,
        counted(&[2, 2, 4, 2], Dtype::U32, 0)?,
        counted(&[2, 2, 4, 3], Dtype::F32, 0)?,
    ] {
        assert!(error(&[&x, &other], whole(), 4).contains("do not fit those of"));
    }
    assert!(error(&[], whole(), 4).contains("at least one source"));
    assert!(error(&[&x], whole(), -1).contains("-1 positions"));
    assert!(error(&[&x], whole(), 3).contains("a row of 4 positions, expected at most 3"));
    assert!(error(&[&x], vec![pieces(0, &[(0, 2, 0..4)])], 4).contains("row 2 among 2 rows"));
    assert!(cpu::arrange(&[&counted(&[2, 4], Dtype::U32, 0)?], whole(), 4).is_err());
    Ok(())
}
