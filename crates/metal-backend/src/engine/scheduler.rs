//! Carries out what [`plan`](crate::plan) decides: each turn it gathers what there is, asks, and computes.

mod admitting;
mod classifying;
mod decoding;
mod ending;
mod failing;
mod gathering;
mod inbox;
mod inspecting;
mod prefilling;
mod reading;

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use inference_core::Error;
use mlx_ffi::on_cpu;

use super::classify::Lane;
use super::device::Watch;
use super::dispatcher::Dispatcher;
use super::group::Group;
use super::inspect::Inspections;
use super::job::{Command, Job};
use super::prefill::Prefill;
use super::row::Row;
use super::served::{Served, ServedEnd};
use super::shared::Shared;
use super::step_clock::{Part, StepClock};
use crate::cache::PrefixCache;
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
    /// Rows that begin again: they made room for others, or their positions are encoded otherwise.
    set_back: VecDeque<Row>,
    prefixes: PrefixCache,
    closing: bool,
    turns: usize,
    steps: usize,
    clock: StepClock,
    /// Of prompts' layers.
    dispatcher: Dispatcher,
    /// Of prefills.
    pace: Pace,
    watch: Watch,
    /// What was read at the beginning of this turn.
    reading: Reading,
    /// Why nothing can be computed any more.
    broken: Option<Error>,
}

impl<'a> Scheduler<'a> {
    /// A scheduler that keeps up to `prefix_cache` bytes of earlier requests.
    pub fn new(
        served: &'a Served,
        shared: &'a Shared,
        inbox: Receiver<Command>,
        prefix_cache: u64,
    ) -> Scheduler<'a> {
        Scheduler {
            served,
            shared,
            inbox,
            prefixes: PrefixCache::new(prefix_cache),
            queue: VecDeque::new(),
            prefills: Vec::new(),
            groups: Vec::new(),
            classifications: Lane::default(),
            inspections: Inspections::default(),
            set_back: VecDeque::new(),
            closing: false,
            turns: 0,
            steps: 0,
            clock: StepClock::start(),
            dispatcher: Dispatcher::default(),
            pace: Pace::default(),
            watch: Watch::new(served.device),
            reading: Reading::begin(),
            broken: None,
        }
    }

    /// Serves requests until told to close.
    pub fn serve(mut self) -> ServedEnd {
        loop {
            if self.is_idle() {
                match self.wait_for_command() {
                    Some(command) => self.take_in(command),
                    None => break,
                }
            }
            self.look_at_inbox();
            if self.closing {
                break;
            }
            self.read();
            self.admit();
            self.compute();
            self.make_room();
            self.decode();
            self.beat();
            if let Some(error) = self.broken.take() {
                return self.refuse_all(&error);
            }
        }
        self.close();
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
            on_cpu: on_cpu().unwrap_or(false),
        });
        if turn.waits_for_steps {
            self.wait_for_steps();
        }
        if turn.prompts {
            self.prefill();
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

    fn beat(&self) {
        self.shared.beat(self.running(), self.kv_bytes(), self.prefixes.bytes());
        self.shared.stepped(self.clock.times());
    }
}
