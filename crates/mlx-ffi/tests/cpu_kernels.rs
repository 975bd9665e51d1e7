//! Products by our own kernels for CPUs, against MLX's. Memory concerns the process, so the tests
//! of this binary take turns.

#[path = "arrays/near.rs"]
mod near;

use std::sync::{Mutex, MutexGuard, PoisonError};

use mlx_ffi::{
    Array, Device, Dtype, Indices, QuantMode, Quantization, Quantized, Result, async_eval, cpu,
    dequantize, eval_all, memory, ops, quantize, quantized_matmul, random, synchronize, use_device,
};
use near::assert_near;

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
const AFFINE_4: Quantization = Quantization { mode: QuantMode::Affine, bits: 4, group_size: 64 };

fn every_quantization() -> Vec<Quantization> {
    let affine = [2, 3, 4, 5, 6, 8].into_iter().flat_map(|bits| {
        [32, 64, 128].map(|group_size| Quantization { mode: QuantMode::Affine, bits, group_size })
    });
    let floats = [(QuantMode::Mxfp4, 4, 32), (QuantMode::Mxfp8, 8, 32), (QuantMode::Nvfp4, 4, 16)]
        .map(|(mode, bits, group_size)| Quantization { mode, bits, group_size });
    affine.chain(floats).collect()
}

/// A turn of this binary's tests, on the CPU.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    use_device(Device::Cpu).expect("the processor is always there");
    // A failed test before this one has left nothing that matters here.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn normal(shape: &[i32], dtype: Dtype, seed: u64) -> Result<Array> {
    let array = random::normal(shape, dtype, &random::key(seed)?)?;
    array.eval()?;
    Ok(array)
}

fn f32(array: &Array) -> Result<Array> {
    ops::astype(array, Dtype::F32)
}

/// MLX's product of the same values in f32, where its sums are exact enough to compare with.
fn mlx_dense(x: &Array, w: &Array) -> Result<Vec<f32>> {
    ops::matmul(&f32(x)?, &ops::swap_axes(&f32(w)?, 0, 1)?)?.to_vec_f32()
}

/// The product by MLX's kernels for packed weights, in f32.
fn mlx_packed(x: &Array, w: &Quantized) -> Result<Vec<f32>> {
    let float = |array: &Array| {
        if array.dtype().is_float() { f32(array) } else { array.share() }
    };
    let w = Quantized {
        weight: w.weight.share()?,
        scales: float(&w.scales)?,
        biases: w.biases.as_ref().map(float).transpose()?,
        quantization: w.quantization,
    };
    quantized_matmul(&f32(x)?, &w)?.to_vec_f32()
}

/// Sums of a few hundred products of normal values are near 16; rounding one to 8 or 11 bits
/// moves it by half of the last.
fn tolerance(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F32 => 2e-4,
        Dtype::F16 => 0.04,
        _ => 0.3,
    }
}

#[test]
fn a_dense_product_equals_that_of_mlx_in_every_type_and_size() -> Result<()> {
    let _turn = turn();
    for dtype in FLOATS {
        for weight_dtype in FLOATS {
            let w = normal(&[33, 72], weight_dtype, 1)?;
            for m in [1, 7, 65] {
                let x = normal(&[m, 72], dtype, 2)?;
                let product = cpu::matmul(&x, &w)?;
                let expected = if dtype == weight_dtype { dtype } else { Dtype::F32 };
                assert_eq!((product.shape(), product.dtype()), (&[m, 33][..], expected));
                assert_near(&product.to_vec_f32()?, &mlx_dense(&x, &w)?, tolerance(expected));
            }
        }
    }
    Ok(())
}

#[test]
fn a_packed_product_equals_that_of_mlx_in_every_form_and_type() -> Result<()> {
    let _turn = turn();
    for quantization in every_quantization() {
        for dtype in FLOATS {
            let w = quantize(&normal(&[24, 256], dtype, 3)?, quantization)?;
            for m in [1, 7, 65] {
                let x = normal(&[m, 256], dtype, 4)?;
                let product = cpu::quantized_matmul(&x, &w)?;
                assert_eq!((product.shape(), product.dtype()), (&[m, 24][..], dtype));
                assert_near(&product.to_vec_f32()?, &mlx_packed(&x, &w)?, tolerance(dtype));
            }
        }
    }
    Ok(())
}

