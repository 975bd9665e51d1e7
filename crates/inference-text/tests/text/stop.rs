//! Stop strings found in pieces are those found in the whole.

use inference_text::{StopMatcher, TextError};
use proptest::prelude::*;

/// The reference: the match that begins first, of those the longest, of those the first in the
/// list.
fn naive(text: &str, stops: &[String]) -> (String, Option<usize>) {
    let found = stops
        .iter()
        .enumerate()
        .filter_map(|(i, stop)| Some((text.find(stop.as_str())?, stop.len(), i)));
    match found.min_by_key(|&(at, len, i)| (at, usize::MAX - len, i)) {
        Some((at, _, index)) => (text[..at].to_owned(), Some(index)),
        None => (text.to_owned(), None),
    }
}

fn streamed<'a>(
    pieces: impl IntoIterator<Item = &'a str>,
    stops: &[String],
) -> (String, Option<usize>) {
    let mut matcher = StopMatcher::new(stops).unwrap();
    let mut text = String::new();
    let mut matched = None;
    for piece in pieces {
        let held = matcher.push(piece);
        text += &held.text;
        matched = matched.or(held.matched);
    }
    let held = matcher.finish();
    text += &held.text;
    (text, matched.or(held.matched))
}

#[test]
fn an_empty_stop_string_is_refused_by_its_index() {
    let err = StopMatcher::new(&["a", ""]).unwrap_err();
    assert!(matches!(err, TextError::EmptyStop { index: 1 }));
    assert_eq!(err.to_string(), "`stop[1]` is empty");
}

#[test]
fn without_stop_strings_text_passes_at_once() {
    let mut matcher = StopMatcher::new::<&str>(&[]).unwrap();
    assert_eq!(matcher.push("any text").text, "any text");
    assert_eq!(matcher.finish().text, "");
}

#[test]
fn only_what_may_begin_a_stop_string_is_held_back() {
    let mut matcher = StopMatcher::new(&["<|end|>", "\n\nUser:"]).unwrap();
    assert_eq!(matcher.push("a < b\n").text, "a < b");
    assert_eq!(matcher.push("\nUse").text, "");
    assert_eq!(matcher.push("d <|e").text, "\n\nUsed ");
    assert_eq!(matcher.finish().text, "<|e");
}

#[test]
fn a_stop_string_that_ends_in_text_to_pass_is_text_and_may_begin_there() {
    let mut matcher = StopMatcher::new(&["ab", "cde"]).unwrap();
    let passed = matcher.pass("xabcd").text;
    assert_eq!(passed, "xab");
    let held = matcher.push("e and ab");
    assert_eq!((held.text.as_str(), held.matched), ("", Some(1)));
    let mut matcher = StopMatcher::new(&["ab"]).unwrap();
    assert_eq!((matcher.pass("ab").text + &matcher.push("-").text).as_str(), "ab-");
    assert_eq!(matcher.pass("ab").matched.or(matcher.finish().matched), None);
}

#[test]
fn the_longest_of_those_that_begin_together_wins_and_a_text_may_end_before_it_is_known() {
    let stops = ["ab".to_owned(), "abcd".to_owned()];
    assert_eq!(streamed(["xab", "c", "d!"], &stops), ("x".into(), Some(1)));
    assert_eq!(streamed(["xab", "c", "e"], &stops), ("x".into(), Some(0)));
    assert_eq!(streamed(["xab", "c"], &stops), ("x".into(), Some(0)));
}

#[test]
fn a_match_is_told_as_soon_as_no_longer_one_can_come() {
    for (stops, piece, matched) in [
        (&[" and"][..], "one and", Some(0)),
        (&[" and", "."], ".", Some(1)),
        (&["ab", "abcd"], "xab", None),
        (&["ab", "abcd"], "xabcd", Some(1)),
        // The longer one would begin earlier.
        (&["bc", "abcd"], "abc", None),
        (&["bc", "abcd"], "abcd", Some(1)),
        (&["bc", "abcd"], "abce", Some(0)),
    ] {
        assert_eq!(StopMatcher::new(stops).unwrap().push(piece).matched, matched, "{piece}");
    }
}

#[test]
fn nothing_is_released_after_a_match() {
    let mut matcher = StopMatcher::new(&["."]).unwrap();
    assert_eq!(matcher.push("a.b").matched, Some(0));
    assert_eq!(matcher.push("c.d").text, "");
    assert_eq!(matcher.finish().matched, None);
}

#[test]
fn a_long_text_of_almost_stops_takes_linear_time() {
    let stop = "a".repeat(2000) + "b";
    let mut matcher = StopMatcher::new(&[stop]).unwrap();
    let released: usize = (0..1_000_000).map(|_| matcher.push("a").text.len()).sum();
    assert_eq!(released, 998_000);
}

fn cut<'a>(text: &'a str, cuts: &[usize]) -> Vec<&'a str> {
    let mut bounds: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
    bounds.retain(|&at| text.is_char_boundary(at));
    bounds.extend([0, text.len()]);
    bounds.sort_unstable();
    bounds.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_cut_of_any_text_finds_what_the_whole_text_holds(
        text in "[abé🌍]{0,24}",
        stops in prop::collection::vec("[abé🌍]{1,4}", 1..17),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let want = naive(&text, &stops);
        prop_assert_eq!(streamed(cut(&text, &cuts), &stops), want.clone());
        let chars: Vec<String> = text.chars().map(String::from).collect();
        prop_assert_eq!(streamed(chars.iter().map(String::as_str), &stops), want);
    }

    #[test]
    fn every_single_cut_finds_the_same(text in "[ab]{0,12}", stops in prop::collection::vec("[ab]{1,5}", 1..4)) {
        for at in 0..=text.len() {
            prop_assert_eq!(streamed([&text[..at], &text[at..]], &stops), naive(&text, &stops));
        }
    }
}
