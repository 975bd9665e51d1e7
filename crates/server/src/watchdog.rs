//! The manager of services hears that loads take longer, and that engines go on.

use std::time::Duration;

use crate::notify::Notifier;
use crate::pool::keeper::{Phase, Pool};
use crate::pool::loaded::Any;

/// Between two words while models are loaded, and the time that each of them asks for.
const EXTENDS: Duration = Duration::from_secs(10);
const LONGER: Duration = Duration::from_secs(60);

/// Tells `notifier` of the models of `pool` for ever. It falls silent while an engine has not
/// finished a step for `stall`, or cannot be used any more.
pub async fn watch(notifier: &Notifier, pool: &Pool, stall: Duration) {
    let every = notifier.watchdog().map_or(EXTENDS, |watchdog| EXTENDS.min(watchdog / 2));
    loop {
        match pool.phase() {
            Phase::Loading => notifier.longer(LONGER),
            Phase::Ready | Phase::Draining if notifier.watchdog().is_none() => {}
            Phase::Ready | Phase::Draining if goes_on(pool, stall) => notifier.alive(),
            Phase::Ready | Phase::Draining => {}
        }
        tokio::time::sleep(every).await;
    }
}

/// Returns true when every engine steps, and can be used.
fn goes_on(pool: &Pool, stall: Duration) -> bool {
    let has_fault = |model: Option<&Any>| model.and_then(Any::fault).is_some();
    let is_faulty = pool.reports().iter().any(|report| has_fault(report.model.as_ref()));
    pool.status().heartbeat_age < stall && !is_faulty
}
