//! Several threads with one CUDA device.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use mlx_ffi::{Dispatch, Dispatcher, Dtype, cuda, end_thread, eval_all, memory, ops};

use super::on_cuda::use_cuda;

/// Two products of matrices of so many rows, which MLX captures.
fn evaluate(size: i32) {
    let x = ops::zeros(&[size, size], Dtype::F32).expect("zeros");
    let y = ops::matmul(&x, &x).and_then(|y| ops::matmul(&y, &x));
    eval_all([&y.expect("products")]).expect("values");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn memory_is_given_back_and_threads_end_while_others_evaluate() {
    let has_ended = AtomicBool::new(false);
    thread::scope(|threads| {
        let evaluating: Vec<_> = (0..3)
            .map(|seed| {
                threads.spawn(move || {
                    use_cuda();
                    for of in 0..400 {
                        evaluate(64 + 8 * ((of * 7 + seed) % 50));
                    }
                    end_thread();
                })
            })
            .collect();
        let giving = threads.spawn(|| {
            use_cuda();
            let mut times = 0;
            while !has_ended.load(Ordering::Relaxed) {
                memory::give_back().expect("nothing fails");
                let short = thread::spawn(|| {
                    use_cuda();
                    evaluate(8);
                    end_thread();
                });
                short.join().expect("nothing fails");
                times += 1;
            }
            end_thread();
            times
        });
        for thread in evaluating {
            thread.join().expect("nothing fails");
        }
        has_ended.store(true, Ordering::Relaxed);
        assert!(giving.join().expect("nothing fails") > 3);
    });
}

/// Sends products of ever other sizes past MLX: CUDA loads a kernel for most of them.
fn send(dispatcher: &mut Dispatcher, size: i32) {
    let zeros = |shape: &[i32]| ops::zeros(shape, Dtype::Bf16).expect("zeros");
    let (x, w) = (zeros(&[1, size, 64 + size]), zeros(&[8 * size, 64 + size]));
    eval_all([&x, &w]).expect("values");
    let product = cuda::dense(&x, &w).expect("a product");
    assert_eq!(dispatcher.send([&product]).expect("nothing fails"), Dispatch::Sent);
    dispatcher.wait().expect("nothing fails");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn kernels_are_loaded_while_others_evaluate() {
    thread::scope(|threads| {
        for of in 0..2 {
            threads.spawn(move || {
                use_cuda();
                for round in 0..400 {
                    evaluate(64 + 8 * ((round * 7 + of) % 50));
                }
                end_thread();
            });
            threads.spawn(move || {
                use_cuda();
                let mut dispatcher = Dispatcher::new(None).expect("a dispatcher");
                for round in 0..200 {
                    send(&mut dispatcher, 16 + 8 * ((round * 7 + of) % 90));
                }
                drop(dispatcher);
                end_thread();
            });
        }
    });
}
