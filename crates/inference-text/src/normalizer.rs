//! The growth of a text by a tokenizer's normalizer, measured before the library runs it.
//!
//! A normalizer is data of a checkpoint, and its steps may multiply a text: four that replace a
//! letter by a hundred make a hundred million letters of one. The library has no bound of its own.

use serde_json::Value as Json;
use tokenizers::utils::SysRegex;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

/// Bytes that a normalizer may put in front of each text; published ones put `▁`.
const MAX_PREPEND: usize = 64;
/// Bytes of text that a step of the library is run on at once, to see how much it makes of them.
const PIECE_BYTES: usize = 4096;
/// The most bytes that Unicode's compatibility forms make of one: 33 of the 3 of U+FDFA.
const UNICODE_FACTOR: u64 = 11;
/// For a step whose own data say what it makes of a text.
const UNKNOWN_FACTOR: u64 = 1 << 40;

/// The steps of a normalizer.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    steps: Vec<Step>,
}

/// One step makes too much of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMuch {
    /// The step's name in tokenizer.json.
    pub step: String,
    /// The bytes that it may make.
    pub limit: usize,
}

#[derive(Debug)]
struct Step {
    name: String,
    kind: Kind,
    /// The most bytes that the step makes of one.
    factor: u64,
}

#[derive(Debug)]
enum Kind {
    Replace { regex: SysRegex, content: String },
    Prepend(String),
    Other(Box<NormalizerWrapper>),
}

impl Growth {
    /// The steps of tokenizer.json's `normalizer`; `null` has none.
    ///
    /// # Errors
    /// A value that is no normalizer, or that puts too much in front of each text.
    pub fn new(normalizer: Json) -> Result<Growth, String> {
        if normalizer.is_null() {
            return Ok(Growth::default());
        }
        let wrapper: NormalizerWrapper =
            serde_json::from_value(normalizer).map_err(|error| error.to_string())?;
        let mut steps = Vec::new();
        let mut open = vec![wrapper];
        while let Some(wrapper) = open.pop() {
            match wrapper {
                NormalizerWrapper::Sequence(inner) => {
                    let inner: Vec<_> = inner.into_iter().collect();
                    open.extend(inner.into_iter().rev());
                }
                wrapper => steps.push(Step::new(wrapper)?),
            }
        }
        Ok(Growth { steps })
    }

    /// How many bytes the steps make of `text`, or more.
    ///
    /// # Errors
    /// The step that makes more than `limit` bytes.
    pub fn check(&self, text: &str, limit: usize) -> Result<usize, TooMuch> {
        let bound = self
            .steps
            .iter()
            .fold(text.len().max(1) as u64, |bound, step| bound.saturating_mul(step.factor));
        if bound <= limit as u64 {
            return Ok(bound as usize);
        }
        let mut text = text.to_owned();
        for step in &self.steps {
            text = step.apply(&text, limit)?;
        }
        Ok(text.len())
    }
}

impl Step {
    fn new(wrapper: NormalizerWrapper) -> Result<Step, String> {
        // The pattern of `Replace` is to be had from what it is written as alone.
        let json = serde_json::to_value(&wrapper).map_err(|error| error.to_string())?;
        let text = |value: Option<&Json>| value.and_then(Json::as_str).map(str::to_owned);
        let name = text(json.get("type")).unwrap_or_else(|| "normalizer".to_owned());
        let (kind, factor) = match wrapper {
            NormalizerWrapper::Replace(replace) => {
                let pattern = json.get("pattern");
                let literal = text(pattern.and_then(|pattern| pattern.get("String")));
                let regex = text(pattern.and_then(|pattern| pattern.get("Regex")));
                let content = replace.content.clone();
                let made = content.len() as u64;
                let factor = match &literal {
                    Some(literal) if !literal.is_empty() => made.div_ceil(literal.len() as u64),
                    // Nothing may match too, before and behind each byte.
                    _ => 2 * made + 1,
                };
                let source = match literal {
                    Some(literal) => escaped(&literal),
                    None => regex.unwrap_or_default(),
                };
                let regex = SysRegex::new(&source).map_err(|error| error.to_string())?;
                (Kind::Replace { regex, content }, factor.max(1))
            }
            NormalizerWrapper::Prepend(_) => {
                let content = text(json.get("prepend")).unwrap_or_default();
                if content.len() > MAX_PREPEND {
                    return Err(format!(
                        "its normalizer `{name}` puts {} bytes before each text, at most \
                         {MAX_PREPEND} are taken",
                        content.len()
                    ));
                }
                let factor = content.len() as u64 + 1;
                (Kind::Prepend(content), factor)
            }
            other => {
                let factor = match &other {
                    NormalizerWrapper::Precompiled(_) => UNKNOWN_FACTOR,
                    NormalizerWrapper::StripNormalizer(_)
                    | NormalizerWrapper::StripAccents(_)
                    | NormalizerWrapper::Nmt(_) => 1,
                    _ => UNICODE_FACTOR,
                };
                (Kind::Other(Box::new(other)), factor)
            }
        };
        Ok(Step { name, kind, factor })
    }

