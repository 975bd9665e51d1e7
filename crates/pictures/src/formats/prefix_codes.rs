//! How much memory the prefix codes of a lossless WebP take in its decoder.
//!
//! A stream may state 65,536 groups of five codes for a single pixel, and a code of 15 bytes
//! becomes a table of 4 KiB: a few megabytes would take gigabytes. So the stream is read here up to
//! its pixels, and no table is made (WebP Lossless Bitstream Specification, sections 4 to 6).

/// Why a stream cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It ends before its pixels.
    CutOff,
    /// It does not hold to the specification.
    Broken,
}

type Read<T> = Result<T, Fault>;

/// Longest code of a symbol, in bits.
const LONGEST: usize = 15;
/// Symbols that the decoder looks up in one step have at most so many bits; the others are nodes of
/// a tree.
const LOOKED_UP: usize = 10;
/// Bytes of an entry of its tables, of a node of its trees, and of a code beside both, in a list
/// that is copied as it grows.
const ENTRY: u64 = 4;
const NODE: u64 = 16;
const CODE: u64 = 3 * 64;

/// Symbols of green and lengths, of red, of blue, of alpha, and of distances.
const ALPHABETS: [usize; 5] = [256 + LENGTHS, 256, 256, 256, 40];
const LENGTHS: usize = 24;
/// The order in which the lengths of the codes of code lengths stand.
const LENGTH_ORDER: [usize; 19] =
    [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Bytes that the codes of a picture of these sides take. Behind `limit` it is not counted further.
///
/// # Errors
/// A stream that no decoder reads.
pub fn bytes_of_codes(stream: &[u8], (width, height): (u32, u32), limit: u64) -> Read<u64> {
    let mut bits = Bits { stream, at: 0 };
    let mut columns = width;
    let mut seen = [false; 4];
    while bits.flag()? {
        let kind = bits.read(2)? as usize;
        if std::mem::replace(&mut seen[kind], true) {
            return Err(Fault::Broken);
        }
        match kind {
            // Predictors and colours, of blocks of pixels.
            0 | 1 => {
                let block = bits.read(3)? + 2;
                bits.side_image((blocks(columns, block), blocks(height, block)))?;
            }
            // Green is taken away.
            2 => {}
            // A palette, of which several pixels may share a byte.
            _ => {
                let colours = bits.read(8)? + 1;
                bits.side_image((colours, 1))?;
                columns = blocks(columns, packing(colours));
            }
        }
    }
    let cache = bits.cache()?;
    let mut groups = 1;
    if bits.flag()? {
        let block = bits.read(3)? + 2;
        groups += bits.side_image((blocks(columns, block), blocks(height, block)))?;
    }
    let mut bytes = 0;
    for _ in 0..groups {
        for code in bits.group(cache)? {
            bytes += code.bytes();
        }
        if bytes > limit {
            break;
        }
    }
    Ok(bytes)
}

/// Blocks of 2^`bits` pixels in a side.
fn blocks(side: u32, bits: u32) -> u32 {
    side.div_ceil(1 << bits)
}

/// The power of 2 of pixels that share a byte.
fn packing(colours: u32) -> u32 {
    match colours {
        0..=2 => 3,
        3..=4 => 2,
        5..=16 => 1,
        _ => 0,
    }
}

/// A stream of bits, the lowest of a byte first.
struct Bits<'a> {
    stream: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn bit(&mut self) -> Read<u32> {
        let byte = self.stream.get(self.at / 8).ok_or(Fault::CutOff)?;
        let bit = byte >> (self.at % 8) & 1;
        self.at += 1;
        Ok(u32::from(bit))
    }

    fn flag(&mut self) -> Read<bool> {
        Ok(self.bit()? == 1)
    }

    fn read(&mut self, count: u32) -> Read<u32> {
        (0..count).try_fold(0, |value, place| Ok(value | self.bit()? << place))
    }

    /// Entries of the cache of colours, which are symbols of green too.
    fn cache(&mut self) -> Read<usize> {
        if !self.flag()? {
            return Ok(0);
        }
        match self.read(4)? {
            bits @ 1..=11 => Ok(1 << bits),
            _ => Err(Fault::Broken),
        }
    }

    /// The five codes of a group.
    fn group(&mut self, cache: usize) -> Read<Vec<Code>> {
        let alphabets = ALPHABETS.into_iter().enumerate();
        alphabets.map(|(at, size)| self.code(if at == 0 { size + cache } else { size })).collect()
    }

    /// Passes over an image that describes another, and gives the largest number that red and green
    /// of a pixel make. Copies repeat pixels that were there, so only written ones count.
    fn side_image(&mut self, (width, height): (u32, u32)) -> Read<u32> {
        let cache = self.cache()?;
        let [green, red, blue, alpha, distance] =
            <[Code; 5]>::try_from(self.group(cache)?).map_err(|_| Fault::Broken)?;
        let mut left = u64::from(width) * u64::from(height);
        let mut largest = 0;
        while left > 0 {
            let symbol = green.symbol(self)?;
            let count = match symbol.checked_sub(256) {
                None => {
                    largest = largest.max(red.symbol(self)? << 8 | symbol);
                    blue.symbol(self)?;
                    alpha.symbol(self)?;
                    1
                }
                Some(length) if (length as usize) < LENGTHS => {
                    let length = self.length(length)?;
                    let distance = distance.symbol(self)?;
                    self.length(distance)?;
                    u64::from(length)
                }
                Some(_) => 1,
            };
            left = left.checked_sub(count).ok_or(Fault::Broken)?;
        }
        Ok(largest)
    }

    /// The length or distance that a symbol begins.
    fn length(&mut self, symbol: u32) -> Read<u32> {
        if symbol < 4 {
            return Ok(symbol + 1);
        }
        let extra = (symbol - 2) >> 1;
        Ok(((2 + (symbol & 1)) << extra) + self.read(extra)? + 1)
    }

    fn code(&mut self, alphabet: usize) -> Read<Code> {
        if !self.flag()? {
            let lengths = self.code_lengths(alphabet)?;
            return Code::of(&lengths);
        }
        let has_two = self.flag()?;
        let first_bits = if self.flag()? { 8 } else { 1 };
        let mut symbols = vec![self.read(first_bits)? as u16];
        if has_two {
            symbols.push(self.read(8)? as u16);
        }
        if symbols.iter().any(|symbol| usize::from(*symbol) >= alphabet) {
            return Err(Fault::Broken);
        }
        let mut counts = [0; LONGEST + 1];
        counts[1] = symbols.len() as u16;
        Ok(Code { counts, symbols })
    }

    fn code_lengths(&mut self, alphabet: usize) -> Read<Vec<u8>> {
        let mut of_lengths = [0; LENGTH_ORDER.len()];
        let count = self.read(4)? as usize + 4;
        for at in &LENGTH_ORDER[..count.min(LENGTH_ORDER.len())] {
            of_lengths[*at] = self.read(3)? as u8;
        }
        let of_lengths = Code::of(&of_lengths)?;
        let mut written = alphabet;
        if self.flag()? {
            let bits = 2 + 2 * self.read(3)?;
            written = 2 + self.read(bits)? as usize;
        }
        if written > alphabet {
            return Err(Fault::Broken);
        }
        let mut lengths: Vec<u8> = Vec::with_capacity(alphabet);
        let mut last = 8;
        for _ in 0..written {
            if lengths.len() == alphabet {
                break;
            }
            let (length, count) = match of_lengths.symbol(self)? {
                length @ 0..=15 => (length as u8, 1),
                16 => (last, 3 + self.read(2)?),
                17 => (0, 3 + self.read(3)?),
                _ => (0, 11 + self.read(7)?),
            };
            last = if length > 0 { length } else { last };
            lengths.extend(std::iter::repeat_n(length, count as usize));
            if lengths.len() > alphabet {
                return Err(Fault::Broken);
            }
        }
        lengths.resize(alphabet, 0);
        Ok(lengths)
    }
}

