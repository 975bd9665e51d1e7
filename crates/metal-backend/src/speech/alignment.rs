//! Times of tokens and words, from the attention that the decoder pays to the sound.

/// Values of which the one in the middle is taken.
const FILTER: usize = 7;
/// Punctuation that belongs to the word behind it.
const PREPENDED: &str = "\"'“¡¿([{-";
/// Punctuation that belongs to the word before it.
const APPENDED: &str = "\"'.。,，!！?？:：”)]}、";

/// The attention of `tokens` tokens to `places` places of the sound in each of some heads, row by
/// row.
#[derive(Clone, Debug)]
pub(super) struct Followed {
    pub heads: Vec<Vec<f32>>,
    pub tokens: usize,
    pub places: usize,
}

impl Followed {
    /// The first place of each token: each head is normalised over tokens and smoothed over places,
    /// and the path through the mean of all heads is sought that goes on in both.
    pub fn first_places(&self) -> Vec<usize> {
        let Followed { tokens, places, .. } = *self;
        let mut mean = vec![0.0_f64; tokens * places];
        for head in &self.heads {
            let mut head = head.clone();
            normalize(&mut head, tokens, places);
            for (row, of_row) in head.chunks_exact(places).zip(mean.chunks_exact_mut(places)) {
                let smooth = smoothed(row);
                of_row.iter_mut().zip(smooth).for_each(|(sum, value)| *sum += f64::from(value));
            }
        }
        let count = self.heads.len().max(1) as f64;
        mean.iter_mut().for_each(|value| *value /= -count);
        path(&mean, tokens, places)
    }
}

/// Brings each column to mean 0 and variance 1.
fn normalize(values: &mut [f32], rows: usize, columns: usize) {
    for column in 0..columns {
        let of_column = || (0..rows).map(|row| row * columns + column);
        let mean = of_column().map(|at| f64::from(values[at])).sum::<f64>() / rows as f64;
        let squares = of_column().map(|at| (f64::from(values[at]) - mean).powi(2)).sum::<f64>();
        let deviation = (squares / rows as f64).sqrt();
        for at in of_column() {
            values[at] = ((f64::from(values[at]) - mean) / deviation) as f32;
        }
    }
}

/// The median of each value and those around it; at the edges the row is mirrored.
fn smoothed(row: &[f32]) -> Vec<f32> {
    const SIDE: usize = FILTER / 2;
    if row.len() <= SIDE {
        return row.to_vec();
    }
    let mirrored = |at: usize| {
        let at = at.abs_diff(SIDE);
        let last = row.len() - 1;
        row[if at > last { 2 * last - at } else { at }]
    };
    let median = |at: usize| {
        let mut around: [f32; FILTER] = std::array::from_fn(|offset| mirrored(at + offset));
        around.sort_by(f32::total_cmp);
        around[SIDE]
    };
    (0..row.len()).map(median).collect()
}

/// The cheapest path from the first to the last token and place, by steps of one token, one place
/// or both (dynamic time warping): the first place of each token.
fn path(costs: &[f64], tokens: usize, places: usize) -> Vec<usize> {
    #[derive(Clone, Copy, PartialEq)]
    enum Step {
        Both,
        Token,
        Place,
    }
    let wide = places + 1;
    let mut sums = vec![f32::INFINITY; (tokens + 1) * wide];
    let mut steps = vec![Step::Place; (tokens + 1) * wide];
    sums[0] = 0.0;
    for place in 1..=places {
        for token in 1..=tokens {
            let at = token * wide + place;
            let (both, by_token, by_place) = (sums[at - wide - 1], sums[at - wide], sums[at - 1]);
            let (sum, step) = if both < by_token && both < by_place {
                (both, Step::Both)
            } else if by_token < both && by_token < by_place {
                (by_token, Step::Token)
            } else {
                (by_place, Step::Place)
            };
            sums[at] = (costs[(token - 1) * places + place - 1] + f64::from(sum)) as f32;
            steps[at] = step;
        }
    }
    let mut first = vec![0; tokens];
    let (mut token, mut place) = (tokens, places);
    while token > 0 && place > 0 {
        first[token - 1] = place - 1;
        match steps[token * wide + place] {
            Step::Both => (token, place) = (token - 1, place - 1),
            Step::Token => token -= 1,
            Step::Place => place -= 1,
        }
    }
    first
}

/// A word, and its tokens among those that were split.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Word {
    pub text: String,
    pub first: usize,
    pub last: usize,
}

