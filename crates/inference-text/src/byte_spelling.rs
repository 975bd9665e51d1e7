//! Bytes as characters, in the way of GPT-2.

/// The bytes that a token spells as GPT-2 does. One with a character outside of the spelling stands
/// for itself.
pub(crate) fn spelled_bytes(token: &str) -> Vec<u8> {
    let spelled = token.chars().map(spelled_byte).collect::<Option<Vec<u8>>>();
    spelled.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// The character by which GPT-2 spells each byte.
pub(crate) fn byte_spelling() -> [char; 256] {
    let mut spelling = ['\0'; 256];
    let spelled = ('\0'..='\u{143}').filter_map(|c| Some((spelled_byte(c)?, c)));
    for (byte, c) in spelled {
        spelling[usize::from(byte)] = c;
    }
    spelling
}

/// GPT-2 spells printable Latin-1 bytes as themselves and the other 68 as U+0100 and up.
fn spelled_byte(c: char) -> Option<u8> {
    let printable = |b: u32| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    match c as u32 {
        b if printable(b) => Some(b as u8),
        n @ 0x100..=0x143 => {
            (0..256u32).filter(|&b| !printable(b)).nth(n as usize - 0x100).map(|b| b as u8)
        }
        _ => None,
    }
}
