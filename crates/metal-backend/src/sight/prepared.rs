//! A picture or a sound, ready for its tower.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sound::Frames;

use super::patches::Patches;

/// The most numbers of what was prepared last, and is kept: it is prepared to be counted, then to
/// be computed.
const MOST_NUMBERS: usize = 16 << 20;

/// The numbers as which all else counts that each of them holds.
const EACH: usize = 64;

/// The input of a tower.
#[derive(Debug)]
pub(crate) enum Input {
    /// A picture's.
    Patches(Patches),
    /// A sound's features.
    Frames(Frames),
}

impl Input {
    /// Its numbers.
    pub fn values(&self) -> &[f32] {
        match self {
            Input::Patches(patches) => &patches.values,
            Input::Frames(frames) => &frames.values,
        }
    }
}

/// A picture or a sound, ready for its tower.
pub(crate) struct Prepared {
    pub input: Input,
    /// Of its encoded bytes.
    pub digest: [u8; 32],
    /// Its own ids in a prompt, the marks of its beginning and end included.
    pub ids: Vec<u32>,
    /// The one among them in whose places its vectors stand.
    pub own: u32,
    /// The mark behind it has a vector, too.
    pub ends_with_vector: bool,
    /// Its positions see each other.
    pub sees_whole: bool,
    /// Of a picture: squares of patches, each a vector of the language model: rows and columns.
    pub cells: [i32; 2],
    /// The time of its preparation.
    pub took: Duration,
}

/// Pictures or sounds that were prepared last.
#[derive(Default)]
pub(crate) struct Recent(Mutex<VecDeque<Arc<Prepared>>>);

impl Recent {
    /// The one whose bytes have this digest.
    pub fn find(&self, digest: &[u8; 32]) -> Option<Arc<Prepared>> {
        let recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.iter().find(|known| known.digest == *digest).cloned()
    }

    /// Keeps one; the first ones go where all have too many numbers.
    pub fn keep(&self, prepared: &Arc<Prepared>) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back(Arc::clone(prepared));
        let numbers = |recent: &VecDeque<Arc<Prepared>>| {
            recent.iter().map(|one| one.input.values().len() + one.ids.len() + EACH).sum::<usize>()
        };
        while recent.len() > 1 && numbers(&recent) > MOST_NUMBERS {
            recent.pop_front();
        }
    }
}

impl PartialEq for Prepared {
    fn eq(&self, other: &Prepared) -> bool {
        self.digest == other.digest
    }
}
