//! Early ends of a run: Ctrl-C and SIGTERM, of which a second one ends the program, and a timeout.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use inference_core::CancelToken;
use inference_server::hangup_is_ignored;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::failure::{Failure, INTERRUPTED, Result};

/// How long a cancelled generation may take to end by itself: the engine looks up only between
/// prefill chunks, and a large one is not worth waiting for.
const GRACE: Duration = Duration::from_millis(1500);

/// Switches the bracketed paste of a line editor off.
const PASTE_OFF: &[u8] = b"\x1b[?2004l\r\n";

/// The program's signal handling, from [`Interrupt::install`] on.
#[derive(Clone)]
pub struct Interrupt {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    running: Option<Running>,
    /// How many generations were watched, which numbers them.
    watched: u64,
    /// Signals that came here, and those of which `ml launch` told: the first rank may get both of
    /// one.
    came: u64,
    told: u64,
    /// SIGTERM or SIGHUP came: the program is to end after what runs.
    leaving: bool,
    /// The terminal as it was before a line editor changed it.
    terminal: Option<Termios>,
}

impl State {
    /// Counts a signal, and returns true unless it came before by the other way.
    fn is_news(&mut self, signal: i32) -> bool {
        let before = self.came.max(self.told);
        match signal {
            SIGUSR1 | SIGUSR2 => self.told += 1,
            _ => self.came += 1,
        }
        self.came.max(self.told) > before
    }
}

struct Running {
    number: u64,
    cancel: CancelToken,
    fired: bool,
    then: Then,
}

/// The step after Ctrl-C has ended a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The program ends, at the latest after a moment of grace.
    Leave,
    /// The next turn; a generation that ends late is waited for.
    Stay,
}

impl Interrupt {
    /// Takes over SIGINT, SIGTERM and, unless it is ignored, SIGHUP. While nothing is watched, they
    /// end the program at once with exit code 130. By SIGUSR1 and SIGUSR2, `ml launch` tells the
    /// first rank of a SIGINT and of the others.
    ///
    /// # Errors
    /// The system's, when it refuses the handlers or the thread.
    pub fn install() -> Result<Self> {
        let failed = |error: io::Error| Failure::Other(format!("signal handling: {error}"));
        let interrupt = Interrupt { state: Arc::default() };
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1, SIGUSR2]).map_err(failed)?;
        if !hangup_is_ignored() {
            signals.add_signal(SIGHUP).map_err(failed)?;
        }
        let handler = interrupt.clone();
        thread::Builder::new()
            .name("signals".into())
            .spawn(move || signals.forever().for_each(|signal| handler.handle(signal)))
            .map_err(failed)?;
        Ok(interrupt)
    }

    /// From now on and until the guard is dropped, the first signal cancels `cancel`.
    pub fn watch(&self, cancel: &CancelToken, then: Then) -> Watch<'_> {
        let mut state = self.lock();
        state.watched += 1;
        let number = state.watched;
        state.running = Some(Running { number, cancel: cancel.clone(), fired: false, then });
        Watch { interrupt: self }
    }

    /// Keeps the terminal's present settings, to restore them when a signal ends the program.
    pub fn keep_terminal(&self) {
        if io::stdin().is_terminal() {
            self.lock().terminal = tcgetattr(io::stdin()).ok();
        }
    }

    /// Returns true when a signal asked the whole program to end.
    pub fn leaving(&self) -> bool {
        self.lock().leaving
    }

    fn handle(&self, signal: i32) {
        let mut state = self.lock();
        state.leaving |= signal != SIGINT && signal != SIGUSR1;
        if !state.is_news(signal) {
            return;
        }
        let leaving = state.leaving;
        let Some(running) = state.running.as_mut().filter(|running| !running.fired) else {
            return leave(&state);
        };
        running.fired = true;
        running.cancel.cancel();
        if running.then == Then::Leave || leaving {
            let number = running.number;
            let interrupt = self.clone();
            thread::spawn(move || interrupt.leave_if_still_running(number));
        }
    }

    fn leave_if_still_running(&self, number: u64) {
        thread::sleep(GRACE);
        let state = self.lock();
        if state.running.as_ref().is_some_and(|running| running.number == number) {
            leave(&state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the process without destructors: an engine in the middle of a step cannot run them.
/// Output was flushed when it was printed.
fn leave(state: &State) {
    if let Some(terminal) = &state.terminal {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, terminal);
        let _ = io::stderr().write_all(PASTE_OFF);
    } else if io::stderr().is_terminal() {
        // The shell's prompt shall not follow a spinner or half an answer on the same line.
        let _ = io::stderr().write_all(b"\n");
    }
    low_level::exit(INTERRUPTED.into());
}

/// The time in which a signal cancels a generation; see [`Interrupt::watch`].
pub struct Watch<'a> {
    interrupt: &'a Interrupt,
}

impl Watch<'_> {
    /// Returns true when a signal has cancelled the generation.
    pub fn fired(&self) -> bool {
        self.interrupt.lock().running.as_ref().is_some_and(|running| running.fired)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.interrupt.lock().running = None;
    }
}

