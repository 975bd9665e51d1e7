//! Texts for models that embed or score them: ids of a text, and what the model puts around one or
//! two.

use serde_json::Value as Json;
use tokenizers::{Encoding, Token};

use crate::TextError;
use crate::marks::{Author, free_mark};
use crate::tokenizer::{Tokenizer, guarded};

/// The ids that a tokenizer puts around a text, and around and between the two texts of a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The ids before a text and behind it.
    pub single: [Vec<u32>; 2],
    /// The ids before a pair, between its texts and behind it, each with the kind of its text: 0
    /// or 1.
    pub pair: [Vec<(u32, u32)>; 3],
    /// The kinds of the first and of the second text of a pair.
    pub kinds: [u32; 2],
}

impl Frame {
    /// Lets all tokens of a pair be of the kind 0.
    pub fn forget_kinds(&mut self) {
        self.kinds = [0; 2];
        self.pair.iter_mut().flatten().for_each(|(_, kind)| *kind = 0);
    }
}

impl Tokenizer {
    /// Returns the ids that the post-processor of tokenizer.json puts around texts.
    ///
    /// # Errors
    /// [`TextError::Encode`] where it fails, or drops a text.
    pub fn frame(&self) -> Result<Frame, TextError> {
        // Ids that no vocabulary has stand for the texts.
        const FIRST: u32 = u32::MAX;
        const SECOND: u32 = u32::MAX - 1;
        let of = |id: u32, kind: u32| {
            Encoding::from_tokens(vec![Token::new(id, "a".into(), (0, 1))], kind)
        };
        let processed = |pair: Option<Encoding>| {
            let tokenizer = &self.inner.tokenizer;
            let framed = guarded(|| {
                tokenizer.post_process(of(FIRST, 0), pair, true).map_err(|err| err.to_string())
            });
            let framed = framed.map_err(TextError::Encode)?;
            let ids = framed.get_ids().iter().copied();
            Ok(ids.zip(framed.get_type_ids().iter().copied()).collect::<Vec<_>>())
        };
        let dropped = || TextError::Encode("the post-processor drops a text".into());
        let place = |framed: &[(u32, u32)], wanted: u32| {
            framed.iter().position(|(id, _)| *id == wanted).ok_or_else(dropped)
        };
        let alone = processed(None)?;
        let at = place(&alone, FIRST)?;
        let ids = |framed: &[(u32, u32)]| framed.iter().map(|(id, _)| *id).collect();
        let both = processed(Some(of(SECOND, 1)))?;
        let (first, second) = (place(&both, FIRST)?, place(&both, SECOND)?);
        if second < first {
            return Err(TextError::Encode("the post-processor swaps the texts of a pair".into()));
        }
        Ok(Frame {
            single: [ids(&alone[..at]), ids(&alone[at + 1..])],
            pair: [
                both[..first].to_vec(),
                both[first + 1..second].to_vec(),
                both[second + 1..].to_vec(),
            ],
            kinds: [both[first].1, both[second].1],
        })
    }

    /// Ids of `prompt` and the text behind it. Special tokens are recognised in the prompt alone;
    /// in the text they are text. Nothing is put around both.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode); [`TextError::Input`] for a text that holds all
    /// noncharacters U+FDD0 to U+FDEF.
    pub fn encode_behind(&self, prompt: &str, text: &str) -> Result<Vec<u32>, TextError> {
        let mark = free_mark([prompt, text].into_iter()).ok_or_else(|| {
            let reason = "holds all noncharacters U+FDD0 to U+FDEF".to_owned();
            TextError::Input { name: "text".into(), reason }
        })?;
        let mut marked = Json::String(text.to_owned());
        self.inner.control.mark(&mut marked, Author::Other, mark);
        let joined = format!("{prompt}{}", marked.as_str().unwrap_or(text));
        self.check(&joined)?;
        guarded(|| self.inner.plain.encode(&self.inner.tokenizer, &joined, Some(mark)))
            .map_err(TextError::Encode)
    }
}
