//! From the times of requests to the figures of a load.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::drive::{Answered, Record, Records};
use crate::options::Load;

/// Figures of one load.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Round {
    /// `c8` for eight clients, `r2.5` for two and a half requests a second.
    pub test: String,
    /// Clients at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<usize>,
    /// Requests a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Requests that were sent.
    pub requests: usize,
    /// Of these, the ones without a whole answer, by kind; no figure below counts them.
    pub errors: BTreeMap<String, usize>,
    /// The first error of each kind.
    pub error_messages: BTreeMap<String, String>,
    /// From the first request to the end of the last one, failed ones included.
    pub seconds: f64,
    /// Whole answers a second.
    pub requests_per_second: f64,
    /// Tokens of all prompts that were answered.
    pub prompt_tokens: usize,
    /// Of these, the ones that the server took from a cache, where it tells.
    pub cached_prompt_tokens: usize,
    /// Tokens of all answers.
    pub output_tokens: usize,
    /// Answers' tokens a second, over `seconds`.
    pub output_tokens_per_second: f64,
    /// Prompts' and answers' tokens a second, over `seconds`.
    pub total_tokens_per_second: f64,
    /// From a request to its first text.
    pub time_to_first_token_seconds: Option<Spread>,
    /// From a frame with text to the next one of the same answer.
    pub inter_token_latency_seconds: Option<Spread>,
    /// From a request to `[DONE]`.
    pub request_seconds: Option<Spread>,
    /// The most requests under way at one time.
    pub most_at_once: usize,
    /// Answers that are shorter or longer than was asked, where the length is fixed.
    pub other_lengths: usize,
    /// Answers without any text, which have no time to the first token.
    pub without_text: usize,
    /// How late the measurement's own threads were, 99 of 100 times; all times may be too long by
    /// it.
    pub client_late_p99_seconds: f64,
}

/// The middle and the slow end of times, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// Half of them are shorter.
    pub p50: f64,
    /// All but a twentieth are shorter.
    pub p95: f64,
    /// All but a hundredth are shorter.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Spread {
    /// The spread of `times`; `None` where there are none.
    pub fn of(mut times: Vec<Duration>) -> Option<Spread> {
        times.sort_unstable();
        let max = times.last()?.as_secs_f64();
        let at =
            |share: f64| times[((times.len() - 1) as f64 * share).round() as usize].as_secs_f64();
        let sum: f64 = times.iter().map(Duration::as_secs_f64).sum();
        let mean = sum / times.len() as f64;
        Some(Spread { mean, p50: at(0.5), p95: at(0.95), p99: at(0.99), max })
    }
}

/// Lengths that are known before requests are sent.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Tokens of a prompt, for answers that do not tell.
    pub prompt_tokens: usize,
    /// Tokens of an answer, where it is fixed.
    pub output_tokens: Option<usize>,
}

impl Round {
    /// The figures of `records`, which came under `load`.
    pub fn of(load: Load, records: &Records, expected: Expected) -> Round {
        let requests = &records.requests;
        let mut round = Round {
            requests: requests.len(),
            most_at_once: most_at_once(requests),
            client_late_p99_seconds: Spread::of(records.late.clone()).map_or(0.0, |late| late.p99),
            ..Round::default()
        };
        match load {
            Load::Clients(count) => {
                (round.test, round.clients) = (format!("c{count}"), Some(count));
            }
            Load::Rate(rate) => (round.test, round.rate) = (format!("r{rate}"), Some(rate)),
        }
        let (mut firsts, mut gaps, mut wholes) = (Vec::new(), Vec::new(), Vec::new());
        for record in requests {
            match &record.outcome {
                Err(error) => {
                    *round.errors.entry(error.kind()).or_default() += 1;
                    let message = || error.to_string();
                    round.error_messages.entry(error.kind()).or_insert_with(message);
                }
                Ok(answered) => {
                    round.add(answered, expected);
                    wholes.push(record.ended.saturating_duration_since(record.began));
                    let first = answered.texts.first();
                    firsts.extend(first.map(|at| at.saturating_duration_since(record.began)));
                    gaps.extend(answered.texts.windows(2).map(|pair| pair[1] - pair[0]));
                }
            }
        }
        let answers = wholes.len();
        round.time_to_first_token_seconds = Spread::of(firsts);
        round.inter_token_latency_seconds = Spread::of(gaps);
        round.request_seconds = Spread::of(wholes);
        round.seconds = seconds(requests);
        if round.seconds > 0.0 {
            let each = |count: usize| count as f64 / round.seconds;
            round.requests_per_second = each(answers);
            round.output_tokens_per_second = each(round.output_tokens);
            round.total_tokens_per_second = each(round.output_tokens + round.prompt_tokens);
        }
        round
    }

