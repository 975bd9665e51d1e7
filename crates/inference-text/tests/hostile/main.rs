//! Constraints that would cost too much: each is refused, or fails alone, within bounds of time and
//! memory, and nothing goes on behind it.
#![allow(clippy::unwrap_used, reason = "a fixture that fails is a test that fails")]

mod grammars;
mod regexes;
mod schemas;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use inference_core::{Constraint, Error};
use inference_text::Tokenizer;
use inference_text::constraint::{Constraints, Matcher};
use inference_text::json::to_value;

/// Tokens that are drawn of what is not refused.
const DRAWN: usize = 60;
/// Above the ids of the tokenizer.
const ROWS: u32 = 1100;
/// Seconds of processor time for one of them in a debug build on a slow processor. Each takes less
/// than 10 there, and what has no bound took more than 70.
const MOST_CPU: f64 = 25.0;

fn all() -> Vec<(String, Constraint)> {
    let named = |kind: &str, name: &str| format!("{kind}: {name}");
    let regexes = regexes::all().into_iter();
    let regexes = regexes.map(|(name, it)| (named("regex", name), Constraint::Regex(it)));
    let grammars = grammars::all().into_iter();
    let grammars = grammars.map(|(name, it)| (named("grammar", name), Constraint::Lark(it)));
    let schemas = schemas::all().into_iter();
    let schemas =
        schemas.map(|(name, it)| (named("schema", name), Constraint::JsonSchema(to_value(it))));
    regexes.chain(grammars).chain(schemas).collect()
}

fn constraints() -> Constraints {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers/qwen");
    let tokenizer = Tokenizer::from_dir(&folder).unwrap();
    let eos = tokenizer.eos_ids().iter().copied().collect();
    let size = tokenizer.vocab_size();
    Constraints::new(tokenizer, eos, size)
}

/// Seconds of processor time of this process; `None` where the system does not tell.
fn cpu() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

/// Bytes of memory that the process has; `None` where the system does not tell.
fn resident() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(sizes.split_whitespace().nth(1)?.parse::<u64>().ok()? * 4096)
}

/// Held by each test that measures the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws tokens until something ends it.
fn draw(mut matcher: Matcher) -> Result<(), Error> {
    let mut state = 1_u64;
    for _ in 0..DRAWN {
        let mask = matcher.mask()?;
        let ids: Vec<u32> = (0..ROWS).filter(|id| mask.allows(*id)).collect();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let Some(id) = ids.get((state >> 33) as usize % ids.len().max(1)) else { break };
        matcher.accept(*id);
        if matcher.is_complete() {
            break;
        }
    }
    Ok(())
}

#[test]
fn each_ends_within_bounds_and_leaves_nothing_running() {
    let _alone = alone();
    let constraints = constraints();
    let mut long = Vec::new();
    for (name, constraint) in all() {
        let before = cpu();
        let ended = constraints.matcher(&constraint).and_then(draw);
        if let Err(error) = ended {
            let is_its_own = matches!(error, Error::InvalidOption { option: "constraint", .. });
            assert!(is_its_own, "{name}: {error}");
        }
        let Some(used) = cpu().zip(before).map(|(after, before)| after - before) else { continue };
        if used > MOST_CPU {
            long.push(format!("{name}: {used} s"));
        }
    }
    assert!(long.is_empty(), "{}", long.join(", "));
    check_idle();
}

/// Seconds in which what nobody waits for any longer comes to its end.
const MOST_IDLE_AFTER: u64 = 15;

/// Checks that nothing goes on computing that nobody waits for. A compilation that was given up
/// ends by its own bounds, which a slow processor reaches later.
fn check_idle() {
    let mut used = Vec::new();
    for _ in 0..MOST_IDLE_AFTER {
        let Some(before) = cpu() else { return };
        thread::sleep(Duration::from_secs(1));
        used.push(cpu().unwrap() - before);
        if used.last().is_some_and(|used| *used < 0.2) {
            return;
        }
    }
    panic!("with nothing to do, these seconds of processor time were used in a second: {used:?}");
}

#[test]
fn two_hundred_at_once_leave_others_served_and_memory_given_back() {
    const AT_ONCE: usize = 200;
    let _alone = alone();
    let constraints = constraints();
    let honest = |number: usize| {
        let schema = serde_json::json!({
            "type": "object",
            "properties": {format!("city{number}"): {"type": "string"}, "age": {"type": "integer"}},
            "required": [format!("city{number}")],
        });
        constraints.matcher(&Constraint::JsonSchema(to_value(schema))).and_then(draw)
    };
    honest(0).unwrap();
    let before = resident();
    let hostile: Vec<_> = all().into_iter().cycle().take(AT_ONCE).collect();
    let mut waits = Vec::new();
    thread::scope(|scope| {
        let constraints = &constraints;
        let run = |constraint| scope.spawn(move || constraints.matcher(constraint).and_then(draw));
        let runs: Vec<_> = hostile.iter().map(|(_, constraint)| run(constraint)).collect();
        while runs.iter().any(|run| !run.is_finished()) {
            let started = Instant::now();
            honest(waits.len() + 1).unwrap();
            waits.push(started.elapsed().as_secs_f64());
            thread::sleep(Duration::from_millis(20));
        }
    });
    check_idle();
    waits.sort_by(f64::total_cmp);
    let (middle, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    let grown = resident().zip(before).map(|(after, before)| after.saturating_sub(before) >> 20);
    println!("{} others waited {middle:.3} s in the middle, {longest:.3} s at most", waits.len());
    println!("{grown:?} MiB more are held");
    // The target is 1 s in a release build; this one is slower, and other tests run beside it.
    assert!(longest < 8.0, "another one waited {longest} s");
    assert!(grown.is_none_or(|grown| grown < 512), "{grown:?} MiB more are held");
}

#[test]
fn the_expression_that_held_a_slot_for_ever_is_refused_at_once() {
    let constraints = constraints();
    let regex = Constraint::Regex(r"(\w{0,250}\s?){0,250}".into());
    for _ in 0..200 {
        let error = constraints.matcher(&regex).err().unwrap().to_string();
        assert!(error.contains("repeats too much"), "{error}");
    }
    assert!(constraints.matcher(&Constraint::Regex(r"\w{0,250}".into())).is_ok());
}
