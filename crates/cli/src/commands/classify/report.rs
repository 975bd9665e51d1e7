//! Reports of `ml classify` on a prompt, for programs (JSON) and for people (a row).

use inference_core::{ClassifyResult, TextModel};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::one_line;

/// Characters of a prompt that a row shows.
const SHOWN: usize = 60;

/// The object of `ml classify --json`. Log probabilities are natural logarithms.
#[derive(Debug, Serialize)]
pub struct Classified {
    /// The prompt's place among those given, from 0.
    index: usize,
    prompt: String,
    /// Ids of the prompt as the model saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens: Option<usize>,
    /// The most likely label.
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    /// In the order given.
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<Vec<Label>>,
    /// Without labels: the most likely next tokens, most likely first.
    #[serde(skip_serializing_if = "Option::is_none")]
    top: Option<Vec<Top>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// How likely a label is.
#[derive(Debug, Serialize)]
struct Label {
    label: String,
    /// Of the label's tokens, one after the other.
    logprob: f32,
    /// Its share among the labels.
    probability: f64,
    tokens: usize,
}

/// How likely a token is.
#[derive(Debug, Serialize)]
struct Top {
    id: u32,
    /// Its text alone; missing where it has none by itself, such as a part of a character.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    logprob: f32,
    probability: f64,
}

impl Classified {
    /// The result of the prompt at `index`, which has `ids` ids. Where there are no labels, the
    /// model tells the texts of so many tokens.
    pub fn new(
        index: usize,
        prompt: &str,
        ids: usize,
        result: &ClassifyResult,
        labels: &[String],
        (model, top): (&dyn TextModel, usize),
    ) -> Self {
        let scored = scored(result, labels);
        let best = scored.iter().reduce(|a, b| if b.logprob > a.logprob { b } else { a });
        Classified {
            index,
            prompt: prompt.to_owned(),
            prompt_tokens: Some(ids),
            label: best.map(|best| best.label.clone()),
            labels: (!labels.is_empty()).then_some(scored),
            top: labels.is_empty().then(|| most_likely(result, top, model)),
            error: None,
        }
    }

    /// A prompt that failed.
    pub fn failed(index: usize, prompt: &str, failure: &Failure) -> Self {
        Classified {
            index,
            prompt: prompt.to_owned(),
            prompt_tokens: None,
            label: None,
            labels: None,
            top: None,
            error: Some(failure.to_string()),
        }
    }
}

fn scored(result: &ClassifyResult, labels: &[String]) -> Vec<Label> {
    let most = result.labels.iter().map(|score| score.logprob).fold(f32::NEG_INFINITY, f32::max);
    let weight = |logprob: f32| f64::from(logprob - most).exp();
    let total: f64 = result.labels.iter().map(|score| weight(score.logprob)).sum();
    let one = |(label, score): (&String, &inference_core::LabelScore)| Label {
        label: label.clone(),
        logprob: score.logprob,
        probability: weight(score.logprob) / total,
        tokens: score.tokens,
    };
    labels.iter().zip(&result.labels).map(one).collect()
}

/// The most likely tokens, equals by id.
fn most_likely(result: &ClassifyResult, count: usize, model: &dyn TextModel) -> Vec<Top> {
    let Some(logits) = &result.logits else { return Vec::new() };
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|logit| f64::from(logit - most).exp()).sum();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let likelier = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    let count = count.min(order.len());
    if count > 0 && count < order.len() {
        order.select_nth_unstable_by(count - 1, likelier);
    }
    order.truncate(count);
    order.sort_by(likelier);
    let one = |id: usize| {
        let logprob = f64::from(logits[id] - most) - total.ln();
        let token = model.decode(&[id as u32]).ok();
        let token =
            token.filter(|text| !text.is_empty() && !text.contains(char::REPLACEMENT_CHARACTER));
        Top { id: id as u32, token, logprob: logprob as f32, probability: logprob.exp() }
    };
    order.into_iter().map(one).collect()
}

/// The columns of the table: one for each label, or one for the tokens.
pub struct Columns {
    labels: Vec<String>,
    /// The width of the column of the best label.
    width: usize,
}

impl Columns {
    /// The columns for these labels.
    pub fn new(labels: &[String]) -> Self {
        let labels: Vec<String> = labels.iter().map(|label| one_line(label)).collect();
        let widths = labels.iter().map(|label| label.chars().count());
        let width = widths.max().unwrap_or(0).max("LABEL".len());
        Columns { labels, width }
    }

    /// The first line.
    pub fn header(&self) -> String {
        if self.labels.is_empty() {
            return "PROMPT  NEXT TOKENS\n".to_owned();
        }
        let cells: String = self.labels.iter().map(|label| format!("  {label:>6}")).collect();
        format!("{:<width$}{cells}  PROMPT\n", "LABEL", width = self.width)
    }

