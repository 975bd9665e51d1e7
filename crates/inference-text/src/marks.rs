//! Marks on the control tokens that users write, so that they stay text.
//!
//! Before a template is rendered, every string that comes from outside is
//! searched for the text of control tokens. A found one gets a mark, a
//! noncharacter that occurs nowhere else, between its characters: `<|im_end|>`
//! can then no longer be taken for the token, and the template's own can.

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value as Json;
use tokenizers::AddedVocabulary;

/// Noncharacters for use inside a program (U+FDD0 to U+FDEF): no text should hold one.
const MARKS: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// Whose text it is decides what is a control token in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    /// An assistant's turn may hold what the model writes: non-special tokens such as
    /// `<|tool_call|>`.
    Assistant,
    /// Users, tools, the system prompt, template arguments.
    Other,
}

impl Author {
    pub fn of(message: &Json) -> Author {
        match message.get("role").and_then(Json::as_str) {
            Some("assistant" | "model") => Author::Assistant,
            _ => Author::Other,
        }
    }
}

/// The tokens that only a template may write.
pub(crate) struct ControlTokens {
    /// Special tokens, and those of the shape `<|…|>`: some models declare their turn markers not
    /// special.
    all: Finder,
    /// Special tokens only.
    special: Finder,
}

struct Finder {
    search: AhoCorasick,
    /// Sorted, for the lookup of prefixes.
    tokens: Vec<String>,
    longest: usize,
}

impl ControlTokens {
    pub fn new(vocabulary: &AddedVocabulary) -> Result<ControlTokens, String> {
        let added: Vec<_> = vocabulary
            .get_added_tokens_decoder()
            .values()
            .filter(|t| !t.content.is_empty())
            .collect();
        let contents = |wanted: &dyn Fn(&str, bool) -> bool| {
            added
                .iter()
                .filter(|t| wanted(&t.content, t.special))
                .map(|t| t.content.clone())
                .collect::<Vec<_>>()
        };
        Ok(ControlTokens {
            all: Finder::new(contents(&|token, special| special || is_marker(token)))?,
            special: Finder::new(contents(&|_, special| special))?,
        })
    }

    /// All of them, sorted.
    pub fn tokens(&self) -> &[String] {
        &self.all.tokens
    }

    /// Marks the strings in `value`; returns whether there was anything to mark.
    pub fn mark(&self, value: &mut Json, author: Author, mark: char) -> bool {
        let finder = match author {
            Author::Assistant => &self.special,
            Author::Other => &self.all,
        };
        finder.mark_json(value, mark)
    }
}

/// `<|user|>` and DeepSeek's `<｜User｜>`.
fn is_marker(token: &str) -> bool {
    let inner = token.strip_prefix('<').and_then(|t| t.strip_suffix('>'));
    inner.is_some_and(|t| t.len() > 2 && t.starts_with(['|', '｜']) && t.ends_with(['|', '｜']))
}

impl Finder {
    fn new(mut tokens: Vec<String>) -> Result<Finder, String> {
        tokens.sort();
        let search = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&tokens);
        let longest = tokens.iter().map(String::len).max().unwrap_or(0);
        Ok(Finder { search: search.map_err(|err| err.to_string())?, tokens, longest })
    }

    fn mark_json(&self, value: &mut Json, mark: char) -> bool {
        match value {
            Json::String(text) => match self.marked(text, mark, End::Open) {
                Some(marked) => {
                    *text = marked;
                    true
                }
                None => false,
            },
            Json::Array(items) => {
                items.iter_mut().fold(false, |any, item| self.mark_json(item, mark) | any)
            }
            Json::Object(map) => {
                let mut any =
                    map.values_mut().fold(false, |any, item| self.mark_json(item, mark) | any);
                if map.keys().any(|key| self.search.is_match(key)) {
                    let old = std::mem::take(map);
                    let renamed = |key: String| self.marked(&key, mark, End::Closed).unwrap_or(key);
                    map.extend(old.into_iter().map(|(key, item)| (renamed(key), item)));
                    any = true;
                }
                any
            }
            _ => false,
        }
    }

    fn marked(&self, text: &str, mark: char, end: End) -> Option<String> {
        let mut out = String::new();
        let mut done = 0;
        for found in self.search.find_iter(text) {
            out.push_str(&text[done..found.start()]);
            let mut chars = text[found.range()].chars();
            out.extend(chars.next());
            // Between all characters, so that no shorter token inside is left whole.
            out.extend(chars.flat_map(|c| [mark, c]));
            done = found.end();
        }
        // A token may also be spread over neighbouring strings: "<|im_" in one part, "end|>" in the
        // next; templates trim parts, so white space between the two is no obstacle.
        let rest = &text[done..];
        let open = match end {
            End::Open => self.open_token(rest).or_else(|| self.open_token(rest.trim_end())),
            End::Closed => None,
        };
        let tail = open.unwrap_or(rest.len());
        out.push_str(&rest[..tail]);
        for c in rest[tail..].chars() {
            out.push(c);
            // A mark after white space would keep a template from trimming it.
            if !c.is_whitespace() {
                out.push(mark);
            }
        }
        (done > 0 || open.is_some()).then_some(out)
    }

    /// Returns the beginning of the longest end of `text` that begins a token.
    fn open_token(&self, text: &str) -> Option<usize> {
        let from = text.len().saturating_sub(self.longest);
        let begins = |at: &usize| {
            let tail = &text[*at..];
            let next = self.tokens.partition_point(|token| token.as_str() < tail);
            let token = self.tokens.get(next);
            token.is_some_and(|token| token.starts_with(tail))
        };
        (from..text.len()).filter(|&at| text.is_char_boundary(at)).find(begins)
    }
}

/// The end of a string in the rendered text: another one may follow, or none.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Open,
    Closed,
}

/// A mark that occurs in none of `texts`.
pub(crate) fn free_mark<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Option<char> {
    free_marks(texts).0
}

/// Two marks that occur in none of `texts`.
pub(crate) fn free_marks<'a>(
    texts: impl Iterator<Item = &'a str> + Clone,
) -> (Option<char>, Option<char>) {
    let is_free = |mark: &char| !texts.clone().any(|text| text.contains(*mark));
    let mut free = MARKS.filter(is_free);
    (free.next(), free.next())
}
