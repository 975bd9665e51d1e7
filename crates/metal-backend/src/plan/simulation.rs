//! Requests from their queue to their end, by the plan alone: nobody waits for ever, and memory is
//! enough.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::admission;
use super::batches::preempt;
use super::{Admission, Batch, Decoding, Kind, Memory, Need, Running, Spare, Waits};

/// Positions for which a row has room beside others.
const AHEAD: u64 = 8;
const FIXED: u64 = 10;

/// A request that waits or runs. Each position takes a byte.
#[derive(Clone, Copy, Debug)]
struct Request {
    number: u64,
    held: u64,
    left: u64,
}

impl Request {
    fn need(&self) -> Need {
        Need { least: self.held + self.left, soon: self.soon() }
    }

    fn soon(&self) -> u64 {
        self.held + self.left.min(AHEAD)
    }
}

/// The decisions of the plan in one simulation.
#[derive(Debug, Default)]
struct Outcome {
    /// The numbers of requests in the order in which they began, and ended.
    begun: Vec<u64>,
    ended: Vec<u64>,
    refused: Vec<u64>,
    turns: u64,
    /// How often a row was preempted.
    preempted: usize,
}

/// Lets all of `requests` come at once.
fn simulate(requests: &[Request], slots: usize, limit: u64) -> Outcome {
    let mut queue: VecDeque<Request> = requests.iter().copied().collect();
    let (mut again, mut rows) = (VecDeque::new(), Vec::<Request>::new());
    let mut outcome = Outcome::default();
    let bound = requests.iter().map(|request| request.left + 1).sum::<u64>();
    while !(queue.is_empty() && again.is_empty() && rows.is_empty()) {
        outcome.turns += 1;
        assert!(outcome.turns <= bound, "each turn computes a token: {outcome:?}");
        loop {
            let aside = rows.iter().map(Request::soon).sum();
            let memory = Memory { limit, left: limit, fixed: FIXED, idle: FIXED, rows: aside };
            let at = |request: &Request| Duration::from_secs(request.number);
            let waits = Waits {
                preempted: again.front().map(Request::need),
                request: queue.front().map(|request| (at(request), request.need())),
                ..Waits::default()
            };
            let running = Running { count: rows.len(), slots, ..Running::default() };
            match admission(&waits, running, memory, Spare::default()) {
                Admission::Begin(Kind::Preempted) => rows.extend(again.pop_front()),
                Admission::Begin(Kind::Request) => {
                    let request = queue.pop_front().expect("one waits");
                    outcome.begun.push(request.number);
                    rows.push(request);
                }
                Admission::Refuse(Kind::Request) => {
                    let request = queue.pop_front().expect("one waits");
                    assert!(request.need().least + FIXED > limit, "it would fit alone");
                    outcome.refused.push(request.number);
                }
                Admission::Rest => break,
                other => panic!("{other:?}"),
            }
        }
        let batch = |row: &Request| {
            let started = Duration::from_secs(row.number);
            Batch { slots: 1, rows: vec![Decoding { started, soon: row.soon() }], drafts: 0 }
        };
        let plan = preempt(rows.iter().map(batch).collect(), FIXED, limit);
        // A batch that is empty stays in its place until all rows have left.
        let mut left: Vec<Option<Request>> = rows.drain(..).map(Some).collect();
        for (index, _) in plan.rows {
            again.extend(left[index].take());
            outcome.preempted += 1;
        }
        rows = left.into_iter().flatten().collect();
        let aside: u64 = rows.iter().map(Request::soon).sum();
        assert!(rows.len() <= 1 || aside + FIXED <= limit, "{rows:?}");
        for row in &mut rows {
            row.held += 1;
            row.left -= 1;
        }
        outcome.ended.extend(rows.iter().filter(|row| row.left == 0).map(|row| row.number));
        rows.retain(|row| row.left > 0);
    }
    outcome
}

proptest! {
    #[test]
    fn all_requests_that_fit_alone_begin_in_order_and_end(
        sizes in prop::collection::vec((1_u64..60, 1_u64..80), 1..30),
        slots in 1_usize..8,
        limit in 20_u64..200,
    ) {
        let request = |(number, (held, left)): (u64, &(u64, u64))| Request {
            number,
            held: *held,
            left: *left,
        };
        let requests: Vec<Request> = (0..).zip(&sizes).map(request).collect();
        let outcome = simulate(&requests, slots, limit);
        let fits = |request: &&Request| request.need().least + FIXED <= limit;
        let fitting: Vec<u64> = requests.iter().filter(fits).map(|request| request.number).collect();
        prop_assert_eq!(&outcome.begun, &fitting);
        let mut ended = outcome.ended.clone();
        ended.sort_unstable();
        prop_assert_eq!(ended, fitting);
        prop_assert_eq!(outcome.begun.len() + outcome.refused.len(), requests.len());
    }
}

#[test]
fn rows_that_outgrow_the_memory_make_room_and_end_later() {
    let request = |number| Request { number, held: 5, left: 60 };
    let requests: Vec<Request> = (0..4).map(request).collect();
    let outcome = simulate(&requests, 4, FIXED + 100);
    assert!(outcome.preempted > 0, "{outcome:?}");
    // The oldest is never preempted.
    assert_eq!(outcome.ended[0], 0);
    assert_eq!(outcome.ended.len(), 4);
}
