//! Blocks of quantised weights: what they stand for, and their codes where MLX has the same form.

use half::f16;

use crate::error::{Error, Result};

/// How the values of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
    Iq4Xs,
    Mxfp4,
}

/// Values of a group of most kinds, and the most of any.
const GROUP: usize = 32;

/// Which groups of packed weights whoever loads a file can multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Groups {
    /// Those of MLX, which have 32 values and more.
    OfMlx,
    /// Those of 16 values, too.
    OfSixteen,
}

/// How weights are packed that keep their codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    /// Of a code.
    pub bits: usize,
    /// Values of a group.
    pub group: usize,
    /// MLX's name for what codes and scales mean.
    pub mode: &'static str,
}

/// The kinds by the number that files have for them.
const KINDS: [(u32, Kind); 16] = [
    (0, Kind::F32),
    (1, Kind::F16),
    (2, Kind::Q4_0),
    (3, Kind::Q4_1),
    (6, Kind::Q5_0),
    (7, Kind::Q5_1),
    (8, Kind::Q8_0),
    (10, Kind::Q2K),
    (11, Kind::Q3K),
    (12, Kind::Q4K),
    (13, Kind::Q5K),
    (14, Kind::Q6K),
    (20, Kind::Iq4Nl),
    (23, Kind::Iq4Xs),
    (30, Kind::Bf16),
    (39, Kind::Mxfp4),
];
/// Kinds that are not read.
const OTHERS: [(u32, &str); 14] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

/// A group of codes `q`, which stand for `scale · q + bias`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Group<'a> {
    pub codes: &'a [u8],
    pub scale: f32,
    pub bias: f32,
}

impl Group<'_> {
    /// The codes in so many bits each, and how many bytes they take.
    #[inline]
    pub fn packed(&self, bits: usize) -> ([u8; GROUP], usize) {
        let mut bytes = [0; GROUP];
        let (eights, _) = self.codes.as_chunks::<8>();
        for (at, codes) in eights.iter().enumerate() {
            // Eight codes take as many bytes as one has bits.
            let word = codes.iter().rev().fold(0u64, |word, code| word << bits | u64::from(*code));
            let word = &word.to_le_bytes()[..bits];
            bytes[at * bits..][..bits].copy_from_slice(word);
        }
        (bytes, eights.len() * bits)
    }
}

impl Kind {
    /// The kind of that number.
    ///
    /// # Errors
    /// One that is not read, by name.
    pub fn of(number: u32) -> Result<Kind> {
        let known = KINDS.iter().find(|(known, _)| *known == number);
        known.map(|(_, kind)| *kind).ok_or_else(|| {
            let name = OTHERS.iter().find(|(other, _)| *other == number);
            let name = name.map_or_else(|| format!("number {number}"), |(_, name)| (*name).into());
            Error::model(format!(
                "is quantised as {name}; F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4 work: use a file of one of these"
            ))
        })
    }

    /// Values of a block, and its bytes.
    pub fn block(self) -> (u64, u64) {
        match self {
            Kind::F32 => (1, 4),
            Kind::F16 | Kind::Bf16 => (1, 2),
            Kind::Q4_0 | Kind::Iq4Nl => (32, 18),
            Kind::Mxfp4 => (32, 17),
            Kind::Q4_1 => (32, 20),
            Kind::Q5_0 => (32, 22),
            Kind::Q5_1 => (32, 24),
            Kind::Q8_0 => (32, 34),
            Kind::Q2K => (256, 84),
            Kind::Q3K => (256, 110),
            Kind::Q4K => (256, 144),
            Kind::Q5K => (256, 176),
            Kind::Q6K => (256, 210),
            Kind::Iq4Xs => (256, 136),
        }
    }

    /// How the weights are packed with their own codes, where that is one of `groups`.
    pub fn form(self, groups: Groups) -> Option<Form> {
        let (bits, group) = match self {
            Kind::Q4_0 | Kind::Q4_1 | Kind::Q4K | Kind::Mxfp4 => (4, GROUP),
            Kind::Q5_0 | Kind::Q5_1 | Kind::Q5K => (5, GROUP),
            Kind::Q8_0 => (8, GROUP),
            Kind::Q2K => (2, 16),
            Kind::Q3K => (3, 16),
            Kind::Q6K => (6, 16),
            _ => return None,
        };
        let mode = if self.is_mxfp4() { "mxfp4" } else { "affine" };
        let is_known = group == GROUP || groups == Groups::OfSixteen;
        is_known.then_some(Form { bits, group, mode })
    }

