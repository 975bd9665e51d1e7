//! The answers of one request as they grow, part by part.

use inference_core::PrefillProgress;

use super::generations::{Event, Generations};
use super::part::{Part, Usage};
use super::reading::{Need, Reading};
use super::said::Said;
use super::tally::Tally;
use crate::error::{ApiError, Result};

/// The reason of the end of an answer that has all that it may say, as of one that ends by itself.
const ENOUGH: &str = "stop";

/// The answers of a request, one for each of its generations. Dropping it cancels what still runs.
pub struct Answers {
    readings: Vec<Reading>,
    // Dropped last: they hold the model.
    generations: Generations,
}

impl Answers {
    /// Reads `generations` with the reading of each.
    pub fn new(generations: Generations, readings: Vec<Reading>) -> Answers {
        Answers { readings, generations }
    }

    /// The next parts with the number of their answer; `None` when all have ended. Nothing is lost
    /// where the future is dropped.
    ///
    /// # Errors
    /// A failure of any generation, which is the end of the request.
    pub async fn next(&mut self) -> Option<Result<(usize, Vec<Part>)>> {
        let (index, event) = self.generations.next().await?;
        let reading = &mut self.readings[index];
        Some(match event {
            Event::Prompt(tokens) => Ok((index, reading.prompt(tokens))),
            Event::Token(token) => {
                let (mut parts, need) = reading.token(token);
                if need == Need::Nothing {
                    parts.extend(reading.enough());
                    self.generations.stop(index, ENOUGH);
                }
                Ok((index, parts))
            }
            Event::End(reason) => Ok((index, reading.end(reason))),
            Event::Failed(error) => Err(error),
        })
    }

    /// The usage of the generations that have ended, with all reasoning tokens so far.
    pub fn usage(&self) -> Usage {
        let reasoning = self.readings.iter().map(Reading::reasoning_tokens).sum();
        Usage { reasoning, ..self.generations.usage() }
    }

    /// The request's tally.
    pub fn tally(&self) -> &Tally {
        self.generations.tally()
    }

    /// How far the prompt of an answer is read that has not begun; `None` where there is no news.
    pub fn prefill(&mut self) -> Option<(usize, PrefillProgress)> {
        self.generations.prefill()
    }

    /// How far the prompt of answer `index` was read, which has begun; `None` once it has ended.
    pub fn prefill_of(&self, index: usize) -> Option<PrefillProgress> {
        self.generations.prefill_of(index)
    }

    /// How many answers there are.
    pub fn count(&self) -> usize {
        self.readings.len()
    }

    /// The usage so far, with that of generations that still run.
    pub fn progress(&self) -> Usage {
        self.generations.progress()
    }

    /// Reads every generation to its end.
    ///
    /// # Errors
    /// The first failure, which ends the others.
    pub async fn whole(mut self) -> Result<(Vec<Said>, Usage), ApiError> {
        let mut said: Vec<_> = self.readings.iter().map(|_| Said::default()).collect();
        while let Some(next) = self.next().await {
            let (index, parts) = next?;
            parts.into_iter().for_each(|part| said[index].add(part));
        }
        Ok((said, self.usage()))
    }
}
