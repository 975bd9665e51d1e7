//! Text between two others, for models whose tokenizers have marks for it.

use inference_core::TextModel;
use inference_text::answer::mark_id;

use crate::error::{ApiError, Result};

/// The marks of a family, and the order of the parts.
struct Marks {
    prefix: &'static str,
    suffix: &'static str,
    /// The beginning of the text in the middle; empty where that is behind the last part.
    middle: &'static str,
    order: Order,
}

#[derive(Clone, Copy)]
enum Order {
    PrefixFirst,
    SuffixFirst,
}

/// The marks of families whose models were trained to fill in.
const FAMILIES: [Marks; 9] = [
    // Qwen's coders, CodeGemma.
    first("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    // StarCoder, Granite.
    first("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    // SantaCoder.
    first("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    first("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    // CodeLlama, whose marks have a blank in front.
    first("▁<PRE>", "▁<SUF>", "▁<MID>"),
    // GLM.
    first("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    // LFM, ERNIE and others.
    first("<|fim_pre|>", "<|fim_suf|>", "<|fim_mid|>"),
    Marks {
        prefix: "<[fim-prefix]>",
        suffix: "<[fim-suffix]>",
        middle: "<[fim-middle]>",
        order: Order::SuffixFirst,
    },
    // Codestral.
    Marks { prefix: "[PREFIX]", suffix: "[SUFFIX]", middle: "", order: Order::SuffixFirst },
];

const fn first(prefix: &'static str, suffix: &'static str, middle: &'static str) -> Marks {
    Marks { prefix, suffix, middle, order: Order::PrefixFirst }
}

/// Tokens that end what is filled in, where a model has them.
const ENDS: [&str; 8] = [
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<|endoftext|>",
    "<file_sep>",
    "<EOT>",
    "▁<EOT>",
    "<|cursor|>",
];

/// The separator of files in a prompt, with the name of the repository in front.
const FILES: (&str, &str) = ("<|repo_name|>", "<|file_sep|>");

/// A prompt whose answer belongs between two texts.
#[derive(Debug, PartialEq, Eq)]
pub struct Infill {
    /// The prompt.
    pub text: String,
    /// Its ids.
    pub ids: Vec<u32>,
    /// Tokens that end the answer, beside the model's own.
    pub ends: Vec<u32>,
}

/// A file that is shown before the one that is filled in.
#[derive(Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The prompt for the text between `prefix` and `suffix`, behind the files `shown`. The request's
/// field `field` has the suffix.
///
/// # Errors
/// The tokenizer of `model` has no marks for it, or cannot encode the texts.
pub fn infill(
    model: &dyn TextModel,
    shown: &[Shown],
    (prefix, suffix): (&str, &str),
    field: &str,
) -> Result<Infill> {
    let id = |mark: &str| mark_id(model, mark);
    let has = |marks: &&Marks| {
        let middle = marks.middle.is_empty() || id(marks.middle).is_some();
        middle && id(marks.prefix).is_some() && id(marks.suffix).is_some()
    };
    let Some(marks) = FAMILIES.iter().find(has) else {
        let reason = "the model has no tokens that mark what is to be filled in";
        return Err(ApiError::unsupported(field, reason));
    };
    // A text that holds a mark would be taken for it.
    let own = [marks.prefix, marks.suffix, marks.middle, FILES.0, FILES.1];
    let texts = shown.iter().map(|file| file.text.as_str()).chain([prefix, suffix]);
    for text in texts {
        let is_in = |mark: &&&str| !mark.is_empty() && text.contains(**mark) && id(mark).is_some();
        if let Some(mark) = own.iter().find(is_in) {
            let reason =
                format!("a text has `{mark}`, which the model takes for the end of a part");
            return Err(ApiError::value(field, reason));
        }
    }
    let mut text = String::new();
    if id(FILES.0).is_some() && id(FILES.1).is_some() && !shown.is_empty() {
        text.push_str(&format!("{}repository\n", FILES.0));
        shown.iter().for_each(|file| {
            text.push_str(&format!("{}{}\n{}\n", FILES.1, file.name, file.text));
        });
        text.push_str(FILES.1);
    } else {
        shown.iter().for_each(|file| text.push_str(&format!("{}\n\n", file.text)));
    }
    let Marks { prefix: before, suffix: after, middle, order } = marks;
    text.push_str(&match order {
        Order::PrefixFirst => format!("{before}{prefix}{after}{suffix}{middle}"),
        Order::SuffixFirst => format!("{after}{suffix}{before}{prefix}{middle}"),
    });
    let ids = model.encode(&text)?;
    Ok(Infill { text, ids, ends: ENDS.iter().filter_map(|end| id(end)).collect() })
}

#[cfg(test)]
mod tests {
    use fake_model::FakeModel;

    use super::infill;

    #[test]
    fn a_model_without_marks_fills_nothing_in() {
        let error = infill(&FakeModel::default(), &[], ("a", "b"), "suffix").unwrap_err();
        assert_eq!(error.param.as_deref(), Some("suffix"));
    }
}