    fn apply(&self, text: &str, limit: usize) -> Result<String, TooMuch> {
        let mut made = String::new();
        let within = |made: &str| match made.len() > limit {
            true => Err(TooMuch { step: self.name.clone(), limit }),
            false => Ok(()),
        };
        match &self.kind {
            Kind::Replace { regex, content } => {
                let mut done = 0;
                for (start, end) in regex.find_iter(text) {
                    made.push_str(&text[done..start]);
                    made.push_str(content);
                    done = end;
                    within(&made)?;
                }
                made.push_str(&text[done..]);
            }
            Kind::Prepend(content) => {
                made.push_str(content);
                made.push_str(text);
            }
            Kind::Other(wrapper) => {
                let mut rest = text;
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(piece_end(rest));
                    let mut piece = NormalizedString::from(piece);
                    // What the step cannot do is the error of the call itself.
                    if wrapper.normalize(&mut piece).is_ok() {
                        made.push_str(piece.get());
                    }
                    within(&made)?;
                    rest = after;
                }
            }
        }
        within(&made)?;
        Ok(made)
    }
}

/// The end of the first piece of `text`, which is not empty.
fn piece_end(text: &str) -> usize {
    match text.floor_char_boundary(PIECE_BYTES) {
        0 => text.len(),
        end => end,
    }
}

/// `literal` as a regular expression.
fn escaped(literal: &str) -> String {
    literal.chars().fold(String::new(), |mut pattern, c| {
        if c.is_ascii_punctuation() {
            pattern.push('\\');
        }
        pattern.push(c);
        pattern
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::{Growth, TooMuch};

    fn replace(pattern: Json, content: &str) -> Json {
        json!({"type": "Replace", "pattern": pattern, "content": content})
    }

    fn sequence(normalizers: &[Json]) -> Growth {
        Growth::new(json!({"type": "Sequence", "normalizers": normalizers})).unwrap()
    }

    #[test]
    fn a_text_that_grows_within_the_limit_passes_whatever_could_be() {
        let growth = sequence(&[
            json!({"type": "Prepend", "prepend": "▁"}),
            replace(json!({"String": " "}), "▁"),
        ]);
        assert_eq!(growth.check("a", 1000), Ok(12));
        // Twelve times the text would not fit; what it really makes does.
        assert_eq!(growth.check(&"a b ".repeat(100), 1000), Ok(3 + 400 + 200 * 2));
        let spaces = growth.check(&" ".repeat(400), 1000);
        assert_eq!(spaces, Err(TooMuch { step: "Replace".into(), limit: 1000 }));
    }

    #[test]
    fn steps_that_multiply_are_named_before_they_run() {
        let hundred = "o".repeat(100);
        let literal = || replace(json!({"String": "o"}), &hundred);
        let regex = || replace(json!({"Regex": "."}), &"x".repeat(1000));
        for steps in [vec![literal(); 4], vec![regex(); 5]] {
            let error = sequence(&steps).check("foo", 1 << 20).unwrap_err();
            assert_eq!(error.step, "Replace");
        }
        assert!(sequence(&vec![literal(); 4]).check("fine", 1 << 20).is_ok());
    }

    #[test]
    fn a_pattern_that_matches_nothing_grows_too() {
        for pattern in [json!({"String": ""}), json!({"Regex": "x*"})] {
            let growth = sequence(&[replace(pattern, &"y".repeat(100))]);
            assert!(growth.check(&"ab".repeat(100), 10_000).is_err());
        }
    }

    #[test]
    fn punctuation_in_a_pattern_is_itself() {
        let growth = sequence(&[replace(json!({"String": "a.*\\-"}), &"b".repeat(10_000))]);
        assert_eq!(growth.check("abc", 100), Ok(3));
        assert!(growth.check("a.*\\-", 100).is_err());
    }

    #[test]
    fn unicode_forms_are_measured_in_pieces() {
        let growth = Growth::new(json!({"type": "NFKC"})).unwrap();
        let ligatures = "\u{fdfa}".repeat(5000);
        assert_eq!(growth.check(&ligatures, 165_000), Ok(165_000));
        assert!(growth.check(&ligatures, 164_999).is_err());
        assert_eq!(growth.check(&"a".repeat(15_000), 15_000), Ok(15_000));
    }

    #[test]
    fn a_long_beginning_is_refused_and_no_normalizer_makes_nothing() {
        let error = Growth::new(json!({"type": "Prepend", "prepend": "x".repeat(65)}));
        assert!(error.unwrap_err().contains("`Prepend` puts 65 bytes before each text"));
        assert_eq!(Growth::new(Json::Null).unwrap().check("abc", 3), Ok(3));
    }
}
