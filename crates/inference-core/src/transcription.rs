//! A transcription in progress: its events, and the result.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::{CancelToken, Error, Result};

/// A word, and when it was spoken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpokenWord {
    /// The word with the blank before it and the punctuation beside it.
    pub word: String,
    /// Seconds from the beginning of the sound.
    pub start: f64,
    /// Seconds from the beginning of the sound.
    pub end: f64,
    /// The mean probability of its tokens.
    pub probability: f32,
}

/// A part of the text, and when it was spoken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeechSegment {
    /// Seconds from the beginning of the sound.
    pub start: f64,
    /// Seconds from the beginning of the sound.
    pub end: f64,
    /// The text with the blank before it.
    pub text: String,
    /// Its tokens, those of times included.
    pub tokens: Vec<u32>,
    /// Its words, where they were asked for.
    pub words: Vec<SpokenWord>,
    /// The window that it was heard in.
    pub window: WindowFacts,
}

/// The signs by which a window's text is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowFacts {
    /// Seconds from the beginning of the sound to that of the window.
    pub start: f64,
    /// The temperature of its draws.
    pub temperature: f32,
    /// The mean of its tokens' log probabilities.
    pub mean_logprob: f32,
    /// Bytes of its text over those of their compressed form.
    pub compression_ratio: f32,
    /// The probability that nobody speaks in it.
    pub no_speech: f32,
}

/// The text of sound, and what it cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// All text.
    pub text: String,
    /// The code of the language that was given or found.
    pub language: String,
    /// Seconds of the sound.
    pub seconds: f64,
    /// The parts of the text.
    pub segments: Vec<SpeechSegment>,
    /// Times and counts.
    pub metrics: TranscriptionMetrics,
}

impl Transcript {
    /// The segments as subtitles in SubRip's form, `.srt`.
    pub fn srt(&self) -> String {
        let mut text = String::new();
        for (number, segment) in self.segments.iter().enumerate() {
            let [start, end] = [segment.start, segment.end].map(|at| clock(at, ','));
            text += &format!("{}\n{start} --> {end}\n{}\n\n", number + 1, shown(&segment.text));
        }
        text
    }

    /// The segments as subtitles in WebVTT's form, `.vtt`.
    pub fn vtt(&self) -> String {
        let mut text = "WEBVTT\n\n".to_owned();
        for segment in &self.segments {
            let [start, end] = [segment.start, segment.end].map(|at| clock(at, '.'));
            text += &format!("{start} --> {end}\n{}\n\n", shown(&segment.text));
        }
        text
    }
}

/// Hours, minutes, seconds and, behind `point`, milliseconds.
fn clock(seconds: f64, point: char) -> String {
    let all = (seconds * 1000.0).round() as u64;
    let (hours, minutes) = (all / 3_600_000, all / 60_000 % 60);
    format!("{hours:02}:{minutes:02}:{:02}{point}{:03}", all / 1000 % 60, all % 1000)
}

/// A segment's text in subtitles: an arrow would begin another one's times.
fn shown(text: &str) -> String {
    text.trim().replace("-->", "->")
}

/// Times and counts of a transcription.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TranscriptionMetrics {
    /// Windows that were heard, those that were heard again included.
    pub windows: usize,
    /// Tokens that were drawn.
    pub tokens: usize,
    /// From entering the queue until the work began.
    pub queue_duration: Duration,
    /// The encoder's work on windows of this request, and of those beside it.
    pub encode_duration: Duration,
    /// The decoder's.
    pub decode_duration: Duration,
    /// From entering the queue until the end.
    pub total_duration: Duration,
}

/// An event that is reported while sound is transcribed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TranscriptionEvent {
    /// The language that was found: its code, and its probability.
    Language(String, f32),
    /// A part of the text that will not change any more.
    Segment(Box<SpeechSegment>),
    /// Seconds of the sound that were heard.
    Heard(f64),
    /// The whole, the last event.
    Done(Box<Transcript>),
}

/// Sound that is being transcribed: an iterator over its events. Dropping it cancels the work.
#[derive(Debug)]
pub struct Transcription {
    events: Receiver<Result<TranscriptionEvent>>,
    cancel: CancelToken,
    is_over: bool,
}

impl Transcription {
    /// The two ends of a transcription. `cancel` is the request's own token; another one fires when
    /// this end is dropped.
    pub fn new(cancel: &CancelToken) -> (TranscriptionSender, Transcription) {
        let (sender, events) = mpsc::channel();
        let own = CancelToken::new();
        let ours =
            TranscriptionSender { events: sender, cancel: cancel.clone(), dropped: own.clone() };
        (ours, Transcription { events, cancel: own, is_over: false })
    }

    /// Waits for the whole.
    ///
    /// # Errors
    /// The error that ended the work.
    pub fn finish(self) -> Result<Transcript> {
        for event in self {
            if let TranscriptionEvent::Done(transcript) = event? {
                return Ok(*transcript);
            }
        }
        Err(Error::Closed)
    }
}

impl Iterator for Transcription {
    type Item = Result<TranscriptionEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let event = self.events.recv().unwrap_or(Err(Error::Closed));
        self.is_over = matches!(event, Err(_) | Ok(TranscriptionEvent::Done(_)));
        Some(event)
    }
}

impl Drop for Transcription {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// The backend's end of a [`Transcription`]. Dropped before the end, it tells that the model was
/// closed.
#[derive(Debug)]
pub struct TranscriptionSender {
    events: Sender<Result<TranscriptionEvent>>,
    cancel: CancelToken,
    dropped: CancelToken,
}

impl TranscriptionSender {
    /// Returns true when the request's token fired or nobody waits for the text.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled() || self.dropped.is_cancelled()
    }

    /// Tells of the work. It never waits.
    pub fn send(&self, event: TranscriptionEvent) {
        // Where nobody listens, the work ends at its next look at the token.
        let _ = self.events.send(Ok(event));
    }

    /// Ends the transcription.
    pub fn finish(self, result: Result<Transcript>) {
        let event = result.map(|transcript| TranscriptionEvent::Done(Box::new(transcript)));
        let _ = self.events.send(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtitles_have_each_segment_with_its_times() {
        let segment = |start, end, text: &str| SpeechSegment {
            start,
            end,
            text: text.into(),
            ..SpeechSegment::default()
        };
        let segments = vec![segment(0.0, 1.5, " A --> b"), segment(3599.9996, 3661.02, " c")];
        let transcript = Transcript { segments, ..Transcript::default() };
        let srt =
            "1\n00:00:00,000 --> 00:00:01,500\nA -> b\n\n2\n01:00:00,000 --> 01:01:01,020\nc\n\n";
        assert_eq!(transcript.srt(), srt);
        let vtt = "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nA -> b\n\n01:00:00.000 --> 01:01:01.020\nc\n\n";
        assert_eq!(transcript.vtt(), vtt);
    }

    #[test]
    fn the_end_comes_last_and_a_dropped_end_cancels_the_other() {
        let (sender, events) = Transcription::new(&CancelToken::new());
        sender.send(TranscriptionEvent::Heard(1.0));
        sender.finish(Ok(Transcript { text: "a".into(), ..Transcript::default() }));
        assert_eq!(events.finish().unwrap().text, "a");
        let (sender, mut events) = Transcription::new(&CancelToken::new());
        drop(sender);
        assert_eq!(events.next(), Some(Err(Error::Closed)));
        assert_eq!(events.next(), None);
        let token = CancelToken::new();
        let (sender, events) = Transcription::new(&token);
        assert!(!sender.is_cancelled());
        drop(events);
        assert!(sender.is_cancelled() && !token.is_cancelled());
    }
}
