//! Panics of libraries, which become errors of the calls that met them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// How many calls of this thread, one inside of another, catch panics.
    static CATCHING: Cell<usize> = const { Cell::new(0) };
}

/// Returns true when a panic of this thread becomes the error of a call that catches it.
///
/// For the panic hook of a program: the error says all that a user can use, so that nothing need be
/// printed. The crate installs no hook.
///
/// ```
/// let print = std::panic::take_hook();
/// std::panic::set_hook(Box::new(move |panic| {
///     if !sound::panics::is_caught() {
///         print(panic);
///     }
/// }));
/// ```
pub fn is_caught() -> bool {
    CATCHING.get() > 0
}

/// Runs what may panic inside of a library; `None` where it did.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Option<T> {
    let _catching = Catching::begin();
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// Counts a call for as long as it lives.
struct Catching;

impl Catching {
    fn begin() -> Catching {
        CATCHING.set(CATCHING.get() + 1);
        Catching
    }
}

impl Drop for Catching {
    fn drop(&mut self) {
        CATCHING.set(CATCHING.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::{caught, is_caught};

    #[test]
    fn panics_are_caught_inside_of_a_call_alone() {
        assert!(!is_caught());
        assert_eq!(caught(is_caught), Some(true));
        assert_eq!(caught(|| assert!(caught(|| panic!("inside")).is_none())), Some(()));
        assert_eq!(caught(|| panic!("outside")), None::<()>);
        assert!(!is_caught());
    }
}
