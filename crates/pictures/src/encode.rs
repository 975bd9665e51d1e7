//! A picture as a PNG, with texts.

use std::io;

use png::{BitDepth, ColorType, Encoder, EncodingError};

use crate::picture::Picture;

impl Picture {
    /// The picture as a PNG with 8 bits a channel. Each text becomes an `iTXt` chunk before the
    /// pixels; a keyword has 1 to 79 characters of Latin-1.
    ///
    /// # Errors
    /// When a keyword is none.
    pub fn to_png(&self, texts: &[(&str, &str)]) -> io::Result<Vec<u8>> {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, self.width(), self.height());
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        for (keyword, text) in texts {
            encoder.add_itxt_chunk((*keyword).to_owned(), (*text).to_owned()).map_err(of_png)?;
        }
        let mut writer = encoder.write_header().map_err(of_png)?;
        writer.write_image_data(self.rgb()).map_err(of_png)?;
        writer.finish().map_err(of_png)?;
        Ok(file)
    }
}

fn of_png(error: EncodingError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
}
