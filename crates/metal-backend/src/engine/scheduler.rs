//! Carries out what [`plan`](crate::plan) decides: each turn it gathers what there is, asks, and
//! computes.

mod admitting;
mod classifying;
mod decoding;
mod ending;
mod failing;
mod gathering;
mod inbox;
mod inspecting;
mod orders;
mod prefilling;
mod reading;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use inference_core::Error;
use mlx_ffi::on_cpu;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::classify::Lane;
use super::device::Watch;
use super::dispatcher::Dispatcher;
use super::group::Group;
use super::inspect::Inspections;
use super::job::{Command, Job};
use super::prefill::Prefill;
use super::prefixes::Prefixes;
use super::row::Row;
use super::served::{Served, ServedEnd};
use super::shared::Shared;
use super::step_clock::{Part, StepClock};
use super::wired::WiredShare;
use crate::plan::{self, Pace, Present};
use reading::Reading;

/// The engine thread's state between steps.
pub(super) struct Scheduler<'a> {
    served: &'a Served,
    shared: &'a Shared,
    inbox: Receiver<Command>,
    queue: VecDeque<Box<Job>>,
    prefills: Vec<Prefill>,
    groups: Vec<Group>,
    classifications: Lane,
    inspections: Inspections,
    /// Rows that begin again: preempted ones, and those whose positions are encoded otherwise.
    preempted: VecDeque<Row>,
    prefixes: Prefixes,
    wired: WiredShare,
    closing: bool,
    /// Of requests that were taken in.
    numbers: u64,
    turns: usize,
    steps: usize,
    clock: StepClock,
    /// Of prompts' layers.
    dispatcher: Dispatcher,
    /// Of prefills.
    pace: Pace,
    /// When the last part of a prompt ended, if that was in the turn before.
    part_ended: Option<Instant>,
    watch: Watch,
    /// The memory in use, as read at the beginning of this scheduling step.
    reading: Reading,
    /// Why nothing can be computed any more.
    broken: Option<Error>,
}

impl<'a> Scheduler<'a> {
    /// A scheduler that has `prefixes` of earlier requests.
    pub fn new(
        served: &'a Served,
        shared: &'a Shared,
        inbox: Receiver<Command>,
        (prefixes, wired): (Prefixes, WiredShare),
    ) -> Scheduler<'a> {
        Scheduler {
            served,
            shared,
            inbox,
            prefixes,
            wired,
            queue: VecDeque::new(),
            prefills: Vec::new(),
            groups: Vec::new(),
            classifications: Lane::default(),
            inspections: Inspections::default(),
            preempted: VecDeque::new(),
            closing: false,
            numbers: 0,
            turns: 0,
            steps: 0,
            clock: StepClock::start(!matches!(served.device, mlx_ffi::Device::Cpu)),
            // Computed by itself, a row has the numbers of its own length.
            dispatcher: Dispatcher::among(served.ranks.group(), !served.alone),
            pace: Pace::default(),
            part_ended: None,
            watch: Watch::new(served.device),
            reading: Reading::begin(),
            broken: None,
        }
    }

    /// Serves requests until told to close.
    pub fn serve(mut self) -> ServedEnd {
        loop {
            self.look_at_inbox();
            if self.closing {
                break;
            }
            if let Some(error) = self.broken.take() {
                return self.refuse_all(&error);
            }
            if !self.is_idle() {
                self.wired.begin();
            }
            self.read();
            self.admit();
            self.share_room();
            self.compute();
            self.make_room();
            self.decode();
            self.beat();
        }
        let ranks = Rc::clone(&self.served.ranks);
        let broken = self.broken.take();
        self.close();
        // Nobody waits for it.
        self.prefixes.finish(self.shared);
        match &broken {
            // Whoever is lost would be waited for.
            Some(error) => ranks.end(error),
            None => ranks.part(),
        }
        ServedEnd::Closed
    }

    /// Computes what comes before the steps of a turn.
    fn compute(&mut self) {
        self.turns += 1;
        if !self.groups.is_empty() {
            self.clock.lap(Part::Rest);
        }
        let turn = plan::turn(Present {
            prefills: !self.prefills.is_empty(),
            batches: !self.groups.is_empty(),
            classifications: self.classifications.running() > 0,
            inspections: self.inspections.running() > 0,
            // Of a pipeline, the ranks behind would have nothing to do meanwhile.
            on_cpu: self.served.beside() < 2 && on_cpu().unwrap_or(false),
        });
        if turn.classifies || self.prefills.iter().any(Prefill::is_reading) {
            self.exchange_steps();
        }
        if turn.waits_for_steps {
            self.wait_for_steps();
        }
        match turn.prompts {
            true => self.prefill(turn.waits_for_steps),
            false => self.part_ended = None,
        }
        if self.prefills.is_empty() {
            // Also where the last pass was given up between two layers.
            self.dispatcher.rest();
        }
        if turn.classifies {
            self.classify();
        }
        if turn.inspects {
            self.inspect();
        }
        self.clock.skip();
    }

    fn running(&self) -> usize {
        let decoding = self.groups.iter().map(|group| group.rows().len()).sum::<usize>();
        let prefilling = self.prefills.iter().map(|prefill| prefill.rows().count()).sum::<usize>();
        prefilling + decoding + self.classifications.running() + self.inspections.running()
    }

    /// Returns in all ranks what rank 0 decides.
    /// Returns the default where a rank is lost: that ends the scheduling step.
    fn agree<T>(&mut self, topic: &str, decide: impl FnOnce(&mut Self) -> T) -> T
    where
        T: Default + Serialize + DeserializeOwned,
    {
        let ranks = Rc::clone(&self.served.ranks);
        if self.broken.is_some() {
            return T::default();
        }
        ranks.agree(topic, || decide(self)).unwrap_or_else(|error| {
            self.recover_from(&error.into());
            T::default()
        })
    }

    fn beat(&self) {
        self.shared.beat(self.running(), self.kv_bytes(), self.prefixes.cache.bytes());
        self.shared.stepped(self.clock.times());
    }
}