#[test]
fn groups_that_mlx_does_not_have_are_multiplied_and_unpacked() -> Result<()> {
    let _turn = turn();
    for bits in [2, 3, 4, 5, 6, 8] {
        let halves = Quantization { mode: QuantMode::Affine, bits, group_size: 16 };
        let whole = Quantization { group_size: 32, ..halves };
        for dtype in FLOATS {
            let w = quantize(&normal(&[2, 24, 256], dtype, 3)?, whole)?;
            // Each half of a group with its scale and its bias is a group.
            let both = |array: &Array| {
                let pairs = ops::broadcast_to(&ops::expand_dims(array, -1)?, &[2, 24, 8, 2])?;
                ops::reshape(&pairs, &[2, 24, 16])
            };
            let of_halves = Quantized {
                weight: w.weight.share()?,
                scales: both(&w.scales)?,
                biases: w.biases.as_ref().map(both).transpose()?,
                quantization: halves,
            };
            let (found, expected) = (dequantize(&of_halves, dtype)?, dequantize(&w, dtype)?);
            assert_eq!((found.shape(), found.dtype()), (&[2, 24, 256][..], dtype));
            assert_near(&found.to_vec_f32()?, &expected.to_vec_f32()?, tolerance(dtype));
            let x = normal(&[3, 256], dtype, 4)?;
            let indices = Indices::from_u32(&[1, 0, 1], &[3, 1])?;
            let found = cpu::gather_quantized_matmul(&x, &of_halves, &indices)?;
            let expected = cpu::gather_quantized_matmul(&x, &w, &indices)?;
            assert_near(&found.to_vec_f32()?, &expected.to_vec_f32()?, tolerance(dtype));
            let error = quantized_matmul(&x, &of_halves).expect_err("MLX has no such groups");
            assert!(error.to_string().contains("groups of 16 is not known"), "{error}");
        }
    }
    Ok(())
}

#[test]
fn the_type_of_affine_scales_and_that_of_activations_meet_in_f32() -> Result<()> {
    let _turn = turn();
    for scales in FLOATS {
        let w = quantize(&normal(&[8, 128], scales, 3)?, AFFINE_4)?;
        for dtype in FLOATS {
            let x = normal(&[3, 128], dtype, 4)?;
            let product = cpu::quantized_matmul(&x, &w)?;
            assert_eq!(product.dtype(), quantized_matmul(&x, &w)?.dtype());
            let tolerance = tolerance(product.dtype());
            assert_near(&product.to_vec_f32()?, &mlx_packed(&x, &w)?, tolerance);
        }
    }
    Ok(())
}

#[test]
fn activations_of_any_rank_keep_their_leading_dimensions() -> Result<()> {
    let _turn = turn();
    let w = normal(&[5, 64], Dtype::F32, 1)?;
    let packed = quantize(&w, AFFINE_4)?;
    for shape in [&[64][..], &[3, 64], &[2, 3, 64], &[2, 1, 4, 64]] {
        let x = normal(shape, Dtype::F32, 2)?;
        let expected = [&shape[..shape.len() - 1], &[5]].concat();
        let product = cpu::matmul(&x, &w)?;
        assert_eq!(product.shape(), expected);
        assert_near(&product.to_vec_f32()?, &mlx_dense(&x, &w)?, 1e-4);
        let product = cpu::quantized_matmul(&x, &packed)?;
        assert_eq!(product.shape(), expected);
        let rows = ops::reshape(&x, &[-1, 64])?;
        assert_near(&product.to_vec_f32()?, &mlx_packed(&rows, &packed)?, 1e-4);
    }
    Ok(())
}

