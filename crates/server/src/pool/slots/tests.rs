//! Courses of events, and what the table makes of them.

use std::time::{Duration, Instant};

use inference_core::Error;

use super::super::models::LoadFailure;
use super::super::slot::{Counts, Stage, Ticket};
use super::{Effect, Slots};

const SECOND: Duration = Duration::from_secs(1);

/// A table whose effects are told as words: `measure 0`, `load 0`, `unload 0`, `grant 1`, `refuse
/// 1`.
struct Table {
    slots: Slots<usize>,
    now: Instant,
}

impl Table {
    /// Models of 10 bytes each, of which so many fit.
    fn of(models: usize, fit: u64) -> Table {
        Table::with(vec![false; models], fit, None)
    }

    fn with(pinned: Vec<bool>, fit: u64, idle: Option<Duration>) -> Table {
        Table { slots: Slots::new(pinned, 10 * fit, idle), now: Instant::now() }
    }

    fn after(&mut self, time: Duration) -> Instant {
        self.now += time;
        self.now
    }

    fn done(&mut self) -> Vec<String> {
        let word = |effect| match effect {
            Effect::Measure(index) => format!("measure {index}"),
            Effect::Load(index) => format!("load {index}"),
            Effect::Unload(index, _) => format!("unload {index}"),
            Effect::Grant(Ticket(ticket), ..) => format!("grant {ticket}"),
            Effect::Refuse(Ticket(ticket), _) => format!("refuse {ticket}"),
        };
        self.slots.effects().into_iter().map(word).collect()
    }

    fn waiting(&self) -> usize {
        self.slots.slots().iter().map(|slot| slot.waiters.len()).sum()
    }

    fn ask(&mut self, index: usize) -> Ticket {
        let now = self.after(SECOND);
        self.slots.ask(index, now)
    }

    fn measured(&mut self, index: usize) {
        let now = self.now;
        self.slots.measured(index, 10, now);
    }

    fn loaded(&mut self, index: usize) {
        let now = self.now;
        self.slots.loaded(index, index, None, now);
    }

    fn failed(&mut self, index: usize) {
        let (why, now) = (LoadFailure::Error(Error::Engine("no".into())), self.now);
        self.slots.failed(index, why, now);
    }

    fn released(&mut self, index: usize) {
        let now = self.after(SECOND);
        self.slots.released(index, now);
    }

    fn unloaded(&mut self, index: usize) {
        let now = self.now;
        self.slots.unloaded(index, now);
    }

    /// Loads this model for a request that is done at once.
    fn had(&mut self, index: usize) {
        self.ask(index);
        self.measured(index);
        self.loaded(index);
        self.released(index);
        self.done();
    }
}

#[test]
fn requests_for_one_model_share_one_load() {
    let mut table = Table::of(1, 1);
    assert!(table.slots.would_wait(0, table.now));
    table.ask(0);
    table.ask(0);
    assert_eq!(table.done(), ["measure 0"]);
    assert!(table.slots.is_loading(0));
    table.measured(0);
    table.ask(0);
    assert_eq!(table.done(), ["load 0"]);
    assert_eq!(table.waiting(), 3);
    table.loaded(0);
    assert_eq!(table.done(), ["grant 1", "grant 2", "grant 3"]);
    assert_eq!((table.slots.slots()[0].users(), table.waiting()), (3, 0));
    assert!(!table.slots.would_wait(0, table.now));
    table.ask(0);
    assert_eq!(table.done(), ["grant 4"]);
}

#[test]
fn loads_come_one_after_the_other_in_the_order_of_requests() {
    let mut table = Table::of(3, 3);
    for index in [2, 0, 1, 2] {
        table.ask(index);
    }
    assert_eq!(table.done(), ["measure 2"]);
    table.measured(2);
    table.loaded(2);
    assert_eq!(table.done(), ["load 2", "measure 0", "grant 1", "grant 4"]);
}

#[test]
fn the_least_recently_used_makes_room_and_what_is_in_use_stays() {
    let mut table = Table::of(4, 3);
    (0..3).for_each(|index| table.had(index));
    // Used again, so that 1 is the oldest one.
    table.ask(0);
    table.released(0);
    table.done();
    table.ask(3);
    table.measured(3);
    assert_eq!(table.done(), ["measure 3", "unload 1"]);
    // Its memory is there once it is closed.
    table.unloaded(1);
    assert_eq!(table.done(), ["load 3"]);
    table.loaded(3);
    // In use: 3 by its request, 2 by another. 0 is idle, however recently it was used.
    table.ask(2);
    table.ask(0);
    table.released(0);
    table.done();
    table.ask(1);
    table.measured(1);
    assert_eq!(table.done(), ["measure 1", "unload 0"]);
}

