//! The processes that compute a model together: the first one decides, and the others get its
//! decisions.
//!
//! All of them run the same scheduler. Whatever would differ from one to another comes from rank 0:
//! requests that arrive and are cancelled, what the plan says of times and bytes, drawn ids, rows
//! that end, and a request's failure. [`Ranks::agree`] stands wherever that is so. The rest follows
//! from it, so that all queue the same operations in the same order. A failure that was not agreed
//! on ends the group.

mod watch;

use std::cell::Cell;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use inference_core::{Error, LoadOptions, RankSplit};
use mlx_ffi::distributed::{Between, Group, Limits, Member};
use mlx_ffi::{Device, Indices, memory};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{self, Result};
use crate::load::EngineOptions;
use crate::weights::{Adapter, Checkpoint};
pub(super) use watch::Listener;
use watch::{BROKEN, Lost, READY, Watched, tell};

/// How long freed memory is kept where no order comes.
const KEPT_IDLE: Duration = Duration::from_secs(1);

/// The processes that compute a model together, as one of them sees them; or this one alone.
pub(super) struct Ranks(Option<Several>);

struct Several {
    group: Group,
    /// The orders of rank 0; `None` in rank 0 itself.
    orders: Option<Receiver<Vec<u8>>>,
    /// In rank 0: of each rank that is ready, the bytes that it may take.
    ready: Receiver<u64>,
    lost: Arc<Lost>,
    /// The failure that is dealt with is one of all ranks.
    failed_together: Cell<bool>,
}

impl Ranks {
    /// This process alone.
    pub fn none() -> Ranks {
        Ranks(None)
    }

    /// Waits for the other ranks, where there are any, which must have the same model and options.
    ///
    /// # Errors
    /// Ranks that do not come, or have another model or other options.
    pub fn meet(
        options: &EngineOptions,
        checkpoint: &Checkpoint,
        listener: Listener<'_>,
    ) -> Result<Ranks> {
        let Some(ranks) = &options.load.ranks else { return Ok(Ranks::none()) };
        let addresses: Vec<SocketAddr> = ranks.addresses.clone();
        let between = match (options.device, ranks.split) {
            (Device::Cpu, _) => Between::Cpus,
            (Device::Gpu, RankSplit::Tensors) => Between::Gpus,
            (Device::Gpu, RankSplit::Layers) => {
                let what = "pipeline".to_owned();
                let reason = "MLX sends nothing from GPU to GPU: take the backend `cpu`, or let ranks have a part of every layer";
                return Err(Error::Unsupported { what, reason: reason.to_owned() }.into());
            }
        };
        let adapter = options.load.adapter_path.as_deref().map(Adapter::digest).transpose()?;
        let digest = checkpoint.sampled_digest(&format!(
            "{between:?} {:?} {} {adapter:?}",
            ranks.split,
            common(&options.load)
        ))?;
        let (limits, group) = (Limits::default(), ranks.group);
        let member = Member { rank: ranks.rank, addresses, group, digest, between, limits };
        let group = Group::meet(&member)?;
        listener.shared.joined(&group);
        let Watched { orders, ready, lost } = watch::start(&group, listener)?;
        let orders = (group.rank() > 0).then_some(orders);
        Ok(Ranks(Some(Several { group, orders, ready, lost, failed_together: Cell::new(false) })))
    }

    /// The group, where there are several.
    pub fn group(&self) -> Option<&Group> {
        self.0.as_ref().map(|several| &several.group)
    }

    /// Returns true when there are several ranks.
    pub fn are_several(&self) -> bool {
        self.0.is_some()
    }

    /// Returns true when another rank decides.
    pub fn follow(&self) -> bool {
        self.0.as_ref().is_some_and(|several| several.orders.is_some())
    }

    /// Waits until all ranks have loaded the model. The least of the bytes that ranks may take, of
    /// which this one may take `bytes`: as few are all that each counts on.
    ///
    /// # Errors
    /// A rank that is lost, or cannot load it.
    pub fn be_ready(&self, bytes: u64) -> Result<u64> {
        let Some(several) = &self.0 else { return Ok(bytes) };
        let mut least = bytes;
        if several.orders.is_some() {
            tell(&several.group, READY, &bytes)?;
        } else {
            for _ in 1..several.group.size() {
                least = least.min(several.ready.recv().map_err(|_| several.is_lost())?);
            }
        }
        self.agree("bytes", || least)
    }