#[test]
fn no_rows_or_no_columns_give_what_an_empty_sum_gives() -> Result<()> {
    let _turn = turn();
    let w = normal(&[5, 64], Dtype::Bf16, 1)?;
    let packed = quantize(&w, AFFINE_4)?;
    for shape in [&[0, 64][..], &[2, 0, 64]] {
        let x = ops::zeros(shape, Dtype::Bf16)?;
        let expected = [&shape[..shape.len() - 1], &[5]].concat();
        for product in [cpu::matmul(&x, &w)?, cpu::quantized_matmul(&x, &packed)?] {
            assert_eq!(product.shape(), expected);
            assert_eq!(product.to_vec_f32()?, []);
        }
    }
    let none = |shape: &[i32]| ops::zeros(shape, Dtype::F32);
    assert_eq!(cpu::matmul(&none(&[2, 0])?, &none(&[3, 0])?)?.to_vec_f32()?, [0.0; 6]);
    assert_eq!(cpu::matmul(&none(&[2, 4])?, &none(&[0, 4])?)?.shape(), [2, 0]);
    Ok(())
}

#[test]
fn any_layout_of_the_operands_will_do() -> Result<()> {
    let _turn = turn();
    let w = normal(&[6, 64], Dtype::F32, 1)?;
    let packed = quantize(&w, AFFINE_4)?;
    let whole = normal(&[4, 64, 128], Dtype::F32, 2)?;
    let columns = ops::slice_axis(&whole, 2, 32, 96)?;
    for x in [
        ops::swap_axes(&columns, 0, 1)?,
        ops::swap_axes(&whole, 1, 2)?,
        ops::slice_axis(&columns, 1, 63, 64)?,
        ops::slice_axis(&whole, 0, 1, 3).and_then(|part| ops::swap_axes(&part, -1, -2))?,
        ops::broadcast_to(&normal(&[64], Dtype::F32, 3)?, &[2, 5, 64])?,
        ops::broadcast_to(&normal(&[3, 1], Dtype::F32, 3)?, &[3, 64])?,
        columns,
    ] {
        // Not yet evaluated, and evaluated.
        for _ in 0..2 {
            let expected = mlx_dense(&x, &w)?;
            assert_near(&cpu::matmul(&x, &w)?.to_vec_f32()?, &expected, 1e-4);
            let product = cpu::quantized_matmul(&x, &packed)?.to_vec_f32()?;
            assert_near(&product, &mlx_packed(&x, &packed)?, 1e-4);
            x.eval()?;
        }
    }
    let x = normal(&[3, 16], Dtype::F32, 4)?;
    let w = ops::swap_axes(&normal(&[16, 8], Dtype::F32, 5)?, 0, 1)?;
    assert_near(&cpu::matmul(&x, &w)?.to_vec_f32()?, &mlx_dense(&x, &w)?, 1e-4);
    let every = quantize(&normal(&[8, 64], Dtype::F32, 6)?, AFFINE_4)?;
    let rows = |array: &Array| ops::take(array, &Indices::from_u32(&[7, 0, 3], &[3])?, 0);
    let halves = |array: &Array| {
        let [n, columns] = array.dims()?;
        let split = ops::reshape(array, &[2, n / 2, columns])?;
        ops::reshape(&ops::slice_axis(&split, 1, 0, n / 2 - 1)?, &[-1, columns])
    };
    for pick in [&rows as &dyn Fn(&Array) -> Result<Array>, &halves] {
        let part = Quantized {
            weight: pick(&every.weight)?,
            scales: pick(&every.scales)?,
            biases: every.biases.as_ref().map(pick).transpose()?,
            quantization: AFFINE_4,
        };
        let x = normal(&[2, 64], Dtype::F32, 7)?;
        let product = cpu::quantized_matmul(&x, &part)?.to_vec_f32()?;
        assert_near(&product, &mlx_packed(&x, &part)?, 1e-4);
    }
    Ok(())
}