/// The words of `tokens`, which `decode` makes text of: by blanks, or by characters where a
/// language has none. Punctuation stays with the word beside it.
pub(super) fn words(
    tokens: &[u32],
    has_no_blanks: bool,
    decode: &dyn Fn(&[u32]) -> String,
) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for piece in whole_characters(tokens, decode) {
        let trimmed = piece.text.trim();
        let is_punctuation =
            trimmed.chars().count() <= 1 && trimmed.chars().all(|sign| sign.is_ascii_punctuation());
        match words.last_mut() {
            Some(word) if !has_no_blanks && !piece.text.starts_with(' ') && !is_punctuation => {
                word.text.push_str(&piece.text);
                word.last = piece.last;
            }
            _ => words.push(piece),
        }
    }
    merge_punctuation(words)
}

/// Runs of tokens that are whole characters.
fn whole_characters(tokens: &[u32], decode: &dyn Fn(&[u32]) -> String) -> Vec<Word> {
    const BROKEN: char = char::REPLACEMENT_CHARACTER;
    let whole: Vec<char> = decode(tokens).chars().collect();
    let (mut pieces, mut first, mut told) = (Vec::new(), 0, 0);
    for last in 0..tokens.len() {
        let text = decode(&tokens[first..=last]);
        let is_whole = match text.chars().position(|sign| sign == BROKEN) {
            None => true,
            // The text has this sign itself.
            Some(at) => whole.get(told + at).is_none_or(|sign| *sign == BROKEN),
        };
        if is_whole {
            told += text.chars().count();
            pieces.push(Word { text, first, last });
            first = last + 1;
        }
    }
    pieces
}

/// Joins punctuation with the words that it belongs to.
fn merge_punctuation(words: Vec<Word>) -> Vec<Word> {
    let mut from_the_end: Vec<Word> = Vec::with_capacity(words.len());
    for word in words.into_iter().rev() {
        let opens = word.text.starts_with(' ') && is_part(PREPENDED, word.text.trim());
        match from_the_end.last_mut() {
            Some(next) if opens => {
                next.text.insert_str(0, &word.text);
                next.first = word.first;
            }
            _ => from_the_end.push(word),
        }
    }
    let mut merged: Vec<Word> = Vec::with_capacity(from_the_end.len());
    for word in from_the_end.into_iter().rev() {
        match merged.last_mut() {
            Some(before) if !before.text.ends_with(' ') && is_part(APPENDED, &word.text) => {
                before.text.push_str(&word.text);
                before.last = word.last;
            }
            _ => merged.push(word),
        }
    }
    merged
}

/// Returns true when `text` is a run of `signs`, as they stand there.
fn is_part(signs: &str, text: &str) -> bool {
    signs.contains(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_has_the_place_where_the_path_meets_it_first() {
        // Three tokens, attended at the places 0 to 1, 2 to 4 and 5.
        let mut costs = vec![1.0; 18];
        for (token, places) in [(0, 0..2), (1, 2..5), (2, 5..6)] {
            places.for_each(|place| costs[token * 6 + place] = -1.0);
        }
        assert_eq!(path(&costs, 3, 6), [0, 2, 5]);
    }

    #[test]
    fn medians_leave_out_single_peaks() {
        let row = [0.0, 0.0, 9.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0];
        assert_eq!(smoothed(&row), [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(smoothed(&[3.0, 1.0]), [3.0, 1.0]);
    }

    #[test]
    fn punctuation_stays_with_its_word() {
        const PIECES: [&str; 9] = [" He", " said", ",", " \"", "Hi", "!", "\"", " don", "'t"];
        let decode = |ids: &[u32]| ids.iter().map(|id| PIECES[*id as usize]).collect::<String>();
        let ids: Vec<u32> = (0..9).collect();
        let found = words(&ids, false, &decode);
        let texts: Vec<&str> = found.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(texts, [" He", " said,", " \"Hi!\"", " don't"]);
        assert_eq!((found[2].first, found[2].last), (3, 6));
        let apart = words(&ids[..2], true, &decode);
        assert_eq!(apart.len(), 2);
    }

    #[test]
    fn tokens_of_one_character_are_one_word() {
        let bytes: &[&[u8]] = &[&[0xe4, 0xbd], &[0xa0], &[0xe5], &[0xa5, 0xbd]];
        let decode = |ids: &[u32]| {
            let all: Vec<u8> = ids.iter().flat_map(|id| bytes[*id as usize]).copied().collect();
            String::from_utf8_lossy(&all).into_owned()
        };
        let found = words(&[0, 1, 2, 3], true, &decode);
        assert_eq!(found.iter().map(|word| word.text.as_str()).collect::<Vec<_>>(), ["你", "好"]);
    }
}
