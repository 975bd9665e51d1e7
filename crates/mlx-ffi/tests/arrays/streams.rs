//! Devices, streams and what belongs to a thread.

use mlx_ffi::{
    Array, Device, Dtype, Result, async_eval, cpu, eval_all, mlx_version, ops, random, synchronize,
    use_device,
};

/// Fails to compile for a type that may leave its thread: then both implementations fit.
mod stays_on_its_thread {
    use mlx_ffi::{Array, Indices, Quantized};

    trait NotSend<Marker> {
        const HOLDS: () = ();
    }
    impl<T> NotSend<()> for T {}
    impl<T: Send> NotSend<u8> for T {}

    trait NotSync<Marker> {
        const HOLDS: () = ();
    }
    impl<T> NotSync<()> for T {}
    impl<T: Sync> NotSync<u8> for T {}

    const _: [(); 6] = [
        <Array as NotSend<_>>::HOLDS,
        <Array as NotSync<_>>::HOLDS,
        <Indices as NotSend<_>>::HOLDS,
        <Indices as NotSync<_>>::HOLDS,
        <Quantized as NotSend<_>>::HOLDS,
        <Quantized as NotSync<_>>::HOLDS,
    ];
}

#[test]
fn the_processor_is_always_there() -> Result<()> {
    assert!(Device::Cpu.is_available()?);
    let info = Device::Cpu.info()?;
    assert_eq!(info.backend, "cpu");
    assert!(!info.name.is_empty());
    Ok(())
}

#[test]
fn the_best_device_is_one_that_is_there() -> Result<()> {
    let best = Device::best()?;
    assert!(best.is_available()?);
    assert_eq!(best == Device::Gpu, Device::Gpu.is_available()?);
    assert_ne!(best.info()?.name, "");
    Ok(())
}

#[test]
fn a_device_that_is_missing_is_an_error() -> Result<()> {
    if Device::Gpu.is_available()? {
        return Ok(());
    }
    let text = "no Gpu device is available";
    assert_eq!(Device::Gpu.info().expect_err("no GPU").to_string(), text);
    assert_eq!(use_device(Device::Gpu).expect_err("no GPU").to_string(), text);
    assert_eq!(Array::scalar(1.0, Dtype::F16)?.item_f32()?, 1.0);
    Ok(())
}

#[test]
fn the_loaded_library_tells_its_version() -> Result<()> {
    assert_eq!(mlx_version()?, "0.32.2");
    Ok(())
}

#[test]
fn two_threads_compute_on_arrays_of_their_own() {
    let compute = |device: Option<Device>| {
        move || -> Result<Vec<f32>> {
            if let Some(device) = device {
                use_device(device)?;
            }
            let mut a = random::normal(&[16, 16], Dtype::F32, &random::key(1)?)?;
            for _ in 0..50 {
                a = ops::matmul(&a, &a)?;
                a = ops::softmax(&ops::multiply(&a, &a)?, -1, true)?;
                async_eval([&a])?;
                ops::reshape(&a, &[3]).expect_err("256 do not make three");
            }
            synchronize()?;
            a.to_vec_f32()
        }
    };
    let threads = [None, Some(Device::Cpu), None, Some(Device::Cpu)]
        .map(|device| std::thread::spawn(compute(device)));
    let results = threads.map(|thread| thread.join().expect("no panic").expect("no error"));
    assert!((results[0].iter().sum::<f32>() - 16.0).abs() < 1e-3);
    // The two on the CPU are equal to the last bit; the others are where the default is the CPU.
    assert_eq!(results[1], results[3]);
    assert_eq!(results[0], results[2]);
}

/// An operation that fails when it is computed.
fn failing() -> Result<Array> {
    let w = Array::from_f32(&[1.0, 2.0], &[2, 1, 1])?;
    let indices = Array::from_u32(&[2], &[1])?;
    cpu::gather_matmul(&Array::from_f32(&[1.0], &[1, 1])?, &w, &indices)
}

#[test]
fn what_is_lazy_when_a_device_is_chosen_again_stays_apart_from_other_threads() -> Result<()> {
    use_device(Device::Cpu)?;
    for _ in 0..100 {
        let lazy = ops::add(&ops::zeros(&[5], Dtype::F32)?, &Array::scalar(1.0, Dtype::F32)?)?;
        use_device(Device::Cpu)?;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| -> Result<()> {
                use_device(Device::Cpu)?;
                async_eval([&failing()?])
            });
            other.join().expect("no panic")
        })?;
        assert_eq!(lazy.to_vec_f32()?, [1.0; 5]);
    }
    Ok(())
}

#[test]
fn what_failed_unread_on_a_thread_is_not_the_error_of_the_next() -> Result<()> {
    for _ in 0..100 {
        let run = |work: fn() -> Result<()>| std::thread::spawn(work).join().expect("no panic");
        run(|| {
            use_device(Device::Cpu)?;
            async_eval([&failing()?])
        })?;
        run(|| {
            use_device(Device::Cpu)?;
            assert_eq!(ops::zeros(&[2], Dtype::F32)?.to_vec_f32()?, [0.0; 2]);
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn values_are_there_after_any_way_of_waiting() -> Result<()> {
    let ones = || ops::add(&ops::zeros(&[5], Dtype::F32)?, &Array::scalar(1.0, Dtype::F32)?);
    let (a, b, c) = (ones()?, ones()?, ones()?);
    eval_all([&a, &b])?;
    async_eval([&c])?;
    synchronize()?;
    for array in [a, b, c] {
        assert_eq!(array.to_vec_f32()?, [1.0; 5]);
    }
    eval_all([])?;
    async_eval([])?;
    Ok(())
}

#[test]
fn an_array_dropped_while_its_thread_ends_does_no_harm() {
    thread_local! {
        static KEPT: std::cell::RefCell<Vec<Array>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            // The stream of this thread may be gone by now: an error or a value, never an abort.
            let _ = Array::scalar(1.0, Dtype::F16).and_then(|one| ops::add(&one, &one)?.item_f32());
        }
    }
    thread_local! {
        static LATE: Late = const { Late };
    }
    let thread = std::thread::spawn(|| -> Result<()> {
        KEPT.with(|kept| kept.borrow_mut().clear());
        LATE.with(|_| ());
        let lazy = ops::add(&Array::scalar(1.0, Dtype::F32)?, &Array::scalar(2.0, Dtype::F32)?)?;
        lazy.share()?.eval()?;
        KEPT.with(|kept| kept.borrow_mut().push(lazy));
        Ok(())
    });
    assert_eq!(thread.join().expect("no panic"), Ok(()));
}
