//! Several processes that compute one model together: ranks, and what they tell each other.
//!
//! A [`Group`] is a connection of every rank to every other over TCP. Its operations are lazy like
//! MLX's own. They run on the thread of the current stream, which must be one of the CPU. All ranks
//! must make and evaluate the same operations in the same order.
//!
//! With an NVIDIA GPU for each rank, [`Between::Gpus`] has the values sent by NCCL, on the stream
//! of the GPU. Whoever waits there for a rank that is lost waits until [`Group::give_up`].
//!
//! MLX has a ring of its own. We do not use it: a rank that waits there takes a whole core, and a
//! rank whose neighbour has ended waits for ever once a second operation is queued. Here a wait
//! costs nothing, and whatever is lost is the error of the evaluation: a process that has ended at
//! once, and one that hangs after [`Limits::answer`].
//!
//! Beside what they compute together, rank 0 tells the others what to do: [`Orders`]. These
//! connections may rest for as long as nothing is asked. Whoever waits at them notices a host or a
//! cable that is gone within five seconds.
//!
//! The traffic is neither encrypted nor authenticated.

mod exchange;
mod largest;
mod link;
mod member;
mod nccl;
mod orders;
mod sum;

use std::fmt;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cpu::{Inputs, Outcome, operation};
use crate::{Array, Dtype, Error, Indices, Result, ops};
use exchange::{Incoming, Kind, Outgoing};
use link::Links;
pub use member::{Between, Limits, Member};
use nccl::Nccl;
pub use nccl::Sums;
pub use orders::Orders;

/// Bytes up to which each rank gets the whole arrays of all others to sum them: fewer rounds cost
/// less than fewer bytes.
const WHOLE: usize = 32 << 10;

/// The ranks that compute together, as one of them sees them. Clones are the same group.
#[derive(Clone)]
pub struct Group(Arc<Inner>);

struct Inner {
    rank: usize,
    size: usize,
    links: Mutex<Links>,
    /// Sends values from GPU to GPU, in place of `links`.
    nccl: Option<Nccl>,
    orders: Orders,
    /// All connections once more, to end them while they are in use.
    ends: Vec<TcpStream>,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.size())
    }
}

impl Group {
    /// Waits until all ranks are connected.
    ///
    /// # Errors
    /// An address that cannot be listened on; ranks that do not come in time, by their numbers; a
    /// rank of another group, or with another digest; GPUs that cannot be reached.
    pub fn meet(member: &Member) -> Result<Group> {
        let Member { rank, addresses, .. } = member;
        if *rank >= addresses.len() {
            return Err(Error::new(format!("rank {rank} is none of {} ranks", addresses.len())));
        }
        let (links, orders) = Links::meet(member)?;
        let all = links.sockets.iter().chain(&orders).flatten().map(TcpStream::try_clone);
        let ends = all.collect::<std::io::Result<_>>();
        let ends = ends.map_err(|error| Error::new(format!("a connection of ranks: {error}")))?;
        let (size, orders) = (addresses.len(), Orders::new(orders));
        let mut links = links;
        let nccl = match member.between {
            Between::Cpus => None,
            Between::Gpus => {
                Some(Nccl::meet(*rank, size, |own, all| links.gather(*rank, own, all))?)
            }
        };
        let inner = Inner { rank: *rank, size, links: Mutex::new(links), nccl, orders, ends };
        Ok(Group(Arc::new(inner)))
    }

    /// Lets what waits on this GPU for other ranks end, with any values, and lets later operations
    /// fail. Nothing between CPUs, where [`leave`](Self::leave) does that.
    pub fn give_up(&self) {
        if let Some(nccl) = &self.0.nccl {
            nccl.give_up();
        }
    }

    /// The largest of what all ranks say, which wait for each other. Between CPUs, no operation may
    /// be under way.
    ///
    /// # Errors
    /// A rank that is lost, or that computes something else.
    pub fn most(&self, own: u8) -> Result<u8> {
        let mut all = vec![own; self.size()];
        self.0.links().gather(self.rank(), &[own], &mut all)?;
        Ok(all.into_iter().max().unwrap_or(own))
    }

    /// How sums are sent, where they are sent by GPUs.
    pub fn sums(&self) -> Option<Sums> {
        self.0.nccl.as_ref().map(Nccl::sums)
    }

