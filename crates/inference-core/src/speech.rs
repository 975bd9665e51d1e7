//! Speech in progress: its events, and the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::{CancelToken, Error, Result, Samples};

/// Pieces that wait for whoever takes them, at most: some ten minutes of sound.
const WAITING: usize = 64;
/// The most time that the backend waits until one is taken.
const PATIENCE: Duration = Duration::from_secs(300);

/// A piece of what is said: a sentence or a part of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpokenPiece {
    /// The text that it says; empty where phonemes were given.
    pub text: String,
    /// Its phonemes, those that the model knows.
    pub phonemes: String,
    /// Seconds of the silence before, of each phoneme, and of the silence behind.
    pub seconds: Vec<f64>,
    /// The sound, of one channel.
    pub sound: Samples,
}

/// Times and counts of speech.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpeechMetrics {
    /// Pieces that were said.
    pub pieces: usize,
    /// Phonemes of them.
    pub phonemes: usize,
    /// Seconds of the sound.
    pub seconds: f64,
    /// From entering the queue until the work began.
    pub queue_duration: Duration,
    /// From entering the queue until the first piece was said.
    pub first_duration: Duration,
    /// From entering the queue until the end.
    pub total_duration: Duration,
}

/// An event that is reported while text is said.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SpeechEvent {
    /// The next piece. Pieces follow each other without a gap.
    Piece(Box<SpokenPiece>),
    /// The end, the last event.
    Done(SpeechMetrics),
}

/// Text that is being said: an iterator over its events. Dropping it cancels the work.
#[derive(Debug)]
pub struct Speech {
    events: Receiver<Result<SpeechEvent>>,
    waiting: Arc<AtomicUsize>,
    cancel: CancelToken,
    is_over: bool,
}

impl Speech {
    /// The two ends of speech. `cancel` is the request's own token; another one fires when this end
    /// is dropped.
    pub fn new(cancel: &CancelToken) -> (SpeechSender, Speech) {
        let (sender, events) = mpsc::channel();
        let own = CancelToken::new();
        let waiting = Arc::new(AtomicUsize::new(0));
        let ours = SpeechSender {
            events: sender,
            waiting: Arc::clone(&waiting),
            cancel: cancel.clone(),
            dropped: own.clone(),
        };
        (ours, Speech { events, waiting, cancel: own, is_over: false })
    }

    /// Waits for the whole: its sound, and what it cost.
    ///
    /// # Errors
    /// The error that ended the work.
    pub fn finish(self) -> Result<(Samples, SpeechMetrics)> {
        let mut all = Samples::default();
        for event in self {
            match event? {
                SpeechEvent::Piece(piece) => {
                    all.rate = piece.sound.rate;
                    all.values.extend(piece.sound.values);
                }
                SpeechEvent::Done(metrics) => return Ok((all, metrics)),
            }
        }
        Err(Error::Closed)
    }
}

impl Iterator for Speech {
    type Item = Result<SpeechEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let event = self.events.recv().unwrap_or(Err(Error::Closed));
        if matches!(event, Ok(SpeechEvent::Piece(_))) {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        self.is_over = matches!(event, Err(_) | Ok(SpeechEvent::Done(_)));
        Some(event)
    }
}

impl Drop for Speech {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// The backend's end of [`Speech`]. Dropped before the end, it tells that the model was closed.
#[derive(Debug)]
pub struct SpeechSender {
    events: Sender<Result<SpeechEvent>>,
    waiting: Arc<AtomicUsize>,
    cancel: CancelToken,
    dropped: CancelToken,
}

impl SpeechSender {
    /// Returns true when the request's token fired or nobody waits for the sound.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled() || self.dropped.is_cancelled()
    }

    /// Tells of the next piece. Where 64 pieces wait to be taken, it waits for one of them, or for
    /// the end of the request. After five minutes in which none is taken the request is cancelled.
    pub fn send(&self, piece: SpokenPiece) {
        let begun = Instant::now();
        while self.waiting.load(Ordering::Relaxed) >= WAITING && !self.is_cancelled() {
            if begun.elapsed() > PATIENCE {
                self.dropped.cancel();
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Where nobody listens, the work ends at its next look at the token.
        let _ = self.events.send(Ok(SpeechEvent::Piece(Box::new(piece))));
    }

    /// Ends the speech.
    pub fn finish(self, result: Result<SpeechMetrics>) {
        let _ = self.events.send(result.map(SpeechEvent::Done));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_and_a_dropped_end_cancels_the_other() {
        let piece = |value| SpokenPiece {
            sound: Samples { values: vec![value; 2], rate: 24_000 },
            ..SpokenPiece::default()
        };
        let (sender, speech) = Speech::new(&CancelToken::new());
        sender.send(piece(0.5));
        sender.send(piece(-0.5));
        let metrics = SpeechMetrics { pieces: 2, ..SpeechMetrics::default() };
        sender.finish(Ok(metrics));
        let sound = Samples { values: vec![0.5, 0.5, -0.5, -0.5], rate: 24_000 };
        assert_eq!(speech.finish(), Ok((sound, metrics)));
        let (sender, mut speech) = Speech::new(&CancelToken::new());
        drop(sender);
        assert_eq!(speech.next(), Some(Err(Error::Closed)));
        assert_eq!(speech.next(), None);
        let token = CancelToken::new();
        // No more wait than somebody takes.
        let (sender, mut speech) = Speech::new(&token);
        let sent = thread::spawn(move || (0..200).for_each(|_| sender.send(piece(0.0))));
        let begun = Instant::now();
        while speech.waiting.load(Ordering::Relaxed) < WAITING {
            assert!(begun.elapsed() < Duration::from_secs(60), "none are sent");
            thread::yield_now();
        }
        assert!(!sent.is_finished());
        assert_eq!(speech.by_ref().take(200).filter(Result::is_ok).count(), 200);
        sent.join().expect("all are sent");
        let (sender, speech) = Speech::new(&token);
        assert!(!sender.is_cancelled());
        drop(speech);
        assert!(sender.is_cancelled() && !token.is_cancelled());
    }
}
