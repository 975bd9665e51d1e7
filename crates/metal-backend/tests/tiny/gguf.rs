//! Files of GGUF of a few kilobytes, made at test time and easy to damage.

use std::fs;
use std::path::PathBuf;

use half::f16;
use tempfile::TempDir;

/// A value of the metadata.
#[derive(Clone)]
pub enum Meta {
    Whole(u32),
    Float(f32),
    Text(String),
    Flag(bool),
    List(Vec<Meta>),
}

impl Meta {
    fn kind(&self) -> u32 {
        match self {
            Meta::Whole(_) => 4,
            Meta::Float(_) => 6,
            Meta::Flag(_) => 7,
            Meta::Text(_) => 8,
            Meta::List(_) => 9,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Meta::Whole(number) => out.extend(number.to_le_bytes()),
            Meta::Float(number) => out.extend(number.to_le_bytes()),
            Meta::Flag(flag) => out.push(u8::from(*flag)),
            Meta::Text(text) => write_text(text, out),
            Meta::List(values) => {
                out.extend(values.first().map_or(4, Meta::kind).to_le_bytes());
                out.extend((values.len() as u64).to_le_bytes());
                values.iter().for_each(|value| value.write(out));
            }
        }
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// How a tensor is stored.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    F32,
    Q8_0,
}

/// A tensor, whose outermost dimension comes first here.
#[derive(Clone)]
pub struct Stored {
    pub name: String,
    pub shape: Vec<u64>,
    pub kind: Kind,
    pub bytes: Vec<u8>,
}

/// A file before it is written.
#[derive(Clone)]
pub struct GgufFile {
    pub metadata: Vec<(String, Meta)>,
    pub tensors: Vec<Stored>,
    /// All tensors of a name without its layer share their bytes.
    pub shares: bool,
}

/// Values of hidden states, and of a head.
const HIDDEN: u64 = 64;
const HEAD: u64 = 32;
const INNER: u64 = 96;

impl GgufFile {
    /// A model of `layers` layers of the architecture `name`, which is one of Llama's form.
    pub fn of(name: &str, layers: u32) -> GgufFile {
        let number = |key: &str, number: u32| (format!("{name}.{key}"), Meta::Whole(number));
        let texts = |all: Vec<String>| Meta::List(all.into_iter().map(Meta::Text).collect());
        let letters = ('a'..='z').map(String::from);
        let others = ["Ġ", "Ċ", "Ã", "©", "ab", "</s>"].map(String::from);
        let tokens: Vec<String> = letters.chain(others).collect();
        let kinds = tokens.iter().map(|token| Meta::Whole(if token == "</s>" { 3 } else { 1 }));
        let kinds = Meta::List(kinds.collect());
        let vocab = tokens.len() as u64;
        let tokenizer = |key: &str| format!("tokenizer.ggml.{key}");
        let metadata = vec![
            ("general.architecture".into(), Meta::Text(name.into())),
            number("block_count", layers),
            number("context_length", 512),
            number("embedding_length", HIDDEN as u32),
            number("feed_forward_length", INNER as u32),
            number("attention.head_count", 2),
            number("attention.head_count_kv", 1),
            number("attention.key_length", HEAD as u32),
            number("attention.value_length", HEAD as u32),
            (format!("{name}.attention.layer_norm_rms_epsilon"), Meta::Float(1e-6)),
            (format!("{name}.rope.freq_base"), Meta::Float(10_000.0)),
            (tokenizer("model"), Meta::Text("gpt2".into())),
            (tokenizer("pre"), Meta::Text("llama-bpe".into())),
            (tokenizer("tokens"), texts(tokens)),
            (tokenizer("token_type"), kinds),
            (tokenizer("merges"), texts(vec!["a b".into()])),
            (tokenizer("eos_token_id"), Meta::Whole(vocab as u32 - 1)),
            (tokenizer("add_bos_token"), Meta::Flag(false)),
        ];
        let mut file = GgufFile { metadata, tensors: Vec::new(), shares: false };
        file.put("token_embd.weight", &[vocab, HIDDEN], Kind::Q8_0);
        file.put("output_norm.weight", &[HIDDEN], Kind::F32);
        for layer in 0..layers {
            let mut put = |name: &str, shape: &[u64]| {
                let kind = if shape.len() > 1 { Kind::Q8_0 } else { Kind::F32 };
                file.put(&format!("blk.{layer}.{name}.weight"), shape, kind);
            };
            put("attn_norm", &[HIDDEN]);
            put("ffn_norm", &[HIDDEN]);
            put("attn_q", &[2 * HEAD, HIDDEN]);
            put("attn_k", &[HEAD, HIDDEN]);
            put("attn_v", &[HEAD, HIDDEN]);
            put("attn_output", &[HIDDEN, 2 * HEAD]);
            put("ffn_gate", &[INNER, HIDDEN]);
            put("ffn_up", &[INNER, HIDDEN]);
            put("ffn_down", &[HIDDEN, INNER]);
            if name.starts_with("gemma3") || name == "qwen3" {
                put("attn_q_norm", &[HEAD]);
                put("attn_k_norm", &[HEAD]);
            }
            if name.starts_with("gemma3") {
                put("post_attention_norm", &[HIDDEN]);
                put("post_ffw_norm", &[HIDDEN]);
            }
        }
        if name == "gemma3" {
            file.set("gemma3.attention.sliding_window", Meta::Whole(64));
        }
        file
    }