/// A canonical prefix code.
struct Code {
    /// Symbols with each length of code.
    counts: [u16; LONGEST + 1],
    /// By their lengths, and then by their numbers.
    symbols: Vec<u16>,
}

impl Code {
    /// The code of symbols with these lengths, of which 0 is none. It is complete, or has one
    /// symbol.
    fn of(lengths: &[u8]) -> Read<Self> {
        let mut counts = [0; LONGEST + 1];
        let mut symbols = Vec::new();
        for (length, count) in counts.iter_mut().enumerate().skip(1) {
            let before = symbols.len();
            let with_it = lengths.iter().zip(0..).filter(|(of, _)| usize::from(**of) == length);
            symbols.extend(with_it.map(|(_, symbol)| symbol));
            *count = (symbols.len() - before) as u16;
        }
        let taken: u32 = (1..).zip(&counts[1..]).map(|(l, n)| u32::from(*n) << (LONGEST - l)).sum();
        match symbols.len() {
            0 => Err(Fault::Broken),
            2.. if taken != 1 << LONGEST => Err(Fault::Broken),
            _ => Ok(Self { counts, symbols }),
        }
    }

    /// The next symbol; a code with a single one takes no bits.
    fn symbol(&self, bits: &mut Bits<'_>) -> Read<u32> {
        if let [only] = self.symbols[..] {
            return Ok(u32::from(only));
        }
        let (mut code, mut first, mut before) = (0, 0, 0);
        for count in &self.counts[1..] {
            let count = u32::from(*count);
            code |= bits.bit()?;
            if let Some(place) = code.checked_sub(first).filter(|place| *place < count) {
                let symbol = self.symbols.get((before + place) as usize);
                return symbol.map(|symbol| u32::from(*symbol)).ok_or(Fault::Broken);
            }
            before += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        Err(Fault::Broken)
    }

    /// Bytes that the decoder takes for it.
    fn bytes(&self) -> u64 {
        if self.symbols.len() == 1 {
            return CODE;
        }
        let longest = self.counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        let in_tree = self.counts[LOOKED_UP + 1..].iter().map(|count| u64::from(*count));
        CODE + (ENTRY << longest.min(LOOKED_UP)) + 2 * NODE * in_tree.sum::<u64>().max(2)
    }
}
