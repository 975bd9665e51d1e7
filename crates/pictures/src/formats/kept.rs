//! Three bytes of each pixel, where a format has more.

/// Keeps three bytes of each `stride`, in place.
pub fn keep_first_bytes(pixels: &mut Vec<u8>, stride: usize, kept: &[usize; 3]) {
    let count = pixels.len() / stride;
    for pixel in 0..count {
        for (channel, at) in kept.iter().enumerate() {
            pixels[3 * pixel + channel] = pixels[stride * pixel + at];
        }
    }
    pixels.truncate(3 * count);
    pixels.shrink_to_fit();
}