    /// Orders of rank 0 to the others, and their answers.
    pub fn orders(&self) -> &Orders {
        &self.0.orders
    }

    /// Leaves the group: all waits end with an error, here and in the other ranks.
    pub fn leave(&self) {
        for socket in &self.0.ends {
            // One that has ended already needs no more.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Which rank this process is.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Returns true when values go from GPU to GPU.
    pub fn is_between_gpus(&self) -> bool {
        self.0.nccl.is_some()
    }

    /// The sum of all ranks' `x`, of any shape: the same bits in every rank. Between CPUs, halves
    /// are summed in F32.
    ///
    /// # Errors
    /// Types other than f32, f16 and bf16; a stream of the other device.
    pub fn all_sum(&self, x: &Array) -> Result<Array> {
        let dtype = x.dtype();
        if !dtype.is_float() {
            return Err(Error::new(format!("ranks sum floating-point values, not {dtype:?}")));
        }
        if let Some(nccl) = &self.0.nccl {
            return nccl.all_sum(x);
        }
        self.exchanged(x, x.shape(), move |inner, own, out| {
            let mut links = inner.links();
            if inner.size == 2 || own.len() <= WHOLE {
                links.sum_of_whole(inner.rank, dtype, own, out)
            } else {
                links.sum_of_parts(inner.rank, dtype, own, out)
            }
        })
    }

    /// All ranks' `x`, `[n, …]`, in their order: `[size · n, …]`.
    ///
    /// # Errors
    /// A scalar; a stream of the GPU.
    pub fn all_gather(&self, x: &Array) -> Result<Array> {
        let [first, rest @ ..] = x.shape() else {
            return Err(Error::new("scalars cannot be gathered"));
        };
        let all = i32::try_from(self.size()).ok().and_then(|size| first.checked_mul(size));
        let all = all.ok_or_else(|| Error::new(format!("{x:?} of all ranks is too large")))?;
        if let Some(nccl) = &self.0.nccl {
            return nccl.all_gather(x);
        }
        self.exchanged(x, &[&[all], rest].concat(), |inner, own, out| {
            inner.links().gather(inner.rank, own, out)
        })
    }

    /// The `x` of the rank `from`, in every rank. Of the others, only the shape and the type count.
    ///
    /// # Errors
    /// A rank that is not there; a stream of the other device.
    pub fn of_rank(&self, x: &Array, from: usize) -> Result<Array> {
        if from >= self.size() {
            return Err(Error::new(format!("rank {from} is none of {self:?}")));
        }
        if let Some(nccl) = &self.0.nccl {
            return nccl::of_rank(x, from as i32, |own| nccl.all_gather(own));
        }
        self.exchanged(x, x.shape(), move |inner, own, out| {
            inner.links().of_rank(from, inner.rank, own, out)
        })
    }

    /// The indices of the rank `from`, in every rank. Those that reach further than this rank's
    /// fail the evaluation; between GPUs they become the last one.
    ///
    /// # Errors
    /// A rank that is not there; a stream of the other device.
    pub fn indices_of_rank(&self, x: &Indices, from: usize) -> Result<Indices> {
        let below = x.below();
        if self.is_between_gpus() || from >= self.size() {
            return Indices::bounded(&self.of_rank(x, from)?, below);
        }
        x.with(|array| {
            self.exchanged(array, array.shape(), move |inner, own, out| {
                inner.links().of_rank(from, inner.rank, own, out)?;
                check_below(out, below)
            })
        })
    }

    /// The `rows` indices below `below` that the rank `from` has chosen once it knew its own
    /// `after`, `[…, n]`, which this rank has too: `[rows]`. Not for that rank, which has
    /// [`indices_of_rank`](Self::indices_of_rank).
    ///
    /// # Errors
    /// A stream of the GPU. Indices that reach further fail the evaluation; between GPUs they
    /// become the last one.
    pub fn indices_after(
        &self,
        from: usize,
        after: &Array,
        rows: i32,
        below: usize,
    ) -> Result<Indices> {
        self.check_other(from)?;
        // A part of it stands for the rest.
        let after = &ops::slice_axis(after, -1, 0, 1)?;
        if self.is_between_gpus() {
            let nothing = ops::after(&ops::zeros(&[rows], Dtype::U32)?, after)?;
            return Indices::bounded(&self.of_rank(&nothing, from)?, below);
        }
        let (inner, shape) = (Arc::clone(&self.0), [rows]);
        let outcome = Outcome::row_major(Dtype::U32, &shape);
        let array = operation(&[after], Inputs::RowMajor, outcome, move |_, out| {
            inner.links().exchange(&mut [], &mut [Incoming::of(from, Kind::Handed, out)])?;
            check_below(out, below)
        })?;
        Indices::checked(array, below)
    }

    /// Of each row, the index of the largest of all ranks' `values`, `[rows]` in F32: `[rows]`, the
    /// same in every rank. A rank's own index of a value is that of `indices` behind `first`. Of
    /// equals, it is the first rank's. All are below `below`.
    ///
    /// # Errors
    /// Shapes or types that do not fit; a stream of the GPU. Indices that reach further fail the
    /// evaluation.
    pub fn index_of_largest(
        &self,
        values: &Array,
        indices: &Indices,
        first: i32,
        below: i32,
    ) -> Result<Indices> {
        let fits = values.dtype() == Dtype::F32 && values.shape() == indices.shape();
        let (Ok(first), Ok(below)) = (u32::try_from(first), usize::try_from(below)) else {
            return Err(Error::new(format!("no indices lie from {first} to {below}")));
        };
        if !fits || values.shape().len() != 1 {
            return Err(Error::new(format!("{values:?} in F32 and {indices:?} do not fit")));
        }
        if let Some(nccl) = &self.0.nccl {
            let gather = |own: &Array| nccl.all_gather(own);
            let bounds = [first, below as u32];
            let largest = nccl::index_of_largest(values, indices, bounds, gather)?;
            return Indices::bounded(&largest, below);
        }
        let (inner, shape) = (Arc::clone(&self.0), values.shape().to_vec());
        let outcome = Outcome::row_major(Dtype::U32, &shape);
        let array =
            operation(&[values, indices], Inputs::RowMajor, outcome, move |inputs, out| {
                let [values, indices] = inputs else {
                    return Err(Error::new("values without indices"));
                };
                let own = largest::paired(values.bytes, indices.bytes, first);
                let mut all = vec![0; own.len() * inner.size];
                inner.links().gather(inner.rank, &own, &mut all)?;
                largest::choose(&all, own.len(), out);
                check_below(out, below)
            })?;
        Indices::checked(array, below)
    }

    /// Sends `x` to another rank, which receives it. The result is `x`, which must be evaluated.
    ///
    /// # Errors
    /// A rank that is not there, or this one; a stream of the GPU.
    pub fn send(&self, x: &Array, to: usize) -> Result<Array> {
        self.check_other(to)?;
        self.exchanged(x, x.shape(), move |inner, own, out| {
            out.copy_from_slice(own);
            inner.links().exchange(&mut [Outgoing::of(to, Kind::Sent, own)], &mut [])
        })
    }

    /// Receives what another rank sends, which must be of this shape and type.
    ///
    /// # Errors
    /// A rank that is not there, or this one; a stream of the GPU.
    pub fn receive(&self, shape: &[i32], dtype: Dtype, from: usize) -> Result<Array> {
        self.check_other(from)?;
        let (inner, outcome) = (Arc::clone(&self.0), Outcome::row_major(dtype, shape));
        operation(&[], Inputs::RowMajor, outcome, move |_, out| {
            inner.links().exchange(&mut [], &mut [Incoming::of(from, Kind::Sent, out)])
        })
    }

    fn check_other(&self, rank: usize) -> Result<()> {
        if rank < self.size() && rank != self.rank() {
            return Ok(());
        }
        Err(Error::new(format!("rank {rank} is not another one of {self:?}")))
    }

    /// Fills an array of `shape` by `exchange`, from the bytes of `x`.
    fn exchanged(
        &self,
        x: &Array,
        shape: &[i32],
        exchange: impl Fn(&Inner, &[u8], &mut [u8]) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Array> {
        let (inner, outcome) = (Arc::clone(&self.0), Outcome::row_major(x.dtype(), shape));
        operation(&[x], Inputs::RowMajor, outcome, move |inputs, out| match inputs {
            [own] => exchange(&inner, own.bytes, out),
            _ => Err(Error::new("one array is exchanged at a time")),
        })
    }
}

impl Inner {
    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That the indices that ranks sent are below `below`.
fn check_below(indices: &[u8], below: usize) -> Result<()> {
    let mut indices = indices.as_chunks::<4>().0.iter().map(|bytes| u32::from_ne_bytes(*bytes));
    match indices.find(|index| *index as usize >= below) {
        None => Ok(()),
        Some(index) => Err(Error::new(format!("a rank sent the index {index} of {below} entries"))),
    }
}

impl Links {
    /// The sum of whole arrays, each of which every rank gets.
    fn sum_of_whole(
        &mut self,
        rank: usize,
        dtype: Dtype,
        own: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        let others = self.others(rank);
        let mut received = vec![0; own.len() * others.len()];
        let parts = received.chunks_mut(own.len().max(1));
        let from = |(&rank, part)| Incoming::of(rank, Kind::Sum, part);
        let mut incoming: Vec<_> = others.iter().zip(parts).map(from).collect();
        let to = |&rank: &usize| Outgoing::of(rank, Kind::Sum, own);
        self.exchange(&mut others.iter().map(to).collect::<Vec<_>>(), &mut incoming)?;
        let mut terms: Vec<&[u8]> = received.chunks(own.len().max(1)).collect();
        terms.insert(rank.min(terms.len()), own);
        sum::sum(dtype, &terms, out);
        Ok(())
    }

    /// The sum of arrays that are cut: each rank sums its part of all, and hands the sum to the
    /// others.
    fn sum_of_parts(
        &mut self,
        rank: usize,
        dtype: Dtype,
        own: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        let (others, size) = (self.others(rank), self.size());
        let elements = own.len() / dtype.size();
        let part = |rank: usize| {
            let bound = |rank| rank * elements / size * dtype.size();
            bound(rank)..bound(rank + 1)
        };
        let mine = part(rank);
        let mut received = vec![0; mine.len() * others.len()];
        let from = |(&rank, part)| Incoming::of(rank, Kind::Sum, part);
        let parts = received.chunks_mut(mine.len().max(1));
        let mut incoming: Vec<_> = others.iter().zip(parts).map(from).collect();
        let to = |&rank: &usize| Outgoing::of(rank, Kind::Sum, &own[part(rank)]);
        self.exchange(&mut others.iter().map(to).collect::<Vec<_>>(), &mut incoming)?;
        let mut terms: Vec<&[u8]> = received.chunks(mine.len().max(1)).collect();
        terms.insert(rank.min(terms.len()), &own[mine.clone()]);
        let mut summed = vec![0; mine.len()];
        sum::sum(dtype, &terms, &mut summed);
        self.spread(rank, &summed, part, out)
    }

    /// Fills `out` with the `own` of the rank `from`.
    fn of_rank(&mut self, from: usize, rank: usize, own: &[u8], out: &mut [u8]) -> Result<()> {
        if rank != from {
            return self.exchange(&mut [], &mut [Incoming::of(from, Kind::Handed, out)]);
        }
        out.copy_from_slice(own);
        let to = |rank| Outgoing::of(rank, Kind::Handed, own);
        self.exchange(&mut self.others(from).into_iter().map(to).collect::<Vec<_>>(), &mut [])
    }

    /// All ranks' `own`, one behind the other.
    fn gather(&mut self, rank: usize, own: &[u8], out: &mut [u8]) -> Result<()> {
        let bytes = own.len();
        self.spread(rank, own, |rank| rank * bytes..(rank + 1) * bytes, out)
    }

    /// Fills `out` with what every rank has: `own` is this rank's part, and `part` tells where each
    /// one lies.
    fn spread(
        &mut self,
        rank: usize,
        own: &[u8],
        part: impl Fn(usize) -> std::ops::Range<usize>,
        out: &mut [u8],
    ) -> Result<()> {
        let (mut incoming, mut left) = (Vec::new(), out);
        for other in 0..self.size() {
            let (mine, rest) = left.split_at_mut(part(other).len());
            left = rest;
            if other == rank {
                mine.copy_from_slice(own);
            } else {
                incoming.push(Incoming::of(other, Kind::Gather, mine));
            }
        }
        let to = |rank| Outgoing::of(rank, Kind::Gather, own);
        let mut outgoing: Vec<_> = self.others(rank).into_iter().map(to).collect();
        self.exchange(&mut outgoing, &mut incoming)
    }

    fn others(&self, rank: usize) -> Vec<usize> {
        (0..self.size()).filter(|other| *other != rank).collect()
    }
}