    /// Leaves the group in good order, once nothing is left to compute: whoever left sooner would
    /// end what others still exchange.
    pub fn part(&self) {
        let Some(several) = &self.0 else { return };
        several.lost.part();
        if several.lost.known().is_some() {
            return;
        }
        // Whoever goes from now on is not waited for.
        match &several.orders {
            Some(orders) => {
                let _ = mlx_ffi::synchronize();
                let _ = tell(&several.group, READY, &0);
                orders.iter().for_each(drop);
            }
            None => {
                let answer = || several.ready.recv_timeout(Limits::default().answer);
                let _ = (1..several.group.size()).try_for_each(|_| answer().map(drop));
            }
        }
    }

    /// Returns in all ranks what `decide` returns in rank 0; `topic` names the subject.
    ///
    /// # Errors
    /// A rank that is lost, or that is about something else.
    pub fn agree<T: Serialize + DeserializeOwned>(
        &self,
        topic: &str,
        decide: impl FnOnce() -> T,
    ) -> Result<T> {
        let Some(several) = &self.0 else { return Ok(decide()) };
        if let Some(orders) = &several.orders {
            return several.ordered(orders, topic);
        }
        let decided = decide();
        tell(&several.group, topic, &decided)?;
        Ok(decided)
    }

    /// Returns a request's outcome in all ranks: it fails where its work failed in rank 0.
    /// Such a failure is the request's alone.
    ///
    /// # Errors
    /// That failure; a rank that is lost.
    pub fn agree_on<T>(&self, result: Result<T>) -> Result<T> {
        let Some(several) = &self.0 else { return result };
        let failure = self.agree("outcome", || result.as_ref().err().map(ToString::to_string))?;
        several.failed_together.set(failure.is_some());
        match (failure, result) {
            (None, result) => result,
            (Some(_), Err(error)) => Err(error),
            (Some(reason), Ok(_)) => Err(error::Error::Model(reason)),
        }
    }

    /// Waits for what ranks have computed. On GPUs the values of a rank that is lost are any, and
    /// say nothing of it.
    ///
    /// # Errors
    /// Those of MLX; a rank that is lost.
    pub fn have_computed(&self, values: &Indices) -> Result<()> {
        let Some(several) = self.0.as_ref().filter(|several| several.group.is_between_gpus())
        else {
            return Ok(());
        };
        values.eval()?;
        several.lost.known().map_or(Ok(()), |reason| Err(Error::Engine(reason).into()))
    }

    /// Returns true when the failure at hand is a request's alone; to be asked once.
    pub fn failed_together(&self) -> bool {
        self.0.as_ref().is_none_or(|several| several.failed_together.take())
    }

    /// Why another rank is lost, where the failure that is dealt with is not a request's alone.
    pub fn why(&self) -> Option<String> {
        let several = self.0.as_ref().filter(|several| !several.failed_together.get())?;
        several.lost.known_soon()
    }

    /// Ends the group, with the reason for the others.
    pub fn end(&self, reason: &impl Display) {
        if let Some(several) = &self.0 {
            // Who is gone needs no reason.
            let _ = tell(&several.group, BROKEN, &reason.to_string());
            several.group.give_up();
            several.group.leave();
        }
    }
}

impl Several {
    /// The next order, which must be about `topic`.
    fn ordered<T: DeserializeOwned>(&self, orders: &Receiver<Vec<u8>>, topic: &str) -> Result<T> {
        let message = match orders.recv_timeout(KEPT_IDLE) {
            Err(RecvTimeoutError::Timeout) => {
                // What fails here fails again where somebody waits for it.
                let _ = memory::give_back();
                orders.recv().ok()
            }
            message => message.ok(),
        };
        let message = message.ok_or_else(|| self.is_lost())?;
        match serde_json::from_slice::<(&str, T)>(&message) {
            Ok((about, value)) if about == topic => Ok(value),
            _ => {
                let start = String::from_utf8_lossy(&message[..message.len().min(80)]).into_owned();
                let reason = format!(
                    "rank 0 is about something else than `{topic}`: {start}; run the same version everywhere"
                );
                Err(Error::Engine(reason).into())
            }
        }
    }

    fn is_lost(&self) -> error::Error {
        let reason = self.lost.known_soon().unwrap_or_else(|| "another rank is lost".to_owned());
        Error::Engine(reason).into()
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        self.group.leave();
    }
}

/// The load options that all ranks must have in common, in words.
fn common(options: &LoadOptions) -> String {
    let LoadOptions {
        context_length,
        parallel_slots,
        kv_bits,
        kv_group_size,
        batch_invariant,
        prefix_cache,
        dtype,
        prefill_chunk,
        cpu_activations,
        ..
    } = options;
    format!(
        "{context_length:?} {parallel_slots:?} {kv_bits:?} {kv_group_size:?} {batch_invariant} {prefix_cache:?} {dtype:?} {prefill_chunk:?} {cpu_activations:?}"
    )
}
