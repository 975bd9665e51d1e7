//! Exchanges of a pipeline's ranks that are put off: drawn ids, and their logits.
//!
//! A rank that received them at once would wait until the ranks behind have computed the step. So
//! they are received before the next step of the same rows, while other batches pass in between.
//! All ranks do that in one order, that of the steps: the messages of a connection have no other.

use std::cell::RefCell;
use std::collections::VecDeque;

use mlx_ffi::{Array, Result, async_eval};

/// The exchanges that are put off, in their order.
#[derive(Debug, Default)]
pub(super) struct Due(RefCell<Queue>);

#[derive(Debug, Default)]
struct Queue {
    steps: VecDeque<(u64, Vec<Array>)>,
    /// Of steps that were ever added.
    count: u64,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket(u64);

impl Due {
    /// Puts off what `arrays` need.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn add<'a>(&self, arrays: impl Iterator<Item = &'a Array>) -> Result<Ticket> {
        let arrays = arrays.map(Array::share).collect::<Result<_>>()?;
        let mut queue = self.0.borrow_mut();
        queue.count += 1;
        let number = queue.count;
        queue.steps.push_back((number, arrays));
        Ok(Ticket(number))
    }

    /// Exchanges what belongs to a step, and to all before it.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn exchange(&self, ticket: Ticket) -> Result<()> {
        self.until(ticket.0)
    }

    /// Exchanges everything that was put off: before anything else that the last rank sends to the
    /// first one.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn exchange_all(&self) -> Result<()> {
        self.until(u64::MAX)
    }

    fn until(&self, last: u64) -> Result<()> {
        loop {
            let next = self.0.borrow_mut().steps.pop_front_if(|(number, _)| *number <= last);
            let Some((_, arrays)) = next else { return Ok(()) };
            async_eval(&arrays)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, use_device};

    use super::*;

    #[test]
    fn what_was_put_off_is_exchanged_in_its_order() {
        use_device(Device::Cpu).expect("a CPU");
        let array = Array::from_u32(&[1], &[1]).expect("an array");
        let due = Due::default();
        let tickets = [0, 1, 2].map(|_| due.add([&array].into_iter()).expect("shared"));
        let left = || due.0.borrow().steps.iter().map(|(number, _)| *number).collect::<Vec<_>>();
        due.exchange(tickets[1]).expect("values");
        assert_eq!(left(), [3]);
        // Its turn was before.
        due.exchange(tickets[0]).expect("nothing to do");
        assert_eq!(left(), [3]);
        due.exchange_all().expect("values");
        assert!(left().is_empty());
    }
}
