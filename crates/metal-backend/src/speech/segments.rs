//! Segments of a window's tokens, which are cut where two times meet.

use std::ops::Range;

/// Seconds between two times.
pub(super) const TIME_STEP: f64 = 0.02;
/// Frames of the features that a step of times stands for.
const FRAMES_OF_STEP: usize = 2;

/// A segment of a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cut {
    /// Seconds from the window's beginning.
    pub start: f64,
    /// Seconds from the window's beginning.
    pub end: f64,
    /// Its tokens among those of the window.
    pub tokens: Range<usize>,
}

/// The segments of `tokens`, said of a window of so many `frames`, and how many frames are done
/// with them. Times are the ids from `first_time` on.
pub(super) fn cut(tokens: &[u32], first_time: Option<u32>, frames: usize) -> (Vec<Cut>, usize) {
    let step = |token: u32| first_time.and_then(|first| token.checked_sub(first));
    let seconds = |step: u32| f64::from(step) * TIME_STEP;
    let time_at = |at: usize| tokens.get(at).copied().and_then(step);
    let pairs = (1..tokens.len()).filter(|at| time_at(at - 1).is_some() && time_at(*at).is_some());
    let mut ends: Vec<usize> = pairs.collect();
    let Some(last) = ends.last_mut() else {
        let last = tokens.iter().rev().find_map(|token| step(*token)).filter(|last| *last > 0);
        let all = (frames / FRAMES_OF_STEP) as u32;
        let end = seconds(last.unwrap_or(all));
        return (vec![Cut { start: 0.0, end, tokens: 0..tokens.len() }], frames);
    };
    let count = tokens.len();
    let ends_with_one_time =
        count >= 2 && time_at(count - 2).is_none() && time_at(count - 1).is_some();
    match ends_with_one_time {
        true => ends.push(count),
        // With the time that begins the next segment, as sign that speech goes on.
        false => *last += 1,
    }
    let mut cuts = Vec::with_capacity(ends.len());
    let mut begin = 0;
    for (number, end) in ends.iter().copied().enumerate() {
        let is_open = number + 1 == ends.len() && !ends_with_one_time;
        let start = time_at(begin).unwrap_or(0);
        let last = time_at(end - if is_open { 2 } else { 1 }).unwrap_or(0);
        cuts.push(Cut { start: seconds(start), end: seconds(last), tokens: begin..end });
        begin = end;
    }
    let done = match ends_with_one_time {
        // Nobody speaks behind the last time.
        true => frames,
        false => time_at(begin - 2).unwrap_or(0) as usize * FRAMES_OF_STEP,
    };
    (cuts, done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cuts(tokens: &[u32]) -> (Vec<(f64, f64, Range<usize>)>, usize) {
        let (cuts, done) = cut(tokens, Some(100), 3000);
        let plain = |cut: Cut| (cut.start, cut.end, cut.tokens);
        (cuts.into_iter().map(plain).collect(), done)
    }

    #[test]
    fn windows_are_cut_where_two_times_meet() {
        // One time at the end: the window is done.
        let whole = [100, 1, 2, 150, 150, 3, 200];
        assert_eq!(cuts(&whole), (vec![(0.0, 1.0, 0..4), (1.0, 2.0, 4..7)], 3000));
        // Two times at the end: the next window begins there.
        let open = [100, 1, 2, 150, 160, 3, 200, 200];
        assert_eq!(cuts(&open), (vec![(0.0, 1.0, 0..4), (1.2, 2.0, 4..8)], 200));
        // What follows the last pair is heard again.
        let unfinished = [100, 1, 150, 160, 3, 4];
        assert_eq!(cuts(&unfinished), (vec![(0.0, 1.0, 0..4)], 100));
    }

    #[test]
    fn without_a_pair_the_window_is_one_segment() {
        assert_eq!(cuts(&[1, 2]), (vec![(0.0, 30.0, 0..2)], 3000));
        assert_eq!(cuts(&[100, 1, 2, 175]), (vec![(0.0, 1.5, 0..4)], 3000));
        assert_eq!(cuts(&[100, 1, 2]), (vec![(0.0, 30.0, 0..3)], 3000));
        assert_eq!(cuts(&[]), (vec![(0.0, 30.0, 0..0)], 3000));
        let (short, done) = cut(&[5], None, 7);
        assert_eq!((short[0].end, done), (3.0 * TIME_STEP, 7));
    }
}
