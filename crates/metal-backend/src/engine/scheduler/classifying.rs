//! The scheduler's dealings with classifications: beside prefills, a part at a time.

use inference_core::Error;

use super::Scheduler;
use crate::plan::{self, Admission, Spare};

impl Scheduler<'_> {
    /// Computes a part of a classification.
    pub(super) fn classify(&mut self) {
        let part = self.begin_batch().and_then(|()| {
            self.watch.check("classification")?;
            self.classifications.advance(self.served)
        });
        if let Err(error) = part {
            self.classifications.fail(error.clone());
            self.recover_from(&error);
            self.shared.leave();
        }
        if let Some(done) = self.classifications.take_done() {
            let (_, active) = self.settle();
            let metrics = done.metrics(active);
            self.shared.finished(&metrics);
            self.shared.leave();
            self.beat();
            done.answer();
        }
    }

    /// Begins the next batch where one is wanted, or lets it wait.
    fn begin_batch(&mut self) -> Result<(), Error> {
        let mut may = Spare { prefixes: true, slots: true };
        while let Some(bytes) = self.classifications.next_needs(self.served) {
            let others_run = self.running() > self.classifications.running();
            let memory = self.memory();
            let decided = self.agree("batch", |own| {
                Some(plan::begins_beside(bytes, others_run, memory, own.spare().of(may)))
            });
            match decided.unwrap_or(Admission::Rest) {
                Admission::ForgetPrefixes => may.prefixes = self.forget_prefixes(),
                // Where it does not fit, it ends with the numbers.
                Admission::Begin(_) | Admission::Refuse(_) => {
                    return self.classifications.begin_batch(self.served, memory.room());
                }
                _ => {
                    self.classifications.wait();
                    break;
                }
            }
        }
        Ok(())
    }
}
