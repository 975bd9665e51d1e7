//! The ids around a text of a tokenizer that was converted, whose file does not say them.

use serde_json::{Map, Value as Json, json};
use tokenizers::PostProcessorWrapper;

/// Which of the named tokens stand around a text, or around the two texts of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Around {
    /// `bos_token` before each text, `eos_token` behind it.
    Ends { bos: bool, eos: bool },
    /// `eos_token` behind each text.
    T5,
    /// `bos_token` before the first text, `eos_token` behind each and before the second.
    XlmRoberta,
}

impl Around {
    /// The step that puts them there. A token that `named` does not have is left out.
    ///
    /// # Errors
    /// The library's, for a token that it does not take.
    pub fn processor(
        self,
        named: &[(&'static str, String)],
        id_of: impl Fn(&str) -> Option<u32>,
    ) -> Result<PostProcessorWrapper, String> {
        let mut known = Map::new();
        let mut token = |name: &str, kind: u32| -> Option<Json> {
            let (_, token) = named.iter().find(|(known, _)| *known == name)?;
            let id = id_of(token)?;
            known.insert(token.clone(), json!({"id": token, "ids": [id], "tokens": [token]}));
            Some(json!({"SpecialToken": {"id": token, "type_id": kind}}))
        };
        let text = |id: &str, kind: u32| Some(json!({"Sequence": {"id": id, "type_id": kind}}));
        let (bos, eos) = ("bos_token", "eos_token");
        let (single, pair) = match self {
            Around::Ends { bos: begins, eos: ends } => {
                let mut around = |id: &str, kind: u32| {
                    let before = if begins { token(bos, kind) } else { None };
                    let behind = if ends { token(eos, kind) } else { None };
                    [before, text(id, kind), behind]
                };
                let (first, second) = (around("A", 0), around("B", 1));
                (first.to_vec(), [first, second].concat())
            }
            Around::T5 => {
                let first = [text("A", 0), token(eos, 0)];
                let second = [text("B", 0), token(eos, 0)];
                (first.to_vec(), [first, second].concat())
            }
            Around::XlmRoberta => {
                let first = [token(bos, 0), text("A", 0), token(eos, 0)];
                let second = [token(eos, 0), text("B", 0), token(eos, 0)];
                (first.to_vec(), [first, second].concat())
            }
        };
        let list = |parts: Vec<Option<Json>>| parts.into_iter().flatten().collect::<Json>();
        serde_json::from_value(json!({
            "type": "TemplateProcessing", "single": list(single), "pair": list(pair),
            "special_tokens": known
        }))
        .map_err(|error| error.to_string())
    }
}