#[test]
fn where_all_are_in_use_the_oldest_takes_nothing_new_and_goes_when_it_is_done() {
    let mut table = Table::of(2, 1);
    table.ask(0);
    table.measured(0);
    table.loaded(0);
    table.done();
    table.ask(1);
    table.measured(1);
    assert_eq!(table.done(), ["measure 1"], "a model in use is not unloaded");
    // Else a model that is always busy would never let the other one in.
    assert!(table.slots.would_wait(0, table.now));
    table.ask(0);
    assert_eq!(table.done(), Vec::<String>::new());
    table.released(0);
    assert_eq!(table.done(), ["unload 0"]);
    table.unloaded(0);
    table.loaded(1);
    assert_eq!(table.done(), ["load 1", "measure 0", "grant 2"]);
    // And the other way round, so that both come to their turn.
    table.measured(0);
    table.released(1);
    assert_eq!(table.done(), ["unload 1"]);
}

#[test]
fn a_request_that_leaves_gives_its_place_back_and_ends_what_was_only_for_it() {
    let mut table = Table::of(2, 1);
    table.ask(0);
    table.measured(0);
    table.loaded(0);
    let leaves = table.ask(1);
    table.measured(1);
    let kept = table.ask(0);
    table.done();
    let now = table.now;
    table.slots.leave(leaves, now);
    // Nothing has to go any more, so that who waited for 0 gets it.
    assert_eq!(table.done(), [format!("grant {}", kept.0)]);
    assert!(!table.slots.is_loading(1));
    assert_eq!(table.waiting(), 0);
    // What was measured for nobody changes nothing.
    table.measured(1);
    table.slots.unmeasured(0, LoadFailure::Panicked, now);
    assert!(matches!(table.slots.slots()[0].stage, Stage::Loaded { .. }));
    assert_eq!(table.done(), Vec::<String>::new());
}

#[test]
fn a_load_that_nobody_waits_for_any_more_is_kept() {
    let mut table = Table::of(1, 1);
    let leaves = table.ask(0);
    table.measured(0);
    let now = table.now;
    table.slots.leave(leaves, now);
    table.loaded(0);
    table.done();
    assert!(matches!(table.slots.slots()[0].stage, Stage::Loaded { users: 0, .. }));
    table.ask(0);
    assert_eq!(table.done(), ["grant 2"]);
}

#[test]
fn a_failure_is_told_to_all_who_wait_and_again_until_it_is_time_to_try() {
    let mut table = Table::of(2, 1);
    table.ask(0);
    table.ask(0);
    table.ask(1);
    table.measured(0);
    table.done();
    table.failed(0);
    assert_eq!(table.done(), ["refuse 1", "refuse 2", "measure 1"], "others go on");
    table.ask(0);
    assert_eq!(table.done(), ["refuse 4"]);
    table.after(10 * SECOND);
    table.ask(0);
    table.failed(1);
    assert_eq!(table.done(), ["refuse 3", "measure 0"], "tried again");
    table.failed(0);
    table.done();
    // The second failure in a row is believed for longer.
    table.after(12 * SECOND);
    table.ask(0);
    assert_eq!(table.done(), ["refuse 6"]);
    table.after(8 * SECOND);
    table.ask(0);
    assert_eq!(table.done(), ["measure 0"]);
    table.measured(0);
    table.loaded(0);
    assert_eq!(table.slots.slots()[0].failures(), 0);
    let counts = Counts { loads: 1, failures: 2, unloads: 0 };
    assert_eq!(table.slots.slots()[0].counts, counts);
}

#[test]
fn what_never_fits_is_refused_with_the_numbers_and_unloads_nothing() {
    let mut table = Table::with(vec![true, false, false], 3, None);
    table.had(0);
    table.had(1);
    table.ask(2);
    let now = table.now;
    // 30 bytes in all, of which 10 stay.
    table.slots.measured(2, 21, now);
    let refused = table.slots.effects().pop();
    let Some(Effect::Refuse(_, failed)) = refused else { panic!("{refused:?}") };
    let LoadFailure::Error(Error::Memory { needed, available, .. }) = failed.why else {
        panic!("{failed:?}")
    };
    assert_eq!((needed, available), (21, 20));
    assert!(matches!(table.slots.slots()[1].stage, Stage::Loaded { .. }));
}

