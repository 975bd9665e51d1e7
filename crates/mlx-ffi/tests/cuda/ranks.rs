//! Two ranks with an NVIDIA GPU each, a process for each: NCCL wants it so. Where there is one GPU,
//! it refuses both.

use std::env;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use mlx_ffi::distributed::{Between, Group, Limits, Member};
use mlx_ffi::{Array, Device, Dispatch, Dispatcher, Dtype, Recorded, Replay, Result};
use mlx_ffi::{async_eval, cuda, eval_all, ops};

use super::arrays::{assert_near, cast, values, wide};
use super::on_cuda::use_cuda;

/// Environment variable: the rank of a test's process, and the addresses of both.
const VARIABLE: &str = "CUDA_RANKS_TEST";
/// Environment variable: set where both have the same GPU.
const SHARED: &str = "CUDA_RANKS_SHARED";
/// For both to end.
const PATIENCE: Duration = Duration::from_secs(150);
/// Between two tries while kernels are compiled, of which there are so many.
const PAUSE: Duration = Duration::from_millis(100);
const TRIES: usize = 600;

/// Runs `work` in two ranks, each a process that runs the test `name` alone; `without` is what sums
/// are sent without.
fn of_ranks(name: &str, without: &str, work: impl FnOnce(&Group) -> Result<()>) {
    if let Ok(told) = env::var(VARIABLE) {
        let mut words = told.split(' ');
        let rank = words.next().and_then(|rank| rank.parse().ok()).expect("a number");
        let addresses = words.map(|word| word.parse().expect("an address")).collect();
        let (digest, limits) = ([0; 32], Limits::default());
        let member = Member { rank, addresses, group: 0, digest, between: Between::Gpus, limits };
        let met = Group::meet(&member);
        if env::var_os(SHARED).is_some() {
            let error = met.expect_err("both have one GPU").to_string();
            return assert!(error.contains("ncclCommInitRank"), "{error}");
        }
        let group = met.expect("both come");
        use_cuda();
        return work(&group).expect("both compute");
    }
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let addresses = listeners.map(|listener| listener.local_addr().expect("an address"));
    let [first, second] = addresses.map(|address: SocketAddr| address.to_string());
    let gpus = Device::Gpu.count().expect("a driver");
    let start = |rank: usize| {
        let mut command = Command::new(env::current_exe().expect("this program"));
        if gpus < 2 {
            command.env(SHARED, "1");
        }
        command
            .args(["--exact", &format!("ranks::{name}"), "--ignored", "--nocapture"])
            .env(VARIABLE, format!("{rank} {first} {second}"))
            .env("ML_RANKS_WITHOUT", without)
            .env("CUDA_VISIBLE_DEVICES", if gpus < 2 { 0 } else { rank }.to_string())
            .envs([("NCCL_NVLS_ENABLE", "0"), ("NCCL_SOCKET_IFNAME", "lo")])
            .envs([("NCCL_GRAPH_REGISTER", "0"), ("NCCL_DEBUG", "WARN")])
            .spawn()
            .expect("a process")
    };
    let mut ranks = [0, 1].map(start);
    let until = Instant::now() + PATIENCE;
    let ends = ranks.each_mut().map(|rank| end_of(rank, until));
    assert!(ends.iter().all(|end| end.is_some_and(|end| end.success())), "{ends:?}");
}

/// How a process ended; `None`, and it is ended, where it did not in time.
fn end_of(rank: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        if let Some(end) = rank.try_wait().expect("a child") {
            return Some(end);
        }
        if Instant::now() > until {
            rank.kill().expect("a child");
            rank.wait().expect("a child");
            return None;
        }
        thread::sleep(PAUSE);
    }
}

const HIDDEN: i32 = 512;

/// The matrices of a rank: two that take a half of the values each, of both ranks.
fn weights(rank: usize) -> Result<[Array; 2]> {
    let scale = Array::scalar((HIDDEN as f32).sqrt().recip(), Dtype::F32)?;
    let of = |seed| {
        let matrix = ops::multiply(&values(&[HIDDEN, HIDDEN], seed), &scale)?;
        Ok(cast(&matrix, Dtype::Bf16))
    };
    Ok([of(rank as u32)?, of(10 + rank as u32)?])
}

/// Two products, each summed by both ranks and added to what it was made of.
fn layers(group: &Group, x: &Array, weights: &[Array; 2]) -> Result<Array> {
    let mut h = x.share()?;
    for w in weights {
        let sum = group.all_sum(&cuda::dense(&h, w)?)?;
        h = cuda::residual(&h, &sum, None, None, 0.0, None, None)?.0;
    }
    Ok(h)
}

/// The result of both ranks for `x`, in F32.
fn expected(x: &Array) -> Result<Array> {
    let (first, second) = (weights(0)?, weights(1)?);
    let mut h = wide(x);
    for (a, b) in first.iter().zip(&second) {
        let both = ops::add(&wide(a), &wide(b))?;
        h = ops::add(&h, &ops::matmul(&h, &ops::swap_axes(&both, 0, 1)?)?)?;
    }
    Ok(h)
}

