//! Files that are put together here, part by part.

/// A file of the fixtures.
pub fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/files/");
    std::fs::read(format!("{folder}{name}")).expect("the fixture is there")
}

/// A chunk of a PNG, with its checksum.
pub fn png_chunk(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let checked = [&name[..], data].concat();
    let sum = crc32fast::hash(&checked).to_be_bytes();
    [&(data.len() as u32).to_be_bytes()[..], &checked, &sum].concat()
}

/// The PNG of 11 x 7 pixels with further chunks behind its header.
pub fn png_with(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut file = fixture("type2_8.png");
    file.splice(33..33, chunks.concat());
    file
}

/// The PNG with other sides in its header.
pub fn png_of(width: u32, height: u32) -> Vec<u8> {
    let mut file = fixture("type2_8.png");
    let kind = file[24..29].to_vec();
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &kind].concat();
    file.splice(8..33, png_chunk(b"IHDR", &header));
    file
}

/// A chunk of a WebP that states `length` bytes.
pub fn webp_chunk(name: &[u8; 4], length: u32, data: &[u8]) -> Vec<u8> {
    let padding = vec![0; data.len() % 2];
    [&name[..], &length.to_le_bytes(), data, &padding].concat()
}

/// A WebP of chunks.
pub fn webp(chunks: &[Vec<u8>]) -> Vec<u8> {
    let chunks = chunks.concat();
    let length = chunks.len() as u32 + 4;
    [b"RIFF", &length.to_le_bytes()[..], b"WEBP", &chunks].concat()
}

/// The header of an extended WebP with these flags and sides.
pub fn webp_header(flags: u8, width: u32, height: u32) -> Vec<u8> {
    let side = |side: u32| (side - 1).to_le_bytes()[..3].to_vec();
    webp_chunk(b"VP8X", 10, &[vec![flags, 0, 0, 0], side(width), side(height)].concat())
}

/// A stream of bits, the lowest of a byte first.
#[derive(Default)]
pub struct Bits {
    bytes: Vec<u8>,
    free: u32,
}

impl Bits {
    pub fn put(&mut self, value: u32, count: u32) {
        for place in 0..count {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            let last = self.bytes.len() - 1;
            self.bytes[last] |= ((value >> place & 1) as u8) << (8 - self.free);
            self.free -= 1;
        }
    }

    /// A code with one symbol, which takes no bits.
    fn put_single(&mut self, symbol: u32) {
        self.put(1, 1);
        self.put(0, 1);
        self.put(1, 1);
        self.put(symbol, 8);
    }

    /// A code of eleven symbols with 1, 2, ... 9, 10 and 10 bits: 12 bytes, which become a table of
    /// 4 KiB.
    fn put_long(&mut self) {
        self.put(0, 1);
        self.put(10, 4);
        // Codes of the lengths 1 to 6 have three bits, those of 7 to 10 have four.
        for length in [0, 0, 0, 3, 3, 3, 3, 3, 0, 3, 4, 4, 4, 4] {
            self.put(length, 3);
        }
        self.put(1, 1);
        self.put(1, 3);
        self.put(9, 4);
        for length in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10_u32] {
            let (code, bits) = if length <= 6 { (length - 1, 3) } else { (12 + length - 7, 4) };
            let reversed = (0..bits).fold(0, |turned, at| turned << 1 | code >> at & 1);
            self.put(reversed, bits);
        }
    }

    pub fn bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// A lossless stream of one pixel with 65,536 groups of five codes: 4 MB, whose tables take 1.3
/// GiB.
pub fn codes_of_one_pixel() -> Vec<u8> {
    let mut bits = Bits::default();
    bits.put(0x2f, 8);
    bits.put(0, 32);
    // No transform, no cache, and an image of the groups, of one pixel without a cache.
    bits.put(0, 1);
    bits.put(0, 1);
    bits.put(1, 1);
    bits.put(0, 3);
    bits.put(0, 1);
    for symbol in [255, 255, 0, 0, 0] {
        bits.put_single(symbol);
    }
    for _ in 0..5 * 65_536 {
        bits.put_long();
    }
    bits.bytes()
}
