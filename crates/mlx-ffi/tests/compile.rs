//! Compiled functions: their values, their errors and what they free. Where there is no C++
//! compiler, MLX cannot build element-wise chains on the CPU; these functions need none of that
//! except where stated.

use std::rc::Rc;

use mlx_ffi::{Array, Compiled, Dtype, Result, ops};

fn pair() -> Result<(Array, Array)> {
    Ok((Array::from_f32(&[1.0, -2.0, 0.5], &[3])?, Array::from_f32(&[4.0, 0.25, -1.0], &[3])?))
}

#[test]
fn a_compiled_function_gives_what_the_plain_one_gives() -> Result<()> {
    fn swiglu(arguments: &[Array]) -> Result<Vec<Array>> {
        let gate = ops::multiply(&arguments[0], &ops::sigmoid(&arguments[0])?)?;
        Ok(vec![ops::multiply(&gate, &arguments[1])?, gate])
    }
    let (x, y) = pair()?;
    let compiled = Compiled::new(swiglu, true)?;
    let plain = swiglu(&[x.share()?, y.share()?])?;
    for _ in 0..3 {
        let results = compiled.call(&[&x, &y])?;
        assert_eq!(results.len(), 2);
        for (fused, plain) in results.iter().zip(&plain) {
            let (fused, plain) = (fused.to_vec_f32()?, plain.to_vec_f32()?);
            assert!(fused.iter().zip(&plain).all(|(a, b)| (a - b).abs() < 1e-6), "{fused:?}");
        }
    }
    Ok(())
}

#[test]
fn a_shapeless_trace_serves_other_shapes_and_a_shaped_one_is_traced_anew() -> Result<()> {
    for shapeless in [true, false] {
        let traces = Rc::new(std::cell::Cell::new(0));
        let counter = Rc::clone(&traces);
        let compiled = Compiled::new(
            move |arguments| {
                counter.set(counter.get() + 1);
                Ok(vec![ops::sum(&arguments[0], 0, false)?])
            },
            shapeless,
        )?;
        for size in [2, 3, 2, 3] {
            let ones = ops::broadcast_to(&Array::scalar(1.0, Dtype::F32)?, &[size])?;
            assert_eq!(compiled.call(&[&ones])?[0].item_f32()?, size as f32);
        }
        assert_eq!(traces.get(), if shapeless { 1 } else { 2 });
    }
    Ok(())
}

#[test]
fn an_error_inside_keeps_its_own_text() -> Result<()> {
    let compiled =
        Compiled::new(|arguments| Ok(vec![ops::reshape(&arguments[0], &[2, 2])?]), false)?;
    let (x, _) = pair()?;
    let plain = ops::reshape(&x, &[2, 2]).expect_err("three do not make four");
    for _ in 0..2 {
        let error = compiled.call(&[&x]).expect_err("three do not make four");
        assert_eq!(error, plain);
    }
    let four = ops::zeros(&[4], Dtype::F32)?;
    assert_eq!(compiled.call(&[&four])?[0].shape(), [2, 2]);
    Ok(())
}

#[test]
fn an_error_inside_a_nested_function_surfaces_outside() -> Result<()> {
    let inner = Compiled::new(|arguments| Ok(vec![ops::reshape(&arguments[0], &[2, 2])?]), false)?;
    let outer = Compiled::new(move |arguments| inner.call(&[&arguments[0]]), false)?;
    let (x, _) = pair()?;
    let error = outer.call(&[&x]).expect_err("three do not make four");
    assert_eq!(error, ops::reshape(&x, &[2, 2]).expect_err("as above"));
    Ok(())
}

#[test]
fn a_panic_inside_becomes_an_error() -> Result<()> {
    let compiled = Compiled::new(
        |arguments| {
            assert!(arguments[0].shape() != [3], "three of {}", arguments.len());
            Ok(vec![arguments[0].share()?])
        },
        false,
    )?;
    let (x, _) = pair()?;
    let error = compiled.call(&[&x]).expect_err("the function panics");
    assert_eq!(error.to_string(), "the compiled function panicked: three of 1");
    let four = ops::zeros(&[4], Dtype::F32)?;
    assert_eq!(compiled.call(&[&four])?[0].shape(), [4]);
    Ok(())
}

#[test]
fn values_cannot_be_read_while_tracing() -> Result<()> {
    let compiled = Compiled::new(
        |arguments| {
            arguments[0].to_vec_f32()?;
            Ok(Vec::new())
        },
        false,
    )?;
    let (x, _) = pair()?;
    let error = compiled.call(&[&x]).expect_err("a traced array has no value");
    assert!(error.to_string().contains("[eval]"), "{error}");
    assert_eq!(x.to_vec_f32()?, [1.0, -2.0, 0.5]);
    Ok(())
}

#[test]
fn the_function_is_freed_with_the_compiled_one() -> Result<()> {
    let payload = Rc::new(());
    let held = Rc::clone(&payload);
    let compiled = Compiled::new(
        move |arguments| {
            let _ = &held;
            Ok(vec![arguments[0].share()?])
        },
        false,
    )?;
    assert_eq!(Rc::strong_count(&payload), 2);
    let (x, _) = pair()?;
    compiled.call(&[&x])?;
    drop(compiled);
    assert_eq!(Rc::strong_count(&payload), 1);
    Ok(())
}

#[test]
fn a_compiled_function_may_live_as_long_as_its_thread() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<(Compiled, Array)>> =
            const { std::cell::RefCell::new(None) };
    }
    let thread = std::thread::spawn(|| -> Result<f32> {
        KEPT.with(|kept| kept.borrow_mut().take());
        let compiled = Compiled::new(|arguments| Ok(vec![ops::square(&arguments[0])?]), false)?;
        let result = compiled.call(&[&Array::scalar(3.0, Dtype::F32)?])?.remove(0);
        let value = result.item_f32();
        KEPT.with(|kept| *kept.borrow_mut() = Some((compiled, result)));
        value
    });
    assert_eq!(thread.join().expect("the thread ends without a panic"), Ok(9.0));
}