    /// Returns true for codes that are floats of 4 bits.
    /// Scales are exponents of powers of two, in a byte before the codes.
    pub fn is_mxfp4(self) -> bool {
        self == Kind::Mxfp4
    }

    /// The groups of a block, of a kind that may have a [`form`](Self::form), in their order. Of
    /// MXFP4 they have codes alone.
    #[inline]
    pub fn groups(self, block: &[u8], mut push: impl FnMut(Group<'_>)) {
        let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        let d = half(0);
        let fifth = |codes: [u8; GROUP], bits: &[u8]| -> [u8; GROUP] {
            std::array::from_fn(|i| codes[i] | (bits[i / 8] >> (i % 8) & 1) << 4)
        };
        match self {
            Kind::Q4_0 => {
                push(Group { codes: &nibbles(&block[2..]), scale: d, bias: -8.0 * d });
            }
            Kind::Mxfp4 => push(Group { codes: &nibbles(&block[1..]), scale: 0.0, bias: 0.0 }),
            Kind::Q4_1 => push(Group { codes: &nibbles(&block[4..]), scale: d, bias: half(2) }),
            Kind::Q5_0 => {
                let codes = fifth(nibbles(&block[6..]), &block[2..6]);
                push(Group { codes: &codes, scale: d, bias: -16.0 * d });
            }
            Kind::Q5_1 => {
                let codes = fifth(nibbles(&block[8..]), &block[4..8]);
                push(Group { codes: &codes, scale: d, bias: half(2) });
            }
            Kind::Q8_0 => {
                let codes: [u8; GROUP] = std::array::from_fn(|i| block[2 + i] ^ 0x80);
                push(Group { codes: &codes, scale: d, bias: -128.0 * d });
            }
            Kind::Q4K | Kind::Q5K => {
                let least = half(2);
                let (high, low) = match self {
                    Kind::Q4K => (&[][..], &block[16..]),
                    _ => (&block[16..48], &block[48..]),
                };
                for group in 0..8 {
                    let bytes = &low[group / 2 * GROUP..][..GROUP];
                    let shift = group % 2 * 4;
                    let fifth = |i: usize| high.get(i).map_or(0, |bits| (bits >> group & 1) << 4);
                    let codes: [u8; GROUP] =
                        std::array::from_fn(|i| (bytes[i] >> shift & 15) | fifth(i));
                    let (scale, min) = sixes(&block[4..16], group);
                    push(Group {
                        codes: &codes,
                        scale: d * f32::from(scale),
                        bias: -least * f32::from(min),
                    });
                }
            }
            Kind::Q2K => {
                let (d, least) = (half(80), half(82));
                for (group, scale) in block[..16].iter().enumerate() {
                    let codes = sixteen(group, |i| twos(&block[16..80], i));
                    let (scale, bias) = (d * f32::from(scale & 15), -least * f32::from(scale >> 4));
                    push(Group { codes: &codes, scale, bias });
                }
            }
            Kind::Q3K => {
                let (d, scales) = (half(108), &block[96..108]);
                for group in 0..16 {
                    let low = if group < 8 { scales[group] & 15 } else { scales[group - 8] >> 4 };
                    let high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
                    let third = |i: usize| (block[i % 32] >> (i / 32) & 1) << 2;
                    let codes = sixteen(group, |i| twos(&block[32..96], i) | third(i));
                    let scale = d * (i32::from(low | high << 4) - 32) as f32;
                    push(Group { codes: &codes, scale, bias: -4.0 * scale });
                }
            }
            Kind::Q6K => {
                let d = half(208);
                for group in 0..16 {
                    let codes = sixteen(group, |i| {
                        let (part, quarter, at) = (i / 128, i % 128 / 32, i % 32);
                        let low = block[part * 64 + quarter % 2 * 32 + at] >> (quarter / 2 * 4);
                        let high = block[128 + part * 32 + at] >> (quarter * 2) & 3;
                        (low & 15) | high << 4
                    });
                    let scale = d * f32::from(block[192 + group].cast_signed());
                    push(Group { codes: &codes, scale, bias: -32.0 * scale });
                }
            }
            _ => {}
        }
    }

    /// Unpacks the values of a block.
    #[inline]
    pub fn values(self, block: &[u8], mut push: impl FnMut(f32)) {
        let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        match self {
            Kind::F32 => push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
            Kind::F16 => push(half(0)),
            Kind::Bf16 => {
                push(f32::from_bits(u32::from(u16::from_le_bytes([block[0], block[1]])) << 16))
            }
            Kind::Mxfp4 => {
                const VALUES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
                let scale = 2f32.powi(i32::from(block[0]) - 127);
                for code in nibbles(&block[1..]) {
                    let size = scale * VALUES[usize::from(code & 7)];
                    push(if code & 8 == 0 { size } else { -size });
                }
            }
            Kind::Iq4Nl => {
                let d = half(0);
                nibbles(&block[2..]).iter().for_each(|code| push(d * uneven(*code)));
            }
            Kind::Iq4Xs => {
                let (d, high) = (half(0), u16::from_le_bytes([block[2], block[3]]));
                for group in 0..8 {
                    let low = block[4 + group / 2] >> (group % 2 * 4) & 15;
                    let scale = i32::from(low) | i32::from(high >> (2 * group) & 3) << 4;
                    let scale = d * (scale - 32) as f32;
                    let codes = nibbles(&block[8 + 16 * group..]);
                    codes.iter().for_each(|code| push(scale * uneven(*code)));
                }
            }
            _ => self.groups(block, |Group { codes, scale, bias }| {
                codes.iter().for_each(|code| push(scale * f32::from(*code) + bias));
            }),
        }
    }
}

/// The codes of a group in sixteen bytes: the lower halves of bytes come first, then the upper
/// ones.
fn nibbles(bytes: &[u8]) -> [u8; GROUP] {
    std::array::from_fn(|i| if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 })
}

