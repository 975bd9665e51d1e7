//! The class by which transformers reads a SentencePiece model: each cuts text in a way of its own.

use serde_json::{Map, Value as Json};

/// A way of reading a SentencePiece model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// `LlamaTokenizer`.
    Llama,
    /// `CodeLlamaTokenizer`, with its tokens of a gap to fill.
    CodeLlama,
    /// `GemmaTokenizer`.
    Gemma,
    /// `T5Tokenizer`.
    T5,
    /// `XLMRobertaTokenizer`.
    XlmRoberta,
    /// No class of its own: all is done as the model's own settings say.
    Own,
}

/// `model_type` whose models are read as their own settings say, whatever class their files name.
const OWN: [&str; 22] = [
    "ernie4_5",
    "ernie4_5_moe",
    "glm",
    "glm4",
    "granite",
    "internlm2",
    "internlm3",
    "iquestcoder",
    "jamba",
    "llava",
    "llava_next",
    "minicpm3",
    "minicpmv",
    "ministral",
    "ministral3",
    "mistral",
    "mistral3",
    "mixtral",
    "nemotron",
    "phi3",
    "phimoe",
    "umt5",
];

/// Classes of transformers that read SentencePiece models in ways that are not written here.
const OTHERS: [&str; 26] = [
    "AlbertTokenizer",
    "BarthezTokenizer",
    "BartphoTokenizer",
    "BertGenerationTokenizer",
    "BigBirdTokenizer",
    "CamembertTokenizer",
    "CpmTokenizer",
    "DebertaV2Tokenizer",
    "FNetTokenizer",
    "GPTSw3Tokenizer",
    "LayoutXLMTokenizer",
    "M2M100Tokenizer",
    "MBart50Tokenizer",
    "MBartTokenizer",
    "MLukeTokenizer",
    "MarianTokenizer",
    "NllbTokenizer",
    "PLBartTokenizer",
    "PegasusTokenizer",
    "ReformerTokenizer",
    "RemBertTokenizer",
    "SeamlessM4TTokenizer",
    "SiglipTokenizer",
    "UdopTokenizer",
    "XGLMTokenizer",
    "XLNetTokenizer",
];

impl Class {
    /// The class that transformers 5 takes for a model's `config.json` and
    /// `tokenizer_config.json`.
    ///
    /// # Errors
    /// The name of a class whose way of reading is not known here.
    pub fn of(model: &Map<String, Json>, tokenizer: &Map<String, Json>) -> Result<Class, String> {
        let text = |object: &Map<String, Json>, key: &str| {
            object.get(key).and_then(Json::as_str).map(str::to_owned)
        };
        let model_type = text(model, "model_type").unwrap_or_default();
        if OWN.contains(&&*model_type) {
            return Ok(Class::Own);
        }
        let named = text(tokenizer, "tokenizer_class").or_else(|| text(model, "tokenizer_class"));
        let Some(named) = named else {
            return Ok(match &*model_type {
                "t5" | "mt5" => Class::T5,
                "xlm-roberta" => Class::XlmRoberta,
                gemma if is_gemma(gemma) => Class::Gemma,
                _ => Class::Own,
            });
        };
        Ok(match named.strip_suffix("Fast").unwrap_or(&named) {
            "LlamaTokenizer" => Class::Llama,
            "CodeLlamaTokenizer" => Class::CodeLlama,
            "GemmaTokenizer" => Class::Gemma,
            "T5Tokenizer" => Class::T5,
            "XLMRobertaTokenizer" => Class::XlmRoberta,
            other if OTHERS.contains(&other) => return Err(named),
            _ => Class::Own,
        })
    }

    /// The special tokens that the class has where the files name none.
    pub fn defaults(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Class::Llama | Class::CodeLlama => {
                &[("unk_token", "<unk>"), ("bos_token", "<s>"), ("eos_token", "</s>")]
            }
            Class::Gemma => &[
                ("unk_token", "<unk>"),
                ("bos_token", "<bos>"),
                ("eos_token", "<eos>"),
                ("pad_token", "<pad>"),
                ("mask_token", "<mask>"),
            ],
            Class::T5 => &[("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")],
            Class::XlmRoberta => &[
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("sep_token", "</s>"),
                ("cls_token", "<s>"),
                ("unk_token", "<unk>"),
                ("pad_token", "<pad>"),
                ("mask_token", "<mask>"),
            ],
            Class::Own => &[],
        }
    }
}

fn is_gemma(model_type: &str) -> bool {
    let known = ["gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text"];
    known.contains(&model_type) || ["recurrent_gemma", "shieldgemma2"].contains(&model_type)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value as Json, json};

    use super::Class;

    fn of(model: Json, tokenizer: Json) -> Result<Class, String> {
        let object = |json: Json| -> Map<String, Json> { serde_json::from_value(json).unwrap() };
        Class::of(&object(model), &object(tokenizer))
    }

    #[test]
    fn the_class_is_the_one_that_transformers_takes() {
        for (model_type, named, class) in [
            ("llama", json!("LlamaTokenizer"), Class::Llama),
            ("llama", json!("LlamaTokenizerFast"), Class::Llama),
            ("llama", json!(null), Class::Own),
            ("mistral", json!("LlamaTokenizer"), Class::Own),
            ("internlm2", json!("InternLM2Tokenizer"), Class::Own),
            ("baichuan", json!("BaichuanTokenizer"), Class::Own),
            ("gemma", json!("GemmaTokenizer"), Class::Gemma),
            ("gemma", json!("LlamaTokenizer"), Class::Llama),
            ("gemma2", json!(null), Class::Gemma),
            ("t5", json!(null), Class::T5),
            ("xlm-roberta", json!("XLMRobertaTokenizer"), Class::XlmRoberta),
            ("llama", json!("CodeLlamaTokenizer"), Class::CodeLlama),
        ] {
            let model = json!({"model_type": model_type});
            let got = of(model, json!({"tokenizer_class": named})).unwrap();
            assert_eq!(got, class, "{model_type} {named}");
        }
        let in_model = of(json!({"tokenizer_class": "T5Tokenizer"}), json!({}));
        assert_eq!(in_model, Ok(Class::T5));
        let error = of(json!({}), json!({"tokenizer_class": "AlbertTokenizer"}));
        assert_eq!(error, Err("AlbertTokenizer".into()));
    }
}