#[test]
fn what_is_idle_is_unloaded_when_it_is_time_and_what_is_pinned_stays() {
    let mut table = Table::with(vec![true, false, false], 3, Some(60 * SECOND));
    (0..3).for_each(|index| table.had(index));
    table.ask(2);
    table.done();
    let due = table.slots.next_tick().unwrap();
    table.slots.tick(due - SECOND);
    assert_eq!(table.done(), Vec::<String>::new());
    table.slots.tick(due + 60 * SECOND);
    assert_eq!(table.done(), ["unload 1"], "0 is pinned, and 2 in use");
    assert_eq!(table.slots.next_tick(), None);
    // One that asks meanwhile waits until it is closed, and has it loaded again.
    table.ask(1);
    assert_eq!(table.done(), Vec::<String>::new());
    table.unloaded(1);
    assert_eq!(table.done(), ["measure 1"]);
    table.released(2);
    assert_eq!(table.slots.next_tick(), Some(table.now + 60 * SECOND));
}

/// Whatever happens in whatever order: the memory holds, who uses a model has it, and nobody waits
/// for nothing.
#[test]
fn any_course_of_events_keeps_the_rules() {
    for seed in 1..=300_u64 {
        let mut table = Table::with(vec![seed % 2 == 0, false, false, false], 2, Some(5 * SECOND));
        let mut random = seed;
        let mut draw = move |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        let (mut work, mut waits, mut uses) = (Vec::new(), Vec::new(), Vec::new());
        for step in 0..2000 {
            // In the end nobody asks any more, and all that was begun is done.
            let is_over = step >= 300;
            match draw(6) {
                0 | 1 if !is_over => waits.push(table.ask(draw(4))),
                2 if !waits.is_empty() && !is_over => {
                    let now = table.now;
                    table.slots.leave(waits.swap_remove(draw(waits.len())), now);
                }
                3 if !uses.is_empty() => {
                    let index = uses.swap_remove(draw(uses.len()));
                    table.released(index);
                }
                4 => {
                    let now = table.after(SECOND);
                    table.slots.tick(now);
                }
                _ if !work.is_empty() => match work.swap_remove(draw(work.len())) {
                    Effect::Measure(index) if draw(16) == 0 => {
                        let now = table.now;
                        table.slots.unmeasured(index, LoadFailure::Panicked, now);
                    }
                    Effect::Measure(index) => table.measured(index),
                    Effect::Load(index) if draw(8) == 0 => table.failed(index),
                    Effect::Load(index) => table.loaded(index),
                    Effect::Unload(index, model) => {
                        assert!(!uses.contains(&index), "{seed}: {index} is in use");
                        assert_eq!(model, index);
                        table.unloaded(index);
                    }
                    other => panic!("{other:?}"),
                },
                _ => {}
            }
            for effect in table.slots.effects() {
                match effect {
                    Effect::Grant(ticket, index, model) => {
                        assert_eq!(model, index);
                        waits.retain(|waiter| *waiter != ticket);
                        uses.push(index);
                    }
                    Effect::Refuse(ticket, _) => waits.retain(|waiter| *waiter != ticket),
                    Effect::Unload(index, model) => {
                        assert!(!uses.contains(&index), "{seed}: {index} is in use");
                        work.push(Effect::Unload(index, model));
                    }
                    effect => work.push(effect),
                }
            }
            let loading = work.iter().filter(|w| matches!(w, Effect::Load(_))).count();
            let held: u64 = table.slots.slots().iter().map(|slot| slot.held()).sum();
            assert!(loading <= 1 && held + 10 * loading as u64 <= 20, "{seed}: {held}, {loading}");
            assert_eq!(table.waiting(), waits.len(), "{seed}");
            if waits.iter().len() > 0 {
                assert!(!work.is_empty() || !uses.is_empty(), "{seed}: nothing can happen");
            }
        }
        assert_eq!(waits.len(), 0, "{seed}: somebody waits");
    }
}

#[test]
fn a_model_that_was_removed_goes_once_nobody_uses_it() {
    let mut table = Table::with(vec![true], 2, None);
    table.slots.add(false);
    table.ask(0);
    table.measured(0);
    table.loaded(0);
    assert_eq!(table.done(), ["measure 0", "load 0", "grant 1"]);
    let now = table.now;
    table.slots.remove(0, now);
    assert_eq!(table.done(), Vec::<String>::new(), "it is in use");
    table.slots.released(0, now);
    assert_eq!(table.done(), ["unload 0"]);
    table.slots.unloaded(0, now);
    // One that is removed while it is loaded is handed to who waited for it.
    table.ask(1);
    table.measured(1);
    table.slots.remove(1, now);
    table.loaded(1);
    assert_eq!(table.done(), ["measure 1", "load 1", "grant 2"]);
    table.slots.released(1, now);
    assert_eq!(table.done(), ["unload 1"]);
}
