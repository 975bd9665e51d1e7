//! The name that a file of GGUF has for the way in which its weights are quantised.

use std::collections::BTreeMap;

use super::blocks::Kind;
use super::reader::{Header, Value};

/// A bit of the number by which its writer guessed it.
const GUESSED: u64 = 1 << 10;

/// The ways by the number that `general.file_type` has for them.
const TYPES: [(u64, &str); 37] = [
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (7, "Q8_0"),
    (8, "Q5_0"),
    (9, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
    (18, "Q6_K"),
    (19, "IQ2_XXS"),
    (20, "IQ2_XS"),
    (21, "Q2_K_S"),
    (22, "IQ3_XS"),
    (23, "IQ3_XXS"),
    (24, "IQ1_S"),
    (25, "IQ4_NL"),
    (26, "IQ3_S"),
    (27, "IQ3_M"),
    (28, "IQ2_S"),
    (29, "IQ2_M"),
    (30, "IQ4_XS"),
    (31, "IQ1_M"),
    (32, "BF16"),
    (33, "Q4_0_4_4"),
    (34, "Q4_0_4_8"),
    (35, "Q4_0_8_8"),
    (36, "TQ1_0"),
    (37, "TQ2_0"),
    (38, "MXFP4"),
    (39, "NVFP4"),
];

/// The name of the way, such as `Q4_K_M`: what the metadata say, else the kind that most weights
/// have.
pub(super) fn file_type(header: &Header) -> String {
    let told = header.metadata.get("general.file_type").and_then(Value::whole);
    let told = told.map(|number| number & !GUESSED);
    let named = TYPES.iter().find(|(number, _)| Some(*number) == told);
    named.map_or_else(|| kind_of_most(header), |(_, name)| (*name).to_owned())
}

fn kind_of_most(header: &Header) -> String {
    let mut values = BTreeMap::<&str, u64>::new();
    for stored in header.tensors.values().filter(|stored| stored.shape.len() > 1) {
        let count = stored.shape.iter().fold(1, |count: u64, side| count.saturating_mul(*side));
        let sum = values.entry(name(stored.kind)).or_default();
        *sum = sum.saturating_add(count);
    }
    let most = values.into_iter().max_by_key(|(_, count)| *count);
    most.map_or_else(String::new, |(name, _)| name.to_owned())
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::F32 => "F32",
        Kind::F16 => "F16",
        Kind::Bf16 => "BF16",
        Kind::Q4_0 => "Q4_0",
        Kind::Q4_1 => "Q4_1",
        Kind::Q5_0 => "Q5_0",
        Kind::Q5_1 => "Q5_1",
        Kind::Q8_0 => "Q8_0",
        Kind::Q2K => "Q2_K",
        Kind::Q3K => "Q3_K",
        Kind::Q4K => "Q4_K",
        Kind::Q5K => "Q5_K",
        Kind::Q6K => "Q6_K",
        Kind::Iq4Nl => "IQ4_NL",
        Kind::Iq4Xs => "IQ4_XS",
        Kind::Mxfp4 => "MXFP4",
    }
}

#[cfg(test)]
mod tests {
    use super::super::reader::Stored;
    use super::*;

    fn header(told: Option<u64>) -> Header {
        let stored =
            |kind, rows| Stored { kind, shape: vec![rows, 256], start: 0, bytes: 0, part: 0 };
        let tensors = [("a", stored(Kind::Q6K, 2)), ("b", stored(Kind::Q4K, 3))];
        let metadata = told.map(|told| ("general.file_type".to_owned(), Value::Unsigned(told)));
        Header {
            metadata: metadata.into_iter().collect(),
            tensors: tensors.map(|(name, stored)| (name.to_owned(), stored)).into(),
        }
    }

    #[test]
    fn a_file_is_called_as_it_says_and_else_by_most_of_its_weights() {
        assert_eq!(file_type(&header(Some(15))), "Q4_K_M");
        assert_eq!(file_type(&header(Some(15 | GUESSED))), "Q4_K_M");
        assert_eq!(file_type(&header(Some(3))), "Q4_1");
        assert_eq!(file_type(&header(Some(999))), "Q4_K");
        assert_eq!(file_type(&header(None)), "Q4_K");
    }
}
