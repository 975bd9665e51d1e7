//! Memory: the allocator's figures and limits, and a loop that leaves nothing behind. The figures
//! concern the process, so the tests of this binary take turns.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mlx_ffi::{
    Array, Device, Dtype, Indices, QuantMode, Quantization, Result, async_eval, dequantize,
    eval_all, fast, gather_qmm, memory, ops, quantize, quantized_matmul, random, synchronize,
};

/// Bytes of a 256 × 256 array of f32.
const SQUARE: usize = 256 * 256 * 4;

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // A failed test before this one has left nothing that matters here.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn square() -> Result<Array> {
    let square = random::normal(&[256, 256], Dtype::F32, &random::key(1)?)?;
    square.eval()?;
    Ok(square)
}

#[test]
fn active_memory_follows_the_arrays() -> Result<()> {
    let _turn = turn();
    let before = memory::active()?;
    let array = square()?;
    assert_eq!(memory::active()? - before, SQUARE);
    let shared = array.share()?;
    drop(array);
    assert_eq!(memory::active()? - before, SQUARE);
    drop(shared);
    assert_eq!(memory::active()?, before);
    Ok(())
}

#[test]
fn peak_memory_is_the_most_since_its_reset() -> Result<()> {
    let _turn = turn();
    drop(square()?);
    memory::reset_peak()?;
    let before = memory::active()?;
    let (a, b) = (square()?, square()?);
    drop((a, b));
    let peak = memory::peak()?;
    assert!(peak >= before + 2 * SQUARE, "{peak}");
    memory::reset_peak()?;
    assert!(memory::peak()? < peak);
    Ok(())
}

#[test]
fn limits_are_set_and_restored() -> Result<()> {
    let _turn = turn();
    let before = memory::limit()?;
    assert_eq!(memory::set_limit(1 << 30)?, before);
    assert_eq!(memory::limit()?, 1 << 30);
    assert_eq!(memory::set_limit(before)?, 1 << 30);
    assert_eq!(memory::limit()?, before);

    let before = memory::set_cache_limit(1 << 20)?;
    memory::set_cache_limit(before)?;
    Ok(())
}

#[test]
fn a_cleared_cache_is_empty() -> Result<()> {
    let _turn = turn();
    drop(square()?);
    memory::clear_cache()?;
    assert_eq!(memory::cached()?, 0);
    Ok(())
}

#[test]
fn an_evaluated_array_pins_none_of_its_inputs() -> Result<()> {
    let _turn = turn();
    let before = memory::active()?;
    let input = square()?;
    let sum = ops::sum(&ops::multiply(&input, &input)?, 0, false)?;
    drop(input);
    sum.eval()?;
    assert_eq!(memory::active()? - before, 256 * 4);
    assert_eq!(sum.to_vec_f32()?.len(), 256);
    Ok(())
}

#[test]
fn a_detached_array_has_its_value_and_pins_nothing() -> Result<()> {
    let _turn = turn();
    let before = memory::active()?;
    let input = square()?;
    let sum = ops::sum(&input, 0, false)?;
    let expected = ops::sum(&input, 0, false)?.to_vec_f32()?;
    let shared = sum.share()?;
    sum.detach()?;
    drop(input);
    assert_eq!(sum.to_vec_f32()?, expected);
    assert_eq!(shared.to_vec_f32()?, expected);
    assert_eq!(memory::active()? - before, 256 * 4);
    // Once more, of what has no operation any more.
    sum.detach()?;
    assert_eq!(sum.to_vec_f32()?, expected);
    drop((sum, shared));
    assert_eq!(memory::active()?, before);
    Ok(())
}

#[test]
fn without_metal_nothing_is_wired() -> Result<()> {
    let _turn = turn();
    if Device::best()?.info()?.recommended_working_set.is_some() {
        let before = memory::set_wired_limit(1 << 20)?;
        assert_eq!(memory::set_wired_limit(before)?, 1 << 20);
        return Ok(());
    }
    assert_eq!(memory::set_wired_limit(1 << 30)?, 0);
    assert_eq!(memory::set_wired_limit(0)?, 0);
    Ok(())
}

/// Uses each kind of call once, failing ones too.
fn one_round() -> Result<()> {
    let key = random::key(2)?;
    let (first, second) = random::split(&key)?;
    let x = random::normal(&[8, 64], Dtype::F32, &first)?;
    let w = random::normal(&[16, 64], Dtype::F32, &second)?;

    let normed = fast::rms_norm(&x, None, 1e-6)?;
    let parts = [ops::slice_axis(&normed, -1, 0, 16)?, ops::slice_axis(&normed, -1, 16, 64)?];
    let joined = ops::concatenate(&parts.each_ref(), 1)?;
    let soft = ops::softmax(&ops::matmul(&joined, &ops::swap_axes(&w, 0, 1)?)?, -1, true)?;
    random::categorical(&soft, -1, &key)?.to_vec_u32()?;

    let packed = quantize(&w, Quantization { mode: QuantMode::Affine, bits: 4, group_size: 32 })?;
    let product = quantized_matmul(&x, &packed)?;
    dequantize(&packed, Dtype::Bf16)?.to_vec_f32()?;
    gather_qmm(&x, &packed, &Indices::from_u32(&[0], &[1])?, false)?.eval()?;
    async_eval([&product, &soft])?;

    eval_all([&ops::matmul(&x, &ops::swap_axes(&w, 0, 1)?)?, &ops::sum(&x, 0, false)?])?;

    ops::add(&x, &w).expect_err("8 and 16 rows");
    ops::reshape(&x, &[7]).expect_err("512 values");
    random::split(&x).expect_err("no key");
    quantized_matmul(&w, &quantize(&x, packed.quantization)?)?.share()?.eval()?;
    quantized_matmul(&soft, &packed).expect_err("16 columns");
    product.eval()?;
    synchronize()
}

#[test]
fn a_loop_over_every_kind_of_call_leaves_active_memory_as_it_was() -> Result<()> {
    let _turn = turn();
    // The first round makes what stays.
    one_round()?;
    let (before, files_before) = (memory::active()?, open_files());
    for round in 0..300 {
        one_round()?;
        assert_eq!(memory::active()?, before, "round {round}");
    }
    assert_eq!(open_files(), files_before);
    Ok(())
}

/// How many files this process has open, where the system tells; none of the others' tests of
/// this binary opens any.
fn open_files() -> Option<usize> {
    std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count)
}