#[test]
fn operands_that_do_not_fit_are_errors_when_the_operation_is_made() -> Result<()> {
    let _turn = turn();
    let zeros = |shape: &[i32], dtype| ops::zeros(shape, dtype);
    let x = zeros(&[2, 64], Dtype::F32)?;
    let dense = |x: &Array, w: &Array| cpu::matmul(x, w).expect_err("refused").to_string();
    assert_eq!(
        dense(&x, &zeros(&[3, 65], Dtype::F32)?),
        "cannot multiply Array([2, 64], F32) with weights of 65 columns"
    );
    assert_eq!(
        dense(&x, &zeros(&[1, 3, 64], Dtype::F32)?),
        "expected 2 dimensions, found 3: [1, 3, 64]"
    );
    assert_eq!(
        dense(&zeros(&[], Dtype::F32)?, &zeros(&[3, 64], Dtype::F32)?),
        "cannot multiply Array([], F32) with weights of 64 columns"
    );
    let types = "the CPU kernels take f32, f16 and bf16 only";
    for other in [Dtype::U32, Dtype::I8, Dtype::F64, Dtype::Complex64, Dtype::Bool] {
        assert_eq!(dense(&x, &zeros(&[3, 64], other)?), types);
        assert_eq!(dense(&zeros(&[2, 64], other)?, &zeros(&[3, 64], Dtype::F32)?), types);
        assert_eq!(dense(&zeros(&[2, 64], other)?, &zeros(&[3, 64], other)?), types);
    }

    let valid = || quantize(&ops::zeros(&[3, 64], Dtype::F32)?, AFFINE_4);
    let mxfp4 = Quantization { mode: QuantMode::Mxfp4, bits: 4, group_size: 32 };
    let with = |quantization| valid().map(|w| Quantized { quantization, ..w });
    for (w, part) in [
        (with(Quantization { bits: 7, ..AFFINE_4 })?, "7 bits"),
        (with(Quantization { bits: 8, ..AFFINE_4 })?, "do not fit"),
        (with(Quantization { group_size: 32, ..AFFINE_4 })?, "do not fit"),
        (Quantized { biases: None, ..valid()? }, "do not fit"),
        (Quantized { biases: Some(zeros(&[3, 2], Dtype::F32)?), ..valid()? }, "do not fit"),
        (Quantized { biases: Some(zeros(&[3, 1], Dtype::F16)?), ..valid()? }, "do not fit"),
        (Quantized { weight: zeros(&[3, 8], Dtype::F32)?, ..valid()? }, "do not fit"),
        (Quantized { weight: zeros(&[2, 8], Dtype::U32)?, ..valid()? }, "do not fit"),
        (Quantized { scales: zeros(&[3, 2], Dtype::F32)?, ..valid()? }, "do not fit"),
        (Quantized { scales: zeros(&[3, 2], Dtype::U8)?, ..with(mxfp4)? }, "do not fit"),
        (Quantized { scales: zeros(&[3, 2], Dtype::F32)?, ..with(mxfp4)? }, "do not fit"),
        (
            Quantized {
                scales: zeros(&[3, 1], Dtype::U32)?,
                biases: Some(zeros(&[3, 1], Dtype::U32)?),
                ..valid()?
            },
            "do not fit",
        ),
        (
            Quantized {
                weight: zeros(&[2, 3, 8], Dtype::U32)?,
                scales: zeros(&[2, 3, 1], Dtype::F32)?,
                biases: Some(zeros(&[2, 3, 1], Dtype::F32)?),
                quantization: AFFINE_4,
            },
            "expected 2 dimensions",
        ),
    ] {
        let text = cpu::quantized_matmul(&x, &w).expect_err("refused").to_string();
        assert!(text.contains(part), "{text}");
    }
    let w = quantize(&zeros(&[3, 64], Dtype::F32)?, AFFINE_4)?;
    let error = cpu::quantized_matmul(&zeros(&[2, 128], Dtype::F32)?, &w).expect_err("128");
    assert!(error.to_string().contains("weights of 64 columns"), "{error}");
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn a_stream_of_the_gpu_is_refused() -> Result<()> {
    let _turn = turn();
    use_device(Device::Gpu)?;
    let x = ops::zeros(&[2, 4], Dtype::F32)?;
    let error = cpu::matmul(&x, &x).expect_err("no stream of the CPU");
    assert_eq!(error.to_string(), "the CPU kernels need a CPU stream");
    Ok(())
}

/// A chain in which each product waits for operations before it and feeds others, by `product`.
fn chain(product: fn(&Array, &Array) -> Result<Array>, steps: usize) -> Result<Array> {
    let w = normal(&[32, 32], Dtype::F32, 1)?;
    let mut x = normal(&[4, 32], Dtype::F32, 2)?;
    for _ in 0..steps {
        let y = product(&ops::softmax(&x, -1, true)?, &w)?;
        let z = product(&ops::multiply(&y, &y)?, &w)?;
        x = ops::add(&ops::swap_axes(&ops::swap_axes(&y, 0, 1)?, 0, 1)?, &ops::tanh(&z)?)?;
    }
    Ok(x)
}

#[test]
fn products_chain_lazily_with_other_operations() -> Result<()> {
    let _turn = turn();
    let mlx = |x: &Array, w: &Array| ops::matmul(x, &ops::swap_axes(w, 0, 1)?);
    let expected = chain(mlx, 40)?.to_vec_f32()?;
    assert_near(&chain(cpu::matmul, 40)?.to_vec_f32()?, &expected, 1e-3);
    let queued = chain(cpu::matmul, 40)?;
    async_eval([&queued])?;
    assert_near(&queued.to_vec_f32()?, &expected, 1e-3);
    Ok(())
}

#[test]
fn many_products_in_one_graph_and_under_async_eval_are_right() -> Result<()> {
    let _turn = turn();
    let w = normal(&[16, 64], Dtype::F32, 1)?;
    let packed = quantize(&w, AFFINE_4)?;
    let x = normal(&[2, 64], Dtype::F32, 2)?;
    let (dense, quantized) = (mlx_dense(&x, &w)?, mlx_packed(&x, &packed)?);
    let products: Vec<Array> = (0..2000)
        .map(|i| match i % 2 {
            0 => cpu::matmul(&x, &w),
            _ => cpu::quantized_matmul(&x, &packed),
        })
        .collect::<Result<_>>()?;
    let (now, later) = products.split_at(1000);
    async_eval(later)?;
    eval_all(now)?;
    for (i, product) in products.iter().enumerate() {
        let expected = if i % 2 == 0 { &dense } else { &quantized };
        assert_near(&product.to_vec_f32()?, expected, 1e-4);
    }
    Ok(())
}

#[test]
fn memory_returns_to_where_it_was() -> Result<()> {
    let _turn = turn();
    let w = normal(&[128, 256], Dtype::F32, 1)?;
    let packed = quantize(&w, AFFINE_4)?;
    eval_all([&packed.weight, &packed.scales])?;
    let x = normal(&[256, 8], Dtype::F32, 2)?;
    synchronize()?;
    let (before, weights) = (memory::active()?, w.nbytes());
    for round in 0..200 {
        memory::reset_peak()?;
        // Not contiguous, so the operation makes a copy of its own.
        let x = ops::swap_axes(&x, 0, 1)?;
        let (y, z) = (cpu::matmul(&x, &w)?, cpu::quantized_matmul(&x, &packed)?);
        if round % 2 == 0 {
            async_eval([&y, &z])?;
            // Nobody reads it; the buffers stay until the kernels have run.
            drop((y, z));
        } else {
            eval_all([&y, &z])?;
            drop((y, z));
        }
        synchronize()?;
        assert_eq!(memory::active()?, before, "round {round}");
        assert!(memory::peak()? < before + weights, "the weights are not copied");
    }
    Ok(())
}

#[test]
fn threads_with_streams_of_their_own_compute_at_once() -> Result<()> {
    let _turn = turn();
    let expected = chain(cpu::matmul, 30)?.to_vec_f32()?;
    let threads = [0; 4].map(|_| {
        std::thread::spawn(|| -> Result<Vec<f32>> {
            use_device(Device::Cpu)?;
            let mut values = Vec::new();
            for _ in 0..10 {
                values = chain(cpu::matmul, 30)?.to_vec_f32()?;
            }
            Ok(values)
        })
    });
    for thread in threads {
        assert_eq!(thread.join().expect("no panic")?, expected);
    }
    Ok(())
}
