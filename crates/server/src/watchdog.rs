//! The manager of services hears that loads take longer, and that engines go on.

use std::time::{Duration, Instant};

use inference_core::WeightsRead;

use crate::notify::Notifier;
use crate::pool::keeper::{Phase, Pool};
use crate::pool::loaded::Any;

/// Between two words while models are loaded, and the time that each of them asks for.
const EXTENDS: Duration = Duration::from_secs(10);
const LONGER: Duration = Duration::from_secs(60);

/// For a step, or for a load to come further. The manager kills a server for what takes longer,
/// with all its requests: `/health` only tells of that, and may do so earlier.
const HANGS: Duration = Duration::from_secs(600);

/// Tells `notifier` of the models of `pool` for ever. It falls silent while an engine has not
/// finished a step for ten minutes, or for a longer `stall`, or cannot be used any more.
pub async fn watch(notifier: &Notifier, pool: &Pool, stall: Duration) {
    let stall = stall.max(HANGS);
    let every = notifier.watchdog().map_or(EXTENDS, |watchdog| EXTENDS.min(watchdog / 2));
    let mut loads = Loads::new(Instant::now());
    loop {
        match pool.phase() {
            Phase::Loading if loads.go_on(progress(pool), Instant::now()) => {
                notifier.longer(LONGER);
            }
            Phase::Loading => {}
            Phase::Ready | Phase::Draining if notifier.watchdog().is_none() => {}
            Phase::Ready | Phase::Draining if goes_on(pool, stall) => notifier.alive(),
            Phase::Ready | Phase::Draining => {}
        }
        tokio::time::sleep(every).await;
    }
}

/// A model's state and the weights that its load has read.
type Progress = (&'static str, Option<WeightsRead>);

fn progress(pool: &Pool) -> Vec<Progress> {
    pool.reports().into_iter().map(|report| (report.state, report.progress)).collect()
}

/// Loads, and when they last came further.
struct Loads {
    seen: Vec<Progress>,
    moved: Instant,
}

impl Loads {
    fn new(now: Instant) -> Loads {
        Loads { seen: Vec::new(), moved: now }
    }

    /// Returns true when the loads, which are this far `now`, came further not long ago.
    fn go_on(&mut self, progress: Vec<Progress>, now: Instant) -> bool {
        if self.seen != progress {
            *self = Loads { seen: progress, moved: now };
        }
        now.saturating_duration_since(self.moved) < HANGS
    }
}

/// Returns true when every engine steps, and can be used.
fn goes_on(pool: &Pool, stall: Duration) -> bool {
    let has_fault = |model: Option<&Any>| model.and_then(Any::fault).is_some();
    let is_faulty = pool.reports().iter().any(|report| has_fault(report.model.as_ref()));
    pool.status().heartbeat_age < stall && !is_faulty
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use inference_core::WeightsRead;

    use super::Loads;

    #[test]
    fn loads_hang_that_come_no_further() {
        let began = Instant::now();
        let at = |minutes: u64| began + Duration::from_secs(60 * minutes);
        let weights = |read| vec![("loading", Some(WeightsRead { read, total: 9 }))];
        let mut loads = Loads::new(began);
        assert!(loads.go_on(weights(1), at(0)) && loads.go_on(weights(1), at(9)));
        assert!(loads.go_on(weights(2), at(9)) && loads.go_on(weights(2), at(18)));
        assert!(!loads.go_on(weights(2), at(19)));
        let both = || vec![("loaded", None), ("loading", None)];
        assert!(loads.go_on(both(), at(30)), "the next load began");
        assert!(!loads.go_on(both(), at(40)));
    }
}