fn rows(rows: i32, seed: u32) -> Array {
    cast(&values(&[1, rows, HIDDEN], seed), Dtype::Bf16)
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn sums_between_gpus_are_replayed_and_dispatched() {
    of_ranks("sums_between_gpus_are_replayed_and_dispatched", "fallback", |group| {
        let own = weights(group.rank())?;
        // Few values are sent in another way than many.
        for count in [4, 3000] {
            let x = rows(count, 20);
            let by_mlx = layers(group, &x, &own)?;
            assert_near(&by_mlx, &expected(&x)?, 3e-2, "sums of MLX");
            let mut replay = None;
            for _ in 0..TRIES {
                let h = layers(group, &x, &own)?;
                match Replay::record(&h, &[&x], &[], false, Some(group))? {
                    Recorded::Kept(kept) => replay = Some(kept),
                    Recorded::NotYet => thread::sleep(PAUSE),
                    Recorded::Impossible => panic!("{count} rows: not all of it can be repeated"),
                }
                // What was not kept is computed, as ever.
                h.eval()?;
                if replay.is_some() {
                    break;
                }
            }
            let mut replay = replay.expect("a minute is enough for kernels");
            for seed in 30..40 {
                let x = rows(count, seed);
                let h = replay.run(&[&x], &[])?.expect("all is as it was");
                // It lies in a buffer that the next run overwrites, and is not waited for by
                // itself.
                let found = ops::add(&h, &Array::scalar(0.0, Dtype::Bf16)?)?;
                assert_near(&found, &expected(&x)?, 3e-2, "replayed sums");
            }
            drop(replay);
            let mut dispatcher = Dispatcher::new(Some(group.clone()))?;
            for seed in 40..50 {
                let x = rows(count, seed);
                let h = layers(group, &x, &own)?;
                let mut sent = Dispatch::NotYet;
                for _ in 0..TRIES {
                    sent = dispatcher.send([&h])?;
                    match sent {
                        Dispatch::NotYet => thread::sleep(PAUSE),
                        _ => break,
                    }
                }
                assert_eq!(sent, Dispatch::Sent, "{count} rows");
                dispatcher.wait()?;
                assert_near(&h, &expected(&x)?, 3e-2, "dispatched sums");
            }
        }
        Ok(())
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn what_one_rank_cannot_repeat_none_does() {
    of_ranks("what_one_rank_cannot_repeat_none_does", "", |group| {
        let own = weights(group.rank())?;
        let x = rows(4, 60);
        let sum = group.all_sum(&cuda::dense(&x, &own[0])?)?;
        let mixed = if group.rank() == 1 { ops::add(&sum, &x)? } else { cuda::sum(&sum, &x)? };
        let recorded = Replay::record(&mixed, &[&x], &[], false, Some(group))?;
        assert!(matches!(recorded, Recorded::Impossible), "{recorded:?}");
        eval_all([&mixed])?;
        assert_eq!(group.most(group.rank() as u8)?, 1);
        Ok(())
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn a_sum_that_waits_for_a_lost_rank_ends_once_the_group_is_given_up() {
    of_ranks("a_sum_that_waits_for_a_lost_rank_ends_once_the_group_is_given_up", "", |group| {
        let own = weights(group.rank())?;
        layers(group, &rows(4, 1), &own)?.eval()?;
        // Whatever comes, the process ends.
        if group.rank() == 1 {
            return Ok(());
        }
        let waits = layers(group, &rows(4, 2), &own)?;
        async_eval([&waits])?;
        let (started, other) = (Instant::now(), group.clone());
        let watch = thread::spawn(move || {
            thread::sleep(Duration::from_secs(1));
            other.give_up();
        });
        waits.eval()?;
        let took = started.elapsed();
        watch.join().expect("no panic");
        assert!((Duration::from_millis(900)..Duration::from_secs(5)).contains(&took), "{took:?}");
        let later = layers(group, &rows(4, 3), &own)?.eval();
        let error = later.expect_err("the group is given up").to_string();
        assert!(error.contains("another one is lost"), "{error}");
        Ok(())
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn sums_of_all_sizes_are_those_of_both_ranks_in_the_same_bits() {
    of_ranks("sums_of_all_sizes_are_those_of_both_ranks_in_the_same_bits", "fallback", |group| {
        assert!(group.sums().is_some_and(|sums| sums.by_kernel), "the GPUs reach each other");
        // The last one of each type is summed by NCCL, as its bytes are no whole sixteen; one
        // is summed in several parts.
        let counts = [8, 4096, 1000 * 8, 70_001 * 8, 5_000_000, 20_000_000, 4097];
        for (round, count) in counts.into_iter().chain(counts.into_iter().rev()).enumerate() {
            for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
                let of = |rank: usize| cast(&values(&[count], (2 * round + rank) as u32), dtype);
                let sum = group.all_sum(&of(group.rank()))?;
                let exact = cast(&ops::add(&wide(&of(0)), &wide(&of(1)))?, dtype);
                let same = wide(&sum).to_vec_f32()? == wide(&exact).to_vec_f32()?;
                assert!(same, "{count} values of {dtype:?}");
            }
        }
        // Many in a row, each made of the one before.
        let mut x = cast(&Array::from_f32(&[1.0; 4096], &[4096])?, Dtype::F32);
        for _ in 0..60 {
            let half = Array::scalar(0.5, Dtype::F32)?;
            x = ops::multiply(&group.all_sum(&x)?, &half)?;
        }
        assert_near(&x, &Array::from_f32(&[1.0; 4096], &[4096])?, 1e-6, "sums in a row");
        Ok(())
    });
}
