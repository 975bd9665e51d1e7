//! Who begins next, who waits, and who is refused.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::memory::{Fit, Memory, Need, Spare};

/// The first one of each kind that waits to begin. Times are those at which they were queued, since
/// any one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    /// A preempted row, or one whose positions are encoded otherwise now.
    pub preempted: Option<Need>,
    pub request: Option<(Duration, Need)>,
    /// It asks for memory batch by batch.
    pub classification: Option<Duration>,
    /// With all bytes that it takes.
    pub inspection: Option<(Duration, u64)>,
}

/// The requests that run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Running {
    /// Rows that prefill or decode, classifications and inspections.
    pub count: usize,
    /// How many of them may run together.
    pub slots: usize,
    /// One inspection runs at a time.
    pub is_inspecting: bool,
    /// A classification's batch waits for memory: it came before all that waits to begin.
    pub batch_waits: bool,
}

/// Which of those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Preempted,
    Request,
    Classification,
    Inspection,
}

/// The next action of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Admission {
    /// Lets the first one of a kind begin.
    Begin(Kind),
    /// Ends the first one of a kind with an error.
    Refuse(Kind),
    /// Forgets some prefixes of earlier requests, then asks again.
    ForgetPrefixes,
    /// Gives up the slots that rows left, then asks again.
    GiveUpSlots,
    /// Nothing, until something ends.
    Rest,
}

/// Decides the next action of admission.
pub(crate) fn admission(
    waits: &Waits,
    running: Running,
    memory: Memory,
    spare: Spare,
) -> Admission {
    if running.count >= running.slots || running.batch_waits {
        return Admission::Rest;
    }
    let Some((kind, fit)) = first(waits, running, memory) else { return Admission::Rest };
    let fit = match (kind, fit) {
        // What was admitted once is not refused: at the latest it goes on when it is alone.
        (Kind::Preempted, Fit::Never) if running.count == 0 => Fit::Now,
        (Kind::Preempted, Fit::Never) => Fit::Later,
        (_, fit) => fit,
    };
    match fit {
        Fit::Now => Admission::Begin(kind),
        _ if spare.prefixes => Admission::ForgetPrefixes,
        _ if spare.slots => Admission::GiveUpSlots,
        Fit::Later => Admission::Rest,
        Fit::Never => Admission::Refuse(kind),
    }
}

/// Who is next, and whether it fits.
fn first(waits: &Waits, running: Running, memory: Memory) -> Option<(Kind, Fit)> {
    if let Some(need) = waits.preempted {
        return Some((Kind::Preempted, memory.fit(need)));
    }
    let request = waits.request.map(|(at, need)| (at, Kind::Request, memory.fit(need)));
    let classification = waits.classification.map(|at| (at, Kind::Classification, Fit::Now));
    let inspection = waits
        .inspection
        .filter(|_| !running.is_inspecting)
        .map(|(at, bytes)| (at, Kind::Inspection, memory.fit_whole(bytes, running.count > 0)));
    let all = [request, classification, inspection].into_iter().flatten();
    all.min_by_key(|(at, ..)| *at).map(|(_, kind, fit)| (kind, fit))
}