/// The codes of group `group` of 16 values, by the places of these in the block.
fn sixteen(group: usize, code: impl Fn(usize) -> u8) -> [u8; 16] {
    std::array::from_fn(|i| code(16 * group + i))
}

/// The two bits of value `i` of a block.
fn twos(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

/// The value of a code where codes are not evenly spaced.
fn uneven(code: u8) -> f32 {
    const VALUES: [i8; 16] =
        [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    f32::from(VALUES[usize::from(code & 15)])
}

/// The scale and the least value of group `group`, six bits each.
fn sixes(bytes: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (bytes[group] & 63, bytes[group + 4] & 63);
    }
    let low = bytes[group + 4];
    ((low & 15) | bytes[group - 4] >> 6 << 4, (low >> 4) | bytes[group] >> 6 << 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: &str = include_str!("../../tests/fixtures/gguf/blocks.json");

    #[test]
    fn blocks_stand_for_what_their_own_program_says() {
        let all: serde_json::Value = serde_json::from_str(BLOCKS).expect("it is JSON");
        let names = [
            ("Q4_0", Kind::Q4_0),
            ("Q4_1", Kind::Q4_1),
            ("Q5_0", Kind::Q5_0),
            ("Q5_1", Kind::Q5_1),
            ("Q8_0", Kind::Q8_0),
            ("Q2_K", Kind::Q2K),
            ("Q3_K", Kind::Q3K),
            ("Q4_K", Kind::Q4K),
            ("Q5_K", Kind::Q5K),
            ("Q6_K", Kind::Q6K),
            ("IQ4_NL", Kind::Iq4Nl),
            ("IQ4_XS", Kind::Iq4Xs),
            ("MXFP4", Kind::Mxfp4),
        ];
        assert_eq!(all.as_object().map(serde_json::Map::len), Some(names.len()));
        for (name, kind) in names {
            let list = |key: &str| all[name][key].as_array().expect("a list").iter();
            let blocks: Vec<u8> =
                list("blocks").map(|byte| byte.as_u64().expect("a byte") as u8).collect();
            let expected: Vec<f64> =
                list("values").map(|value| value.as_f64().expect("a number")).collect();
            let mut found = Vec::new();
            for block in blocks.chunks_exact(kind.block().1 as usize) {
                kind.values(block, |value| found.push(f64::from(value)));
            }
            assert_eq!(found.len(), expected.len(), "{name}");
            let largest = expected.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert!(
                    (found - expected).abs() <= 1e-6 * largest,
                    "{name} {at}: {found}, {expected}"
                );
            }
        }
    }
}
