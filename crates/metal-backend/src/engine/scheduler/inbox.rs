//! Messages to the scheduler: requests that arrive, requests that are cancelled.

use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Duration;

use inference_core::{Error, FinishReason, GenerateMetrics, Outcome};
use mlx_ffi::memory;

use super::orders::{Order, TurnOrders};
use super::{Row, Scheduler};
use crate::engine::classify::ClassifyJob;
use crate::engine::inspect::InspectJob;
use crate::engine::job::{Command, Job};
use crate::error::Result;
use crate::sampling::is_greedy;

/// How long freed memory is kept for the next request where none runs.
const KEPT_IDLE: Duration = Duration::from_secs(1);

impl Scheduler<'_> {
    /// Returns true when there is nothing to do until a command arrives.
    pub(super) fn is_idle(&self) -> bool {
        !self.anything_waits() && self.running() == 0
    }

    /// Takes in what arrived, and ends what was cancelled and does not decode. Where there is
    /// nothing to do, waits.
    pub(super) fn look_at_inbox(&mut self) {
        let (commands, cancelled) = match self.gather_orders() {
            Ok(orders) => orders,
            Err(error) => return self.recover_from(&error.into()),
        };
        commands.into_iter().for_each(|command| self.take_in(command));
        if !self.closing && !cancelled.is_empty() {
            self.end_cancelled(&cancelled);
        }
    }

    /// Commands that arrived, and the numbers of cancelled requests: the same in all ranks.
    fn gather_orders(&mut self) -> Result<(Vec<Command>, Vec<u64>)> {
        let ranks = Rc::clone(&self.served.ranks);
        if ranks.follow() {
            let TurnOrders { arrived, cancelled, closes } =
                ranks.agree("turn", TurnOrders::default)?;
            let close = closes.then_some(Command::Close);
            let arrived = arrived.into_iter().map(Order::into_command);
            return Ok((arrived.chain(close).collect(), cancelled));
        }
        let waits = self.is_idle().then(|| self.wait_for_command());
        let mut commands: Vec<Command> = waits.into_iter().collect();
        loop {
            match self.inbox.try_recv() {
                Ok(command) => commands.push(command),
                Err(TryRecvError::Disconnected) => commands.push(Command::Close),
                Err(TryRecvError::Empty) => break,
            }
            if matches!(commands.last(), Some(Command::Close)) {
                break;
            }
        }
        // What is cleared here concerns this process, and the ranks number requests alone.
        let commands: Vec<Command> =
            commands.into_iter().filter_map(|command| self.clear_if_asked(command)).collect();
        let cancelled = self.cancelled(&commands);
        if ranks.are_several()
            && !commands.iter().any(|command| matches!(command, Command::Lost(_)))
        {
            let orders = || TurnOrders {
                arrived: commands.iter().filter_map(Order::of).collect(),
                cancelled: cancelled.clone(),
                closes: matches!(commands.last(), Some(Command::Close)),
            };
            if let Err(error) = ranks.agree("turn", orders) {
                // The commands are taken in all the same: who waits for them is told.
                self.recover_from(&error.into());
            }
        }
        Ok((commands, cancelled))
    }

    /// The next command. Until it comes, prefixes are written, and then all memory that nothing
    /// needs is given back, and what is wired no more.
    fn wait_for_command(&mut self) -> Command {
        while self.prefixes.write_one(self.shared) {
            match self.inbox.try_recv() {
                Ok(command) => return command,
                Err(TryRecvError::Disconnected) => return Command::Close,
                Err(TryRecvError::Empty) => {}
            }
        }
        match self.inbox.recv_timeout(KEPT_IDLE) {
            Ok(command) => return command,
            Err(RecvTimeoutError::Disconnected) => return Command::Close,
            Err(RecvTimeoutError::Timeout) => {}
        }
        // What fails here fails again where somebody waits for it.
        self.dispatcher.rest();
        let _ = memory::give_back();
        self.wired.end();
        self.inbox.recv().unwrap_or(Command::Close)
    }

    /// Gives freed memory back where `command` asks for that; else the command.
    fn clear_if_asked(&mut self, command: Command) -> Option<Command> {
        let Command::ClearCache(reply) = command else { return Some(command) };
        let cleared = match self.shared.fault() {
            // To ask a device that has failed may end the process.
            Some(error) => Err(error),
            None => self.clear_cache().map_err(Error::from),
        };
        // Whoever asked may have left.
        let _ = reply.send(cleared);
        None
    }

    fn clear_cache(&mut self) -> Result<()> {
        if self.running() > 0 {
            return Ok(memory::clear_cache()?);
        }
        self.dispatcher.rest();
        Ok(memory::give_back()?)
    }

    /// Puts a command where it waits.
    pub(super) fn take_in(&mut self, command: Command) {
        let Some(command) = self.clear_if_asked(command) else { return };
        self.numbers += 1;
        let number = self.numbers;
        match command {
            Command::Run(job) => self.queue.push_back(Box::new(Job { number, ..*job })),
            Command::Classify(job) => {
                self.classifications.push(Box::new(ClassifyJob { number, ..*job }));
            }
            Command::Inspect(job) => self.inspections.push(Box::new(InspectJob { number, ..*job })),
            // Obeyed above.
            Command::ClearCache(_) => {}
            Command::Close => self.closing = true,
            Command::Lost(reason) => self.broken = Some(Error::Unusable(reason)),
        }
    }

    /// The numbers of those that were cancelled and do not decode; `commands` are taken in next.
    fn cancelled(&self, commands: &[Command]) -> Vec<u64> {
        let arrived =
            commands.iter().zip(self.numbers + 1..).filter(|(command, _)| match command {
                Command::Run(job) => job.output.is_cancelled(),
                Command::Classify(job) => job.cancel.is_cancelled(),
                Command::Inspect(job) => job.cancel.is_cancelled(),
                Command::ClearCache(_) | Command::Close | Command::Lost(_) => false,
            });
        let queued = self.queue.iter().filter(|job| job.output.is_cancelled());
        let rows = self.prefills.iter().flat_map(|prefill| prefill.rows()).chain(&self.preempted);
        let rows = rows.filter(|row| row.is_cancelled());
        let arrived = arrived.map(|(_, number)| number);
        let own = queued.map(|job| job.number).chain(rows.map(|row| row.number));
        let lanes = self.classifications.cancelled().chain(self.inspections.cancelled());
        arrived.chain(own).chain(lanes).collect()
    }

    /// Ends those with these numbers.
    fn end_cancelled(&mut self, numbers: &[u64]) {
        for job in std::mem::take(&mut self.queue) {
            if numbers.contains(&job.number) {
                self.shared.leave();
                cancel(*job);
            } else {
                self.queue.push_back(job);
            }
        }
        let ended = self.classifications.end(numbers) + self.inspections.end(numbers);
        for _ in 0..ended {
            self.shared.leave();
        }
        let cancelled = |row: &Row| numbers.contains(&row.number);
        let mut ended = Vec::new();
        for at in (0..self.prefills.len()).rev() {
            match self.prefills[at].remove(cancelled) {
                Ok(rows) => ended.extend(rows),
                Err(error) => self.fail_prefill_at(at, error.into()),
            }
        }
        self.prefills.retain(|prefill| !prefill.is_empty());
        while let Some(at) = self.preempted.iter().position(cancelled) {
            ended.extend(self.preempted.remove(at));
        }
        for mut row in ended {
            let reason = row.end(FinishReason::Cancelled);
            self.end(row, Ok(reason));
        }
    }
}

/// Ends a job that never ran.
fn cancel(job: Job) {
    let waited = job.queued_at.elapsed();
    let metrics = GenerateMetrics {
        requests: 1,
        prompt_tokens: job.ids.len(),
        queue_duration: waited,
        total_duration: waited,
        ..GenerateMetrics::default()
    };
    let seed = job.options.seed.unwrap_or_default();
    let greedy = is_greedy(&job.options);
    let finish_reason = FinishReason::Cancelled;
    job.output.into_inner().finish(Outcome { finish_reason, metrics, seed, greedy });
}