/// Decides on the next batch of a classification that runs, which takes so many bytes.
pub(crate) fn begins_beside(
    bytes: u64,
    others_run: bool,
    memory: Memory,
    spare: Spare,
) -> Admission {
    match memory.fit_whole(bytes, others_run) {
        Fit::Now => Admission::Begin(Kind::Classification),
        _ if spare.prefixes => Admission::ForgetPrefixes,
        Fit::Later => Admission::Rest,
        Fit::Never => Admission::Refuse(Kind::Classification),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FITS: Need = Need { least: 10, soon: 10 };
    const LATER: Need = Need { least: 50, soon: 50 };
    const NEVER: Need = Need { least: 500, soon: 500 };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn ask(waits: Waits, count: usize, spare: Spare) -> Admission {
        let memory = Memory { limit: 100, left: 100, fixed: 20, idle: 20, rows: 20 * count as u64 };
        admission(&waits, Running { count, slots: 4, ..Running::default() }, memory, spare)
    }

    #[test]
    fn what_came_first_begins_first_and_what_was_preempted_before_all() {
        let waits = |preempted: bool, request, classification, inspection| Waits {
            preempted: preempted.then_some(FITS),
            request: Some((at(request), FITS)),
            classification: Some(at(classification)),
            inspection: Some((at(inspection), 10)),
        };
        let cases = [
            (waits(true, 1, 2, 3), Kind::Preempted),
            (waits(false, 1, 2, 3), Kind::Request),
            (waits(false, 2, 1, 3), Kind::Classification),
            (waits(false, 3, 2, 1), Kind::Inspection),
            // Of one time: a request, a classification, an inspection.
            (waits(false, 1, 1, 1), Kind::Request),
            (waits(false, 2, 1, 1), Kind::Classification),
        ];
        for (waits, kind) in cases {
            assert_eq!(ask(waits, 1, Spare::default()), Admission::Begin(kind), "{waits:?}");
        }
        assert_eq!(ask(Waits::default(), 0, Spare::default()), Admission::Rest);
        // One inspection at a time: the next one lets others pass.
        let running = Running { count: 1, slots: 4, is_inspecting: true, batch_waits: false };
        let memory = Memory { limit: 100, left: 100, fixed: 0, idle: 0, rows: 0 };
        let next = |waits| admission(&waits, running, memory, Spare::default());
        assert_eq!(next(waits(false, 3, 2, 1)), Admission::Begin(Kind::Classification));
        assert_eq!(
            next(Waits { inspection: Some((at(1), 0)), ..Waits::default() }),
            Admission::Rest
        );
    }

    #[test]
    fn nothing_begins_without_a_slot_or_before_a_batch_that_waits() {
        let waits = Waits { request: Some((at(1), FITS)), ..Waits::default() };
        let memory = Memory { limit: 100, left: 100, fixed: 0, idle: 0, rows: 0 };
        let next = |count, batch_waits| {
            let running = Running { count, slots: 2, is_inspecting: false, batch_waits };
            admission(&waits, running, memory, Spare { prefixes: true, slots: true })
        };
        assert_eq!(next(1, false), Admission::Begin(Kind::Request));
        assert_eq!(next(2, false), Admission::Rest);
        assert_eq!(next(1, true), Admission::Rest);
    }

    #[test]
    fn what_does_not_fit_waits_and_what_never_fits_is_refused_once_nothing_is_to_spare() {
        let request = |need| Waits { request: Some((at(1), need)), ..Waits::default() };
        let inspection = |bytes| Waits { inspection: Some((at(1), bytes)), ..Waits::default() };
        let preempted = |need| Waits { preempted: Some(need), ..Waits::default() };
        let cases = [
            (request(LATER), 2, Admission::Rest),
            (request(NEVER), 0, Admission::Refuse(Kind::Request)),
            (request(NEVER), 2, Admission::Refuse(Kind::Request)),
            (inspection(50), 2, Admission::Rest),
            (inspection(500), 2, Admission::Rest),
            (inspection(500), 0, Admission::Refuse(Kind::Inspection)),
            (preempted(LATER), 2, Admission::Rest),
            (preempted(NEVER), 2, Admission::Rest),
        ];
        for (waits, count, expected) in cases {
            assert_eq!(ask(waits, count, Spare::default()), expected, "{waits:?}");
            let both = Spare { prefixes: true, slots: true };
            assert_eq!(ask(waits, count, both), Admission::ForgetPrefixes, "{waits:?}");
            let slots = Spare { prefixes: false, slots: true };
            assert_eq!(ask(waits, count, slots), Admission::GiveUpSlots, "{waits:?}");
        }
        // A row that began before is never refused.
        let alone = ask(preempted(NEVER), 0, Spare::default());
        assert_eq!(alone, Admission::Begin(Kind::Preempted));
    }

    #[test]
    fn a_batch_waits_for_others_and_is_refused_alone() {
        let memory = Memory { limit: 100, left: 100, fixed: 20, idle: 20, rows: 20 };
        let (none, prefixes) = (Spare::default(), Spare { prefixes: true, slots: true });
        let begin = |bytes, others, spare| begins_beside(bytes, others, memory, spare);
        assert_eq!(begin(60, true, prefixes), Admission::Begin(Kind::Classification));
        assert_eq!(begin(61, false, prefixes), Admission::ForgetPrefixes);
        assert_eq!(begin(61, true, none), Admission::Rest);
        assert_eq!(begin(61, false, none), Admission::Refuse(Kind::Classification));
    }
}
