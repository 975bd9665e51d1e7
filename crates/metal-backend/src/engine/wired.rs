//! Wired memory: on Metal, what a model needs stays resident while it works, so that the system
//! does not page it out.
//!
//! The limit is one of the process. Models that work at the same time share it, and what was set
//! before them is set again once none works.

use std::sync::{Mutex, PoisonError};

use inference_core::Error;
use mlx_ffi::{Device, memory};

use crate::error::Result;

/// Sets the process's limit and returns the one before.
type Set = fn(usize) -> mlx_ffi::Result<usize>;

/// The wired memory of the models that work in this process.
static PROCESS: Mutex<Wired> = Mutex::new(Wired::new(memory::set_wired_limit));

/// The limit that the models of a process share.
struct Wired {
    set: Set,
    /// Bytes of each model that works, by its number.
    working: Vec<(u64, u64)>,
    numbers: u64,
    /// The limit before the first model worked.
    before: usize,
}

impl Wired {
    const fn new(set: Set) -> Wired {
        Wired { set, working: Vec::new(), numbers: 0, before: 0 }
    }

    /// Takes note of a model that works with so many bytes, and of the most that may be wired. Its
    /// number.
    fn begin(&mut self, bytes: u64, most: u64) -> mlx_ffi::Result<u64> {
        let all: u64 = self.working.iter().map(|(_, bytes)| bytes).sum();
        let previous = (self.set)(all.saturating_add(bytes).min(most) as usize)?;
        if self.working.is_empty() {
            self.before = previous;
        }
        self.numbers += 1;
        self.working.push((self.numbers, bytes));
        Ok(self.numbers)
    }

    /// Takes note that a model does not work any more.
    fn end(&mut self, number: u64, most: u64) {
        self.working.retain(|(other, _)| *other != number);
        let all: u64 = self.working.iter().map(|(_, bytes)| bytes).sum();
        let limit = match self.working.is_empty() {
            true => self.before,
            false => all.min(most) as usize,
        };
        // A limit that stays is none of a request's.
        let _ = (self.set)(limit);
    }
}

/// A model's share of what is wired.
#[derive(Debug)]
pub(crate) struct WiredShare {
    bytes: u64,
    /// Bytes that the device recommends to stay within; nothing is wired where it recommends none.
    working_set: Option<u64>,
    /// The number under which it works.
    number: Option<u64>,
}

impl WiredShare {
    /// That of a model which `needs` so many bytes on `device`, unless the user `asks` for another
    /// one.
    ///
    /// # Errors
    /// More than the device recommends; those of MLX.
    pub fn of(device: Device, asked: Option<u64>, needs: u64) -> Result<WiredShare> {
        let working_set = match device {
            Device::Cpu => None,
            Device::Gpu => device.info()?.recommended_working_set,
        };
        Ok(WiredShare { bytes: share(asked, needs, working_set)?, working_set, number: None })
    }

    /// The notice to users that `wired_limit` has no effect, where it is `asked` for in vain.
    pub fn notice(&self, asked: Option<u64>) -> Option<String> {
        let is_told = asked.is_some_and(|bytes| bytes > 0) && self.working_set.is_none();
        is_told.then(|| "wired_limit: nothing is wired, which only Metal can".to_owned())
    }

    /// Wires it, unless it is.
    pub fn begin(&mut self) {
        if self.number.is_some() || self.bytes == 0 {
            return;
        }
        let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        // Without it the model works as well as before.
        self.number = process.begin(self.bytes, self.working_set.unwrap_or(0)).ok();
    }

    /// Sets the limit back, where it is wired.
    pub fn end(&mut self) {
        if let Some(number) = self.number.take() {
            let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
            process.end(number, self.working_set.unwrap_or(0));
        }
    }
}

impl Drop for WiredShare {
    fn drop(&mut self) {
        self.end();
    }
}

/// Bytes to wire of a model which `needs` so many, where the user may have `asked` for others.
fn share(asked: Option<u64>, needs: u64, working_set: Option<u64>) -> Result<u64, Error> {
    match (asked, working_set) {
        (_, None) => Ok(0),
        (Some(bytes), Some(most)) if bytes > most => Err(Error::InvalidOption {
            option: "wired_limit",
            reason: format!(
                "{bytes} bytes are more than the {most} that the device recommends to stay within"
            ),
        }),
        (asked, Some(most)) => Ok(asked.unwrap_or(needs).min(most)),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static LIMITS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }

    fn recorded(limit: usize) -> mlx_ffi::Result<usize> {
        LIMITS.with_borrow_mut(|limits| {
            let before = limits.last().copied().unwrap_or(7);
            limits.push(limit);
            Ok(before)
        })
    }

    #[test]
    fn models_that_work_together_share_the_limit_and_the_last_one_sets_it_back() {
        let mut wired = Wired::new(recorded);
        let first = wired.begin(40, 100).expect("a limit");
        let second = wired.begin(30, 100).expect("a limit");
        let third = wired.begin(50, 100).expect("a limit");
        wired.end(first, 100);
        wired.end(third, 100);
        wired.end(second, 100);
        let again = wired.begin(10, 100).expect("a limit");
        wired.end(again, 100);
        LIMITS.with_borrow(|limits| assert_eq!(*limits, [40, 70, 100, 80, 30, 7, 10, 7]));
    }

    #[test]
    fn a_model_wires_what_it_needs_within_the_working_set_or_what_is_asked_for() {
        assert_eq!(share(None, 50, Some(100)).expect("fits"), 50);
        assert_eq!(share(None, 150, Some(100)).expect("fits"), 100);
        assert_eq!(share(Some(20), 150, Some(100)).expect("fits"), 20);
        assert_eq!(share(Some(0), 150, Some(100)).expect("fits"), 0);
        assert_eq!(share(Some(500), 150, None).expect("fits"), 0);
        let error = share(Some(101), 50, Some(100)).expect_err("too much").to_string();
        assert!(error.contains("wired_limit") && error.contains("100"), "{error}");
    }

    #[test]
    fn without_metal_nothing_is_wired_and_an_option_for_it_is_told() {
        let share = WiredShare::of(Device::Cpu, Some(1 << 30), 1 << 20).expect("no effect");
        assert_eq!(share.bytes, 0);
        assert!(share.notice(Some(1 << 30)).is_some_and(|notice| notice.contains("Metal")));
        assert_eq!(share.notice(None), None);
        assert_eq!(share.notice(Some(0)), None);
    }
}
