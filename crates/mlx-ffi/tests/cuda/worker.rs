//! The thread that gives back what a CUDA stream is through with.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use mlx_ffi::{Array, Dtype, eval_all, memory, ops, synchronize};

use super::on_cuda::use_cuda;

/// Ticks of processors that this process has taken, 100 a second.
fn ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux tells");
    let behind_name = stat.rsplit(')').next().expect("a name in brackets");
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    fields[11..13].iter().map(|of| of.parse::<u64>().expect("a number")).sum()
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn it_waits_for_work_and_does_all_of_it() {
    use_cuda();
    let one = Array::scalar(1.0, Dtype::F32).expect("a number");
    let before = memory::active().expect("bytes");
    for round in 0..50 {
        let all = ops::zeros(&[1 << 20], Dtype::F32).and_then(|zeros| {
            // What is between the two is given back by the thread.
            ops::multiply(&ops::add(&zeros, &one)?, &one)
        });
        eval_all([&all.expect("values")]).expect("values");
        if round % 10 == 0 {
            synchronize().expect("nothing fails");
        }
    }
    synchronize().expect("nothing fails");
    let left = memory::active().expect("bytes").saturating_sub(before);
    assert!(left < 1 << 20, "{left} bytes are not given back");
    let began = ticks();
    sleep(Duration::from_secs(1));
    let taken = ticks() - began;
    assert!(taken < 20, "a process with nothing to do takes {taken} hundredths of a second");
}