    fn add(&mut self, answered: &Answered, expected: Expected) {
        let texts = answered.texts.len();
        let (prompt, output) = match answered.usage {
            Some(usage) => (usage.prompt_tokens, usage.completion_tokens),
            None => (expected.prompt_tokens, texts),
        };
        self.prompt_tokens += prompt;
        self.output_tokens += output;
        self.cached_prompt_tokens += answered.usage.map_or(0, |usage| usage.cached());
        self.without_text += usize::from(texts == 0);
        self.other_lengths += usize::from(expected.output_tokens.is_some_and(|n| n != output));
    }
}

/// From the first request to the last end.
fn seconds(requests: &[Record]) -> f64 {
    let began = requests.iter().map(|record| record.began).min();
    let ended = requests.iter().map(|record| record.ended).max();
    began.zip(ended).map_or(0.0, |(began, ended)| (ended - began).as_secs_f64())
}

fn most_at_once(requests: &[Record]) -> usize {
    let ends = requests.iter().map(|record| (record.ended, false));
    let begins = requests.iter().map(|record| (record.began, true));
    // At one moment an end comes before a beginning.
    let mut changes: Vec<(Instant, bool)> = ends.chain(begins).collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0_usize, 0);
    for (_, begins) in changes {
        now = if begins { now + 1 } else { now.saturating_sub(1) };
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Expected, Round, Spread};
    use crate::answer::read;
    use crate::drive::{Answered, Record, Records};
    use crate::error::Error;
    use crate::options::Load;

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn the_spread_is_the_middle_and_the_slow_end() {
        let spread = Spread::of((1..=101).map(milliseconds).collect()).unwrap();
        let close = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}");
        close(spread.mean, 0.051);
        close(spread.p50, 0.051);
        close(spread.p95, 0.096);
        close(spread.p99, 0.1);
        close(spread.max, 0.101);
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn figures_follow_from_times_and_usage() {
        let start = Instant::now();
        let at = |time: u64| start + milliseconds(time);
        let usage = r#"{"usage":{"prompt_tokens":20,"completion_tokens":4,
            "prompt_tokens_details":{"cached_tokens":6}}}"#;
        let answer = |texts: &[u64], usage| Answered {
            texts: texts.iter().map(|time| at(*time)).collect(),
            usage,
        };
        let usage = read(usage.as_bytes()).unwrap().usage;
        let one = |began, ended, outcome| Record { began: at(began), ended: at(ended), outcome };
        let records = Records {
            requests: vec![
                one(0, 1000, Ok(answer(&[100, 200, 400], usage))),
                one(500, 2000, Ok(answer(&[800, 1000], None))),
                one(600, 700, Err(Error::Unfinished { texts: 2 })),
                one(1000, 1500, Ok(answer(&[], None))),
            ],
            late: vec![milliseconds(1)],
        };
        let expected = Expected { prompt_tokens: 10, output_tokens: Some(4) };
        let round = Round::of(Load::Clients(3), &records, expected);
        assert_eq!((round.test.as_str(), round.requests, round.seconds), ("c3", 4, 2.0));
        assert_eq!(round.errors, [("no [DONE]".to_owned(), 1)].into());
        assert_eq!((round.prompt_tokens, round.output_tokens), (40, 6));
        assert_eq!((round.cached_prompt_tokens, round.most_at_once), (6, 3));
        assert_eq!((round.other_lengths, round.without_text), (2, 1));
        assert_eq!((round.output_tokens_per_second, round.total_tokens_per_second), (3.0, 23.0));
        assert_eq!(round.requests_per_second, 1.5);
        let first = round.time_to_first_token_seconds.unwrap();
        assert_eq!((first.p50, first.max), (0.3, 0.3));
        let gaps = round.inter_token_latency_seconds.unwrap();
        assert_eq!((gaps.p50, gaps.max), (0.2, 0.2));
        assert_eq!(round.client_late_p99_seconds, 0.001);
    }
}
