//! Ranks of one group, each on a thread of its own.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use mlx_ffi::distributed::{Between, Group, Limits, Member};
use mlx_ffi::{
    Array, Device, Dtype, Indices, Recorded, Replay, Result, cpu, eval_all, ops, use_device,
};

/// Addresses that were free a moment ago.
fn addresses(size: usize) -> Vec<SocketAddr> {
    let bind = |_| TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listeners: Vec<TcpListener> = (0..size).map(bind).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect()
}

fn member(addresses: &[SocketAddr], rank: usize) -> Member {
    let limits = Limits { meet: Duration::from_secs(20), answer: Duration::from_secs(20) };
    let (addresses, between) = (addresses.to_vec(), Between::Cpus);
    Member { rank, addresses, group: 5, digest: [7; 32], between, limits }
}

/// Runs `compute` in each rank of a group; the results are in the order of ranks.
fn of_all<T: Send>(size: usize, compute: impl Fn(Group) -> T + Sync) -> Vec<T> {
    let (addresses, compute) = (addresses(size), &compute);
    thread::scope(|scope| {
        let start = |rank| {
            let member = member(&addresses, rank);
            scope.spawn(move || {
                use_device(Device::Cpu).expect("a CPU");
                compute(Group::meet(&member).expect("all ranks come"))
            })
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Values of a rank that sum up without rounding.
fn values(rank: usize, count: usize) -> Vec<f32> {
    (0..count).map(|at| (at % 61) as f32 - 30.0 + 4.0 * rank as f32).collect()
}

#[test]
fn sums_are_those_of_all_ranks_in_every_rank() {
    for (size, count) in [(2, 1), (2, 70_001), (3, 5), (3, 40_001), (4, 100_003)] {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let expected: Vec<f32> = (0..count)
                .map(|at| (0..size).map(|rank| values(rank, count)[at..][..1][0]).sum())
                .take(200)
                .collect();
            let summed = of_all(size, |group| -> Result<Vec<f32>> {
                let own = Array::from_f32(&values(group.rank(), count), &[count as i32])?;
                let sum = group.all_sum(&ops::astype(&own, dtype)?)?;
                assert_eq!((sum.dtype(), sum.shape()), (dtype, &[count as i32][..]));
                ops::astype(&sum, Dtype::F32)?.to_vec_f32()
            });
            for sum in summed {
                let sum = sum.expect("a sum");
                assert_eq!(sum.len(), count);
                assert_eq!(sum[..expected.len()], expected, "{size} ranks, {dtype:?}");
                let last = (0..size).map(|rank| values(rank, count)[count - 1]).sum::<f32>();
                assert_eq!(sum[count - 1], last);
            }
        }
    }
}

#[test]
fn rounded_sums_have_the_same_bits_in_every_rank() {
    for count in [100, 30_000] {
        let sums = of_all(3, |group| -> Result<Vec<u32>> {
            let wave = |at: usize| ((at * (group.rank() + 2)) as f32 * 0.37).sin();
            let own: Vec<f32> = (0..count).map(wave).collect();
            let sum = group.all_sum(&Array::from_f32(&own, &[count as i32])?)?;
            Ok(sum.to_vec_f32()?.into_iter().map(f32::to_bits).collect())
        });
        let sums: Vec<Vec<u32>> = sums.into_iter().map(|sum| sum.expect("a sum")).collect();
        assert!(sums.iter().all(|sum| *sum == sums[0]));
    }
}

#[test]
fn what_ranks_have_is_gathered_handed_out_and_passed_on() {
    let results = of_all(3, |group| -> Result<_> {
        let rank = group.rank();
        let own = Array::from_f32(&values(rank, 6), &[2, 3])?;
        let gathered = group.all_gather(&own)?;
        assert_eq!(gathered.shape(), [6, 3]);
        let first = group.of_rank(&own, 0)?;
        eval_all([&gathered, &first])?;
        // From rank to rank, one more each time.
        let passed = match rank {
            0 => group.send(&own, 1)?,
            _ => {
                let got = group.receive(&[2, 3], Dtype::F32, rank - 1)?;
                let more = ops::add(&got, &Array::scalar(1.0, Dtype::F32)?)?;
                if rank == 1 { group.send(&more, 2)? } else { more }
            }
        };
        Ok((gathered.to_vec_f32()?, first.to_vec_f32()?, passed.to_vec_f32()?))
    });
    let gathered: Vec<f32> = (0..3).flat_map(|rank| values(rank, 6)).collect();
    for (rank, result) in results.into_iter().enumerate() {
        let (all, first, passed) = result.expect("an exchange");
        assert_eq!((all, first), (gathered.clone(), values(0, 6)));
        let expected: Vec<f32> = values(0, 6).iter().map(|value| value + rank as f32).collect();
        assert_eq!(passed, expected);
    }
}

#[test]
fn a_rank_that_leaves_is_an_error_of_all_others_at_once_and_from_then_on() {
    let errors = of_all(3, |group| {
        let own = || Array::from_f32(&[1.0, 2.0], &[2]).expect("values");
        let sum = |group: &Group| group.all_sum(&own()).expect("an operation").to_vec_f32();
        assert_eq!(sum(&group).expect("all are there"), [3.0, 6.0]);
        if group.rank() == 1 {
            return None;
        }
        let started = Instant::now();
        // Several are under way when the rank leaves: none of them waits.
        let both = [group.all_sum(&own()).expect("one"), group.all_sum(&own()).expect("one more")];
        let error = eval_all(&both).expect_err("rank 1 has left").to_string();
        let again = sum(&group).expect_err("it stays away").to_string();
        assert!(started.elapsed() < Duration::from_secs(5));
        Some((error, again))
    });
    for (rank, error) in errors.into_iter().enumerate() {
        let Some((error, again)) = error else { continue };
        assert!(error.contains("is lost"), "rank {rank}: {error}");
        assert!(again.contains("is lost"), "rank {rank}: {again}");
    }
}

#[test]
fn indices_of_a_rank_that_is_lost_stay_in_bounds() {
    of_all(2, |group| {
        if group.rank() == 0 {
            return;
        }
        let rows = Array::from_f32(&values(1, 4096), &[64, 64]).expect("values");
        let own = Indices::from_u32(&[63], &[1]).expect("an index");
        // Memory with other contents than zeros, for the indices to lie in.
        for value in [1e30, 3e30, 7e30] {
            let other = Array::from_f32(&[value], &[1]).expect("a value");
            ops::add(&other, &other).expect("a sum").eval().expect("a sum");
        }
        for _ in 0..50 {
            let chosen = group.indices_of_rank(&own, 0).expect("an operation");
            let taken = ops::take(&rows, &chosen, 0).expect("a row");
            assert!(taken.eval().expect_err("rank 0 has left").to_string().contains("is lost"));
        }
    });
}

#[test]
fn indices_are_those_of_the_first_rank_and_fit_every_rank() {
    let found = of_all(3, |group| {
        let own = [9 + group.rank() as u32, 4];
        let indices = Indices::from_u32(&own, &[2]).expect("indices");
        group.indices_of_rank(&indices, 0).expect("an operation").to_vec_u32().expect("indices")
    });
    assert_eq!(found, [[9, 4]; 3]);
    let errors = of_all(2, |group| {
        let own = [9 - 3 * group.rank() as u32];
        let indices = Indices::from_u32(&own, &[1]).expect("indices");
        group.indices_of_rank(&indices, 0).expect("an operation").to_vec_u32().err()
    });
    assert!(errors[0].is_none());
    let error = errors[1].as_ref().expect("9 is none of 7").to_string();
    assert!(error.contains("index 9 of 7"), "{error}");
}

#[test]
fn the_index_of_the_largest_value_is_the_first_one_of_all_ranks() {
    // Of the last row all are equal; of the second, one is no number.
    let values = [[1.0, f32::NAN, 2.0, 5.0], [7.0, -3.0, -2.0, 5.0], [6.0, -4.0, 2.5, 5.0]];
    let found = of_all(3, |group| {
        let own = Array::from_f32(&values[group.rank()], &[4]).expect("values");
        let indices = Indices::from_u32(&[3, 1, 0, 2], &[4]).expect("indices");
        let first = 10 * group.rank() as i32;
        let of = |below| group.index_of_largest(&own, &indices, first, below);
        let chosen = of(30).expect("an operation").to_vec_u32().expect("indices");
        let error = of(20).expect("an operation").to_vec_u32().expect_err("20 is none of 20");
        assert!(error.to_string().contains("a rank sent the index 20 of 20"), "{error}");
        chosen
    });
    assert_eq!(found, [[13, 11, 20, 2]; 3]);
}

#[test]
fn a_rank_that_hangs_is_an_error_after_the_limit() {
    let addresses = addresses(2);
    let meet = |rank, answer| {
        let limits = Limits { answer, ..Limits::default() };
        Group::meet(&Member { limits, ..member(&addresses, rank) }).expect("both come")
    };
    thread::scope(|scope| {
        let hanging = scope.spawn(|| meet(1, Duration::from_secs(20)));
        use_device(Device::Cpu).expect("a CPU");
        let group = meet(0, Duration::from_millis(300));
        let other = hanging.join().expect("it is there");
        let sum = group.all_sum(&Array::from_f32(&[1.0], &[1]).expect("a value")).expect("one");
        let error = sum.eval().expect_err("it does not answer").to_string();
        assert!(error.contains("rank 1") && error.contains("did not answer"), "{error}");
        drop(other);
    });
}

#[test]
fn ranks_that_compute_different_things_say_so() {
    let errors = of_all(2, |group| {
        let count = 1 + group.rank();
        let own = Array::from_f32(&vec![1.0; count], &[count as i32]).expect("values");
        group.all_sum(&own).expect("an operation").eval().expect_err("other sizes").to_string()
    });
    assert!(errors.iter().any(|error| error.contains("computes something else")), "{errors:?}");
    assert!(errors.iter().all(|error| error.contains("is lost")), "{errors:?}");
}

#[test]
fn ranks_meet_only_with_all_others_of_their_group() {
    let addresses = addresses(3);
    let limits = Limits { meet: Duration::from_secs(2), ..Limits::default() };
    let meet =
        |member: Member| Group::meet(&member).map(|_| ()).expect_err("not all come").to_string();
    thread::scope(|scope| {
        let second = Member { limits, ..member(&addresses, 1) };
        let second = scope.spawn(move || meet(second));
        let first = meet(Member { limits, ..member(&addresses, 0) });
        assert!(first.contains("[2]"), "{first}");
        let second = second.join().expect("no panic");
        assert!(second.contains("[2]") || second.contains("rank 0"), "{second}");
    });
}

#[test]
fn ranks_meet_beside_strangers_that_call_first_and_are_silent() {
    let addresses = addresses(2);
    // A greeting is waited for longer than this.
    let limits = Limits { meet: Duration::from_secs(3), ..Limits::default() };
    let member = |rank| Member { limits, ..member(&addresses, rank) };
    let (first, second) = (member(0), member(1));
    let address = addresses[0];
    thread::scope(|scope| {
        let first = scope.spawn(move || Group::meet(&first).map(|_| ()));
        let call = || {
            let until = Instant::now() + Duration::from_secs(2);
            loop {
                match TcpStream::connect(address) {
                    Ok(socket) => break socket,
                    Err(error) => assert!(Instant::now() < until, "{error}"),
                }
                thread::sleep(Duration::from_millis(10));
            }
        };
        let silent = call();
        let mut other = call();
        other
            .write_all(b"GET / HTTP/1.1\r\nHost: somebody.example\r\nAccept: */*\r\n\r\n")
            .expect("sent");
        Group::meet(&second).expect("a group");
        first.join().expect("no panic").expect("a group");
        drop((silent, other));
    });
}

#[test]
fn two_groups_on_the_same_addresses_meet_one_after_the_other() {
    let addresses = addresses(3);
    thread::scope(|scope| {
        let start = |at: usize| {
            let group = 1 + at as u8 % 2;
            let digest = [group; 32];
            let member = Member { group: group.into(), digest, ..member(&addresses, at / 2) };
            scope.spawn(move || {
                let met = Group::meet(&member).expect("its own ranks come");
                [group, 9 - group].map(|own| met.most(own).expect("all are there"))
            })
        };
        let ranks: Vec<_> = (0..6).map(start).collect();
        for (at, rank) in ranks.into_iter().enumerate() {
            let group = 1 + at as u8 % 2;
            assert_eq!(rank.join().expect("no panic"), [group, 9 - group]);
        }
    });
}

#[test]
fn a_rank_tells_who_listens_where_another_one_should() {
    let meet = |member: Member| Group::meet(&member).map(|_| ()).expect_err("nobody").to_string();
    let limits = Limits { meet: Duration::from_secs(1), ..Limits::default() };
    let stranger = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addresses = [stranger.local_addr().expect("an address"), addresses(1)[0]];
    let told = meet(Member { limits, ..member(&addresses, 1) });
    assert!(told.contains("rank 0") && told.contains("says nothing"), "{told}");
    drop(stranger);
    thread::scope(|scope| {
        let other = Member { limits, group: 6, ..member(&addresses, 0) };
        scope.spawn(move || meet(other));
        let limits = Limits { meet: Duration::from_millis(700), ..limits };
        let told = meet(Member { limits, ..member(&addresses, 1) });
        assert!(told.contains("rank 0") && told.contains("another group"), "{told}");
    });
}

#[test]
fn a_stranger_that_was_there_first_is_not_waited_for_until_the_end() {
    let stranger = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addresses = [stranger.local_addr().expect("an address"), addresses(1)[0]];
    let (first, second) = (member(&addresses, 0), member(&addresses, 1));
    thread::scope(|scope| {
        let second = scope.spawn(move || Group::meet(&second).map(|_| ()));
        let silent = stranger.accept().expect("a call");
        drop(stranger);
        Group::meet(&first).expect("a group");
        second.join().expect("no panic").expect("a group");
        drop(silent);
    });
}

#[test]
fn ranks_with_other_files_or_hosts_are_told_apart() {
    let different = |change: fn(&mut Member)| {
        let addresses = addresses(2);
        let (first, mut second) = (member(&addresses, 0), member(&addresses, 1));
        change(&mut second);
        let meet = |member: Member| Group::meet(&member).expect_err("they do not fit").to_string();
        thread::scope(|scope| {
            let second = scope.spawn(|| meet(second));
            [meet(first), second.join().expect("no panic")]
        })
    };
    for error in different(|member| member.digest = [8; 32]) {
        assert!(error.contains("other model files"), "{error}");
    }
    let [first, _] = different(|member| {
        member.limits.meet = Duration::from_secs(1);
        member.addresses.push(member.addresses[0]);
    });
    assert!(first.contains("one of 3"), "{first}");
    let none = Member { rank: 2, ..member(&addresses(2), 0) };
    assert!(Group::meet(&none).expect_err("no such rank").to_string().contains("none of 2"));
}

#[test]
fn what_cannot_be_exchanged_is_refused_when_it_is_asked_for() {
    let refused = of_all(2, |group| {
        let whole = Array::from_u32(&[1], &[1]).expect("a value");
        let scalar = Array::scalar(1.0, Dtype::F32).expect("a value");
        let own = group.rank();
        [
            group.all_sum(&whole).map(|_| ()),
            group.all_gather(&scalar).map(|_| ()),
            group.send(&whole, own).map(|_| ()),
            group.receive(&[1], Dtype::F32, 2).map(|_| ()),
        ]
        .map(|result| result.expect_err("refused").to_string())
    });
    for [sum, gather, send, receive] in refused {
        assert!(sum.contains("floating-point"), "{sum}");
        assert!(gather.contains("scalars"), "{gather}");
        assert!(send.contains("another one") && receive.contains("another one"), "{receive}");
    }
}

#[test]
fn ranks_know_the_most_that_any_of_them_says_and_which_one_says_nothing() {
    let found = of_all(3, |group| {
        let own = [[0, 2], [1, 0], [0, 1]][group.rank()];
        let both = own.map(|own| group.most(own).expect("all are there"));
        if group.rank() == 2 {
            return (both, None);
        }
        (both, Some(group.most(0).expect_err("rank 2 has left").to_string()))
    });
    for (both, error) in found {
        assert_eq!(both, [1, 2]);
        assert!(error.is_none_or(|error| error.contains("is lost")));
    }
}

#[test]
fn ranks_keep_operations_together_or_not_at_all() {
    let found = of_all(2, |group| -> Result<Vec<bool>> {
        let (x, weight) = (ops::zeros(&[1, 1, 8], Dtype::F32)?, ops::zeros(&[8], Dtype::F32)?);
        weight.eval()?;
        let own = || cpu::rms_norm(&x, &weight, 1e-5);
        let foreign = || ops::add(&own()?, &x);
        let record = |output: &Array| Replay::record(output, &[&x], &[], false, Some(&group));
        // The second time, rank 1 has something else.
        let second = if group.rank() == 1 { foreign()? } else { own()? };
        let mut kept = Vec::new();
        for output in [own()?, second, own()?] {
            let recorded = record(&output)?;
            assert!(!matches!(recorded, Recorded::NotYet));
            kept.push(matches!(recorded, Recorded::Kept(_)));
            if let Recorded::Kept(mut replay) = recorded {
                let other = ops::zeros(&[1, 2, 8], Dtype::F32)?;
                assert!(replay.fits(&[&x], &[])? && !replay.fits(&[&other], &[])?);
                assert!(replay.run(&[&x], &[])?.is_some());
            }
        }
        Ok(kept)
    });
    for kept in found {
        assert_eq!(kept.expect("no rank is lost"), [true, false, true]);
    }
}