    /// Sets a value of the metadata.
    pub fn set(&mut self, key: &str, value: Meta) {
        self.metadata.retain(|(known, _)| known != key);
        self.metadata.push((key.to_owned(), value));
    }

    /// Adds a tensor of repeatable values.
    pub fn put(&mut self, name: &str, shape: &[u64], kind: Kind) {
        let own = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let seed = own.map_or(name, |(_, own)| own);
        let mut state = seed.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as u32
        };
        let count = shape.iter().product::<u64>() as usize;
        let mut bytes = Vec::new();
        match kind {
            Kind::F32 => {
                let value = |random: u32| 1.0 + random as f32 / (1 << 24) as f32;
                (0..count).for_each(|_| bytes.extend(value(next()).to_le_bytes()));
            }
            Kind::Q8_0 => {
                for _ in 0..count / 32 {
                    // All bits of a fraction of 10, which bf16 does not have.
                    let scale = f16::from_bits(0x1400 | (next() & 0x3ff) as u16);
                    bytes.extend(scale.to_le_bytes());
                    bytes.extend((0..32).map(|_| next() as u8));
                }
            }
        }
        self.tensors.push(Stored { name: name.into(), shape: shape.to_vec(), kind, bytes });
    }

    /// The file with its numbers in F32.
    pub fn in_f32(mut self) -> GgufFile {
        for stored in self.tensors.iter_mut().filter(|stored| stored.kind == Kind::Q8_0) {
            let block = |block: &[u8]| -> Vec<f32> {
                let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
                block[2..].iter().map(|code| scale * f32::from(*code as i8)).collect()
            };
            let values = stored.bytes.chunks_exact(34).flat_map(block);
            stored.bytes = values.flat_map(f32::to_le_bytes).collect();
            stored.kind = Kind::F32;
        }
        self
    }

    /// The bytes of the file, and how many of them are its header.
    pub fn bytes(&self) -> (Vec<u8>, usize) {
        const ALIGNMENT: usize = 32;
        let mut out = b"GGUF\x03\0\0\0".to_vec();
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            write_text(key, &mut out);
            out.extend(value.kind().to_le_bytes());
            value.write(&mut out);
        }
        let mut data: Vec<u8> = Vec::new();
        let mut known: Vec<(&str, u64)> = Vec::new();
        for stored in &self.tensors {
            write_text(&stored.name, &mut out);
            out.extend((stored.shape.len() as u32).to_le_bytes());
            stored.shape.iter().rev().for_each(|size| out.extend(size.to_le_bytes()));
            out.extend(if stored.kind == Kind::F32 { 0u32 } else { 8 }.to_le_bytes());
            let own = stored.name.split_once('.').map_or("", |(_, rest)| rest);
            let own = own.split_once('.').map_or(own, |(_, own)| own);
            let place = known.iter().find(|(name, _)| self.shares && *name == own);
            let start = place.map_or(data.len() as u64, |(_, start)| *start);
            out.extend(start.to_le_bytes());
            if place.is_none() {
                known.push((own, start));
                data.extend(&stored.bytes);
                data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
            }
        }
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        let header = out.len();
        out.extend(data);
        (out, header)
    }

    /// Writes the file into a folder of its own.
    pub fn write(&self) -> (TempDir, PathBuf) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("model.gguf");
        fs::write(&path, self.bytes().0).unwrap();
        (folder, path)
    }
}
