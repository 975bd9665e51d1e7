//! The product itself.

#[cfg(target_arch = "x86_64")]
use crate::{Dtype, Weights};
use crate::{Error, Finish, Level, Problem, floats};

/// Computes `problem.out`.
///
/// # Errors
/// Buffers whose sizes do not fit; nothing is written then.
///
/// # Examples
/// ```
/// use cpu_kernels::{Dtype, Problem, Weights, matmul};
///
/// let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
/// let (x, w) = (bytes(&[1.0, 2.0]), bytes(&[3.0, 4.0, 5.0, 6.0]));
/// let mut out = vec![0; 8];
/// let weights = Weights::Dense { dtype: Dtype::F32, data: &w };
/// matmul(Problem { m: 1, positions: 1, n: 2, k: 2, dtype: Dtype::F32, x: &x, weights, out: &mut out })?;
/// assert_eq!(out, bytes(&[11.0, 17.0]));
/// # Ok::<(), cpu_kernels::Error>(())
/// ```
pub fn matmul(problem: Problem<'_>) -> Result<(), Error> {
    matmul_at(Level::current(), problem)
}

/// Computes `problem.out` with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// As [`matmul`], and a level that this processor does not have.
pub fn matmul_at(level: Level, problem: Problem<'_>) -> Result<(), Error> {
    finished_matmul_at(level, problem, Finish::default())
}

/// Computes `problem.out` with `problem.x` rounded to 8 bits in groups, where weights have a form
/// for which that is faster: affine codes and mxfp4. Others are multiplied by [`matmul`], and so
/// are fewer than 16 [`Problem::positions`] in bf16 from [`Level::Avx512`] on.
///
/// # Errors
/// As [`matmul`].
pub fn rounded_matmul(problem: Problem<'_>) -> Result<(), Error> {
    rounded_matmul_at(Level::current(), problem)
}

/// [`rounded_matmul`] with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// As [`matmul_at`].
pub fn rounded_matmul_at(level: Level, mut problem: Problem<'_>) -> Result<(), Error> {
    level.check()?;
    problem.check()?;
    let is_empty = problem.m == 0 || problem.n == 0 || problem.k == 0;
    if !is_empty && crate::rounded::run(level, &mut problem) {
        return Ok(());
    }
    matmul_at(level, problem)
}

/// Computes `problem.out`, and `finish` of it.
///
/// # Errors
/// As [`matmul`], and a product in another type than f32.
pub fn finished_matmul(problem: Problem<'_>, finish: Finish<'_>) -> Result<(), Error> {
    finished_matmul_at(Level::current(), problem, finish)
}

/// Computes `problem.out` and `finish` of it with the instructions of `level`, for tests and
/// comparisons.
///
/// # Errors
/// As [`finished_matmul`], and a level that this processor does not have.
pub fn finished_matmul_at(
    level: Level,
    mut problem: Problem<'_>,
    finish: Finish<'_>,
) -> Result<(), Error> {
    level.check()?;
    problem.check()?;
    finish.check(&problem)?;
    if problem.m == 0 || problem.n == 0 {
        return Ok(());
    }
    if problem.k > 0 && crate::rounded::run_words(level, &mut problem) {
        return Ok(());
    }
    match problem.k {
        0 => problem.out.fill(0),
        #[cfg(target_arch = "x86_64")]
        _ if level >= Level::Avx512f => match problem.weights {
            Weights::Dense { dtype: Dtype::F32, data } if problem.dtype == Dtype::F32 => {
                crate::avx512::floats::run(&mut problem, data, &finish);
                return Ok(());
            }
            _ if level == Level::Avx512f => floats::run(level, &mut problem),
            _ => match crate::avx512::is_prompt(&problem) {
                true if level == Level::Amx => crate::avx512::tiles::run(&mut problem),
                true => crate::avx512::prompts::run(&mut problem),
                false => crate::avx512::run(&mut problem),
            },
        },
        _ => floats::run(level, &mut problem),
    }
    finish.apply_to(level, &mut problem);
    Ok(())
}