/// `cancel`, which also fires after `timeout`, counted from now.
pub fn with_timeout(cancel: &CancelToken, timeout: Option<Duration>) -> CancelToken {
    match timeout.and_then(|timeout| Instant::now().checked_add(timeout)) {
        Some(deadline) => cancel.and_deadline(deadline),
        None => cancel.clone(),
    }
}

/// Why a run ended before `goal`: a signal, or `timeout`.
pub fn ended_early(interrupted: bool, timeout: Option<Duration>, goal: &str) -> Failure {
    match timeout {
        Some(timeout) if !interrupted => Failure::Other(format!(
            "stopped after {} s, before {goal}: raise --timeout",
            timeout.as_secs_f64()
        )),
        _ => Failure::Interrupted,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use inference_core::CancelToken;
    use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

    use super::{Interrupt, State, Then, ended_early, with_timeout};
    use crate::failure::Failure;

    #[test]
    fn the_first_signal_cancels_what_is_watched() {
        let interrupt = Interrupt { state: Arc::default() };
        let cancel = CancelToken::new();
        let watch = interrupt.watch(&cancel, Then::Stay);
        assert!(!watch.fired());
        interrupt.handle(SIGINT);
        assert!(watch.fired());
        assert!(cancel.is_cancelled());
        assert!(!interrupt.leaving());
    }

    #[test]
    fn sigterm_also_asks_the_program_to_leave() {
        let interrupt = Interrupt { state: Arc::default() };
        let cancel = CancelToken::new();
        {
            let _watch = interrupt.watch(&cancel, Then::Stay);
            interrupt.handle(SIGTERM);
        }
        assert!(cancel.is_cancelled());
        assert!(interrupt.leaving());
    }

    #[test]
    fn a_signal_that_comes_both_ways_is_one() {
        let mut state = State::default();
        assert_eq!([SIGINT, SIGUSR1].map(|signal| state.is_news(signal)), [true, false]);
        assert_eq!([SIGUSR2, SIGTERM].map(|signal| state.is_news(signal)), [true, false]);
        // One that came to the launcher alone.
        assert!(state.is_news(SIGUSR2) && state.is_news(SIGUSR2));
    }

    #[test]
    fn ctrl_c_and_a_timeout_end_differently() {
        let timeout = Some(Duration::from_millis(1500));
        assert!(matches!(ended_early(true, timeout, "it ended"), Failure::Interrupted));
        assert!(matches!(ended_early(true, None, "it ended"), Failure::Interrupted));
        let failure = ended_early(false, timeout, "it ended").to_string();
        assert_eq!(failure, "stopped after 1.5 s, before it ended: raise --timeout");
    }

    #[test]
    fn a_timeout_leaves_the_token_itself_alone() {
        let cancel = CancelToken::new();
        let timed = with_timeout(&cancel, Some(Duration::from_nanos(1)));
        std::thread::sleep(Duration::from_millis(1));
        assert!(timed.is_cancelled() && !cancel.is_cancelled());
        cancel.cancel();
        assert!(with_timeout(&cancel, None).is_cancelled());
    }
}
