//! What the scheduler is told: requests that arrive, requests that are cancelled.

use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Duration;

use inference_core::{FinishReason, GenerateMetrics, Outcome};
use mlx_ffi::memory;

use super::{Row, Scheduler};
use crate::engine::job::{Command, Job};
use crate::sampling::is_greedy;

/// How long freed memory is kept for the next request where none runs.
const KEPT_IDLE: Duration = Duration::from_secs(1);

impl Scheduler<'_> {
    /// The next command; after a while without one, all memory that nothing needs is given back. `None`
    /// once nobody can send any.
    pub(super) fn wait_for_command(&self) -> Option<Command> {
        match self.inbox.recv_timeout(KEPT_IDLE) {
            Ok(command) => return Some(command),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        // What fails here fails again where somebody waits for it.
        let _ = memory::give_back();
        self.inbox.recv().ok()
    }

    /// Whether there is nothing to do until a command arrives.
    pub(super) fn is_idle(&self) -> bool {
        !self.anything_waits() && self.running() == 0
    }

    /// Puts a command where it waits.
    pub(super) fn take_in(&mut self, command: Command) {
        match command {
            Command::Run(job) => self.queue.push_back(job),
            Command::Classify(job) => self.classifications.push(job),
            Command::Inspect(job) => self.inspections.push(job),
            Command::Close => self.closing = true,
        }
    }

    /// Takes in what arrived, and ends what was cancelled and does not decode.
    pub(super) fn look_at_inbox(&mut self) {
        loop {
            match self.inbox.try_recv() {
                Ok(command) => self.take_in(command),
                Err(TryRecvError::Disconnected) => self.closing = true,
                Err(TryRecvError::Empty) => break,
            }
            if self.closing {
                return;
            }
        }
        for job in std::mem::take(&mut self.queue) {
            if job.output.is_cancelled() {
                self.shared.leave();
                cancel(*job);
            } else {
                self.queue.push_back(job);
            }
        }
        let ended = self.classifications.end_cancelled() + self.inspections.end_cancelled();
        for _ in 0..ended {
            self.shared.leave();
        }
        let cancelled = |row: &Row| row.is_cancelled();
        let mut ended = Vec::new();
        for at in (0..self.prefills.len()).rev() {
            match self.prefills[at].remove(cancelled) {
                Ok(rows) => ended.extend(rows),
                Err(error) => self.fail_prefill_at(at, error.into()),
            }
        }
        self.prefills.retain(|prefill| !prefill.is_empty());
        while let Some(at) = self.set_back.iter().position(cancelled) {
            ended.extend(self.set_back.remove(at));
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