    /// A prompt's lines.
    pub fn row(&self, found: &Classified) -> String {
        let prompt = shortened(&found.prompt);
        if let Some(top) = &found.top {
            let one = |top: &Top| {
                let text = top
                    .token
                    .as_ref()
                    .map_or_else(|| format!("#{}", top.id), |text| format!("{text:?}"));
                format!("  {:>6}  {text}\n", percent(top.probability))
            };
            return format!("{prompt}\n{}", top.iter().map(one).collect::<String>());
        }
        let label = one_line(found.label.as_deref().unwrap_or("-"));
        let cells = found.labels.iter().flatten().zip(&self.labels).map(|(score, label)| {
            let width = label.chars().count().max(6);
            format!("  {:>width$}", percent(score.probability))
        });
        let cells: String = cells.collect();
        format!("{label:<width$}{cells}  {prompt}\n", width = self.width)
    }
}

fn percent(probability: f64) -> String {
    format!("{:.1}%", probability * 100.0)
}

fn shortened(text: &str) -> String {
    let text = one_line(text);
    if text.chars().count() <= SHOWN {
        return text;
    }
    text.chars().take(SHOWN - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use fake_model::FakeModel;
    use inference_core::{ClassifyResult, LabelScore, Token};
    use serde_json::json;

    use super::{Classified, Columns};

    fn result(labels: &[f32], logits: Option<Vec<f32>>) -> ClassifyResult {
        let token =
            Token { id: 1, text: "a".into(), logprob: None, top_logprobs: vec![], logits: None };
        let score = |logprob: &f32| LabelScore { logprob: *logprob, tokens: 2 };
        ClassifyResult { token, logits, labels: labels.iter().map(score).collect() }
    }

    fn classified(labels: &[&str], result: &ClassifyResult, prompt: &str) -> Classified {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        let model = FakeModel::lines([]);
        Classified::new(3, prompt, 7, result, &labels, (&model, 2))
    }

    #[test]
    fn probabilities_are_shares_among_the_labels() {
        let scores = result(&[(0.1_f32).ln(), (0.3_f32).ln()], None);
        let found = classified(&["no", "yes"], &scores, "Is it?");
        let object = serde_json::to_value(&found).unwrap();
        assert_eq!((&object["index"], &object["prompt_tokens"]), (&json!(3), &json!(7)));
        assert_eq!((&object["label"], &object["prompt"]), (&json!("yes"), &json!("Is it?")));
        assert_eq!(object["labels"][0]["tokens"], 2);
        let share = |at: usize| object["labels"][at]["probability"].as_f64().unwrap();
        assert!((share(0) - 0.25).abs() < 1e-6 && (share(1) - 0.75).abs() < 1e-6, "{object}");
        assert!(object.get("top").is_none() && object.get("error").is_none());
        // Far below what f32 can hold as a probability.
        let far = classified(&["no", "yes"], &result(&[-5000.0, -5001.0], None), "x");
        let object = serde_json::to_value(&far).unwrap();
        assert!((object["labels"][0]["probability"].as_f64().unwrap() - 0.731).abs() < 1e-3);
    }

    #[test]
    fn without_labels_the_most_likely_tokens_are_told() {
        let logits = [0.1_f32, 0.4, 0.4, 0.1].map(f32::ln).to_vec();
        let object = serde_json::to_value(classified(&[], &result(&[], Some(logits)), "x"));
        let object = object.unwrap();
        assert_eq!((&object["top"][0]["id"], &object["top"][1]["id"]), (&json!(1), &json!(2)));
        assert_eq!(object["top"][0]["token"], "\u{1}");
        assert!((object["top"][0]["probability"].as_f64().unwrap() - 0.4).abs() < 1e-6);
        assert_eq!(object["top"].as_array().unwrap().len(), 2);
        assert!(object.get("labels").is_none() && object.get("label").is_none());
    }

    #[test]
    fn rows_stand_under_their_columns_and_obey_no_prompt() {
        let labels = ["positive".to_owned(), "no".to_owned()];
        let columns = Columns::new(&labels);
        let scores = result(&[0.0, f32::NEG_INFINITY], None);
        let long = format!("a\x1b[2J\n{}", "b".repeat(100));
        let row = columns.row(&classified(&["positive", "no"], &scores, &long));
        assert_eq!(columns.header(), "LABEL     positive      no  PROMPT\n");
        assert!(row.starts_with("positive    100.0%    0.0%  a [2J b"), "{row}");
        assert!(row.ends_with("b…\n") && !row.contains('\x1b'), "{row}");
    }
}
