//! Reports of `ml inspect` on a prompt's attention: a table, JSON, tensors.

use std::collections::HashMap;

use inference_core::{AttentionSnapshot, LayerAttention, TextModel};
use safetensors::tensor::{Dtype, TensorView};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::failure::{Failure, Result};

/// Characters of a token that a table or a heat map shows.
const SHOWN: usize = 14;

/// The attention of a prompt, with its tokens.
pub struct Attention {
    /// The prompt's tokens.
    pub tokens: Vec<Token>,
    /// The attention as computed; every layer has its weights.
    pub snapshot: AttentionSnapshot,
}

/// A token of the prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Token {
    id: u32,
    /// Its text alone; missing where it has none by itself, such as a special token.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl Token {
    fn new(id: u32, model: &dyn TextModel) -> Token {
        let told = |text: &String| !text.is_empty() && !text.contains(char::REPLACEMENT_CHARACTER);
        Token { id, token: model.decode(&[id]).ok().filter(told) }
    }

    /// A short name without blanks and control characters; the id where there is no text.
    pub fn label(&self) -> String {
        let Some(text) = &self.token else { return format!("#{}", self.id) };
        let seen = |c: char| match c {
            ' ' => '␣',
            '\n' => '⏎',
            '\t' => '⇥',
            c if c.is_control() || c.is_whitespace() => '·',
            c => c,
        };
        let shown: String = text.chars().take(SHOWN).map(seen).collect();
        if text.chars().count() > SHOWN { shown + "…" } else { shown }
    }
}

impl Attention {
    /// The attention of the prompt `ids`, whose tokens `model` reads.
    ///
    /// # Errors
    /// A backend that does not tell the weights of all positions.
    pub fn new(snapshot: AttentionSnapshot, ids: &[u32], model: &dyn TextModel) -> Result<Self> {
        let n = ids.len();
        let is_whole = |layer: &LayerAttention| {
            let weights = layer.weights.as_ref().map(|weights| weights.values.len());
            weights == Some(layer.n_heads * n * layer.positions.len())
        };
        if snapshot.seq_len != n || !snapshot.layers.iter().all(is_whole) {
            return Err(Failure::Other("the backend tells no attention weights".into()));
        }
        Ok(Attention { tokens: ids.iter().map(|id| Token::new(*id, model)).collect(), snapshot })
    }

    /// The object of `--json`. Tensors are flattened, the last dimension first.
    pub fn report(&self, values: bool) -> Value {
        let layers = self.snapshot.layers.iter().map(|layer| self.layer_report(layer, values));
        json!({
            "architecture": self.snapshot.architecture,
            "seq_len": self.snapshot.seq_len,
            "tokens": self.tokens,
            "layers": layers.collect::<Vec<_>>(),
        })
    }

    fn layer_report(&self, layer: &LayerAttention, values: bool) -> Value {
        let entropy: Vec<_> = (0..layer.n_heads).map(|head| layer.head_entropy(head)).collect();
        let parts = self.parts(layer);
        let shapes: Map<_, _> =
            parts.iter().map(|(name, shape, _)| ((*name).to_owned(), json!(shape))).collect();
        let mut object = json!({
            "layer": layer.layer,
            "n_heads": layer.n_heads,
            "n_kv_heads": layer.n_kv_heads,
            "head_dim": layer.head_dim,
            "positions": layer.positions,
            "shapes": shapes,
            "entropy": entropy,
        });
        for (name, _, numbers) in parts.iter().filter(|part| values && part.0 != "entropy") {
            object[*name] = json!(numbers);
        }
        object
    }

    /// A layer's tensors: name, shape, values.
    fn parts<'a>(&self, layer: &'a LayerAttention) -> Vec<(&'static str, Vec<usize>, &'a [f32])> {
        let (n, seen) = (self.snapshot.seq_len, layer.positions.len());
        let mut parts = vec![
            ("queries", vec![layer.n_heads, n, layer.head_dim], &layer.queries[..]),
            ("keys", vec![layer.n_kv_heads, seen, layer.head_dim], &layer.keys[..]),
        ];
        if let Some(weights) = &layer.weights {
            parts.push(("weights", vec![layer.n_heads, n, seen], &weights.values));
            parts.push(("entropy", vec![layer.n_heads, n], &weights.entropy));
        }
        parts
    }

    /// A safetensors file with `ids`, and for each layer `layers.N.queries`, `keys`, `weights`,
    /// `entropy` and `positions`.
    ///
    /// # Errors
    /// Tensors that the format cannot hold.
    pub fn safetensors(&self) -> Result<Vec<u8>> {
        let words =
            |words: &mut dyn Iterator<Item = u32>| words.flat_map(u32::to_le_bytes).collect();
        let mut tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
        let ids: Vec<u8> = words(&mut self.tokens.iter().map(|token| token.id));
        tensors.push(("ids".into(), Dtype::U32, vec![self.tokens.len()], ids));
        for layer in &self.snapshot.layers {
            let prefix = format!("layers.{}", layer.layer);
            for (name, shape, values) in self.parts(layer) {
                let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                tensors.push((format!("{prefix}.{name}"), Dtype::F32, shape, bytes));
            }
            let positions = words(&mut layer.positions.iter().map(|position| *position as u32));
            let shape = vec![layer.positions.len()];
            tensors.push((format!("{prefix}.positions"), Dtype::U32, shape, positions));
        }
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            TensorView::new(*dtype, shape.clone(), bytes).map(|view| (name.as_str(), view))
        });
        let about = [("architecture".to_owned(), self.snapshot.architecture.clone())];
        let about: HashMap<String, String> = about.into();
        let file = views.collect::<Result<Vec<_>, _>>();
        file.and_then(|views| safetensors::serialize(views, Some(about)))
            .map_err(|error| Failure::Other(format!("--safetensors: {error}")))
    }
}

/// The table for a person: a row for each head.
pub fn table(attention: &Attention) -> String {
    let label = |position: usize| attention.tokens.get(position).map_or("-".into(), Token::label);
    let mut text = format!("LAYER  HEAD  ENTROPY  {:<24}LAST TOKEN LOOKS AT\n", "MOST ATTENDED");
    for layer in &attention.snapshot.layers {
        let seen = layer.positions.len();
        let share = |(at, weight): (usize, f32)| {
            let position = layer.positions.get(at).copied().unwrap_or_default();
            format!("{:>4.0}% {}", weight * 100.0, label(position))
        };
        for head in 0..layer.n_heads {
            let weights = layer.head_weights(head).unwrap_or_default();
            let entropy = mean(layer.head_entropy(head).unwrap_or_default());
            let rows = || weights.chunks_exact(seen);
            let received = |key: usize| rows().map(|row| row[key]).sum::<f32>();
            let all: Vec<f32> = (0..seen).map(|key| received(key) / rows().len() as f32).collect();
            let last = rows().next_back().unwrap_or_default();
            text += &format!(
                "{:>5}  {head:>4}  {entropy:>7.2}  {:<24}{}\n",
                layer.layer,
                share(most(&all)),
                share(most(last)),
            );
        }
    }
    text
}

/// The mean of `values`; 0 of none.
pub fn mean(values: &[f32]) -> f32 {
    values.iter().sum::<f32>() / values.len().max(1) as f32
}

/// The largest value, the first one of equals.
fn most(values: &[f32]) -> (usize, f32) {
    let larger = |best: (usize, f32), (at, value): (usize, &f32)| {
        if *value > best.1 { (at, *value) } else { best }
    };
    values.iter().enumerate().fold((0, 0.0), larger)
}
