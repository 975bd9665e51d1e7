//! Limits of a model's pictures.

use crate::{EncodedPicture, Result};

/// Limits of a model's pictures, as data: [`ModelInfo::pictures`](crate::ModelInfo::pictures). A
/// picture above a limit is refused by name before anything is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PictureLimits {
    /// The formats that are read, such as `png`, `jpeg`, `webp` and `gif` (its first frame).
    pub formats: Vec<&'static str>,
    /// The most bytes of one encoded picture.
    pub max_bytes: u64,
    /// The most pixels of one picture, width times height as it was encoded.
    pub max_pixels: u64,
    /// The most pictures of one prompt.
    pub max_pictures: usize,
    /// How many positions of the prompt a picture takes.
    pub tokens: PictureTokens,
}

impl PictureLimits {
    /// Refuses more pictures than a prompt may have, and one that has too many bytes or none.
    ///
    /// # Errors
    /// [`Error::Prompt`](crate::Error::Prompt) with the name of the first bad picture.
    pub fn check<'a>(&self, pictures: impl IntoIterator<Item = &'a EncodedPicture>) -> Result<()> {
        for (index, picture) in pictures.into_iter().enumerate() {
            let bytes = picture.bytes.len() as u64;
            if index >= self.max_pictures {
                let most = self.max_pictures;
                return Err(picture.error(format!("a prompt may have {most} pictures at most")));
            }
            if bytes == 0 {
                return Err(picture.error("is empty"));
            }
            if bytes > self.max_bytes {
                let most = self.max_bytes;
                return Err(picture.error(format!("has {bytes} bytes, at most {most} are read")));
            }
        }
        Ok(())
    }
}

/// How many positions of a prompt a picture takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureTokens {
    /// This many, whatever its size.
    Fixed(usize),
    /// One for each square of `cell` pixels a side, once the picture has the size that the model
    /// sees it in; and the marks around them.
    Cells {
        /// Pixels a side of a square.
        cell: usize,
        /// The fewest that a picture takes, marks left out.
        least: usize,
        /// The most that a picture takes, marks left out.
        most: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::{PictureLimits, PictureTokens};
    use crate::EncodedPicture;

    fn picture(bytes: usize) -> EncodedPicture {
        EncodedPicture::new(vec![7; bytes], "fox.png")
    }

    #[test]
    fn limits_name_the_picture_that_exceeds_them() {
        let tokens = PictureTokens::Fixed(4);
        let formats = vec!["png"];
        let limits =
            PictureLimits { formats, max_bytes: 9, max_pixels: 100, max_pictures: 2, tokens };
        let checked = |sizes: &[usize]| {
            let pictures: Vec<EncodedPicture> = sizes.iter().map(|size| picture(*size)).collect();
            limits.check(&pictures).map_err(|error| error.to_string())
        };
        assert_eq!(checked(&[9, 1]), Ok(()));
        let refused = |sizes: &[usize]| checked(sizes).unwrap_err();
        assert_eq!(refused(&[1, 0]), "prompt: picture `fox.png`: is empty");
        assert!(refused(&[10]).ends_with("has 10 bytes, at most 9 are read"));
        assert!(refused(&[1, 1, 1]).ends_with("a prompt may have 2 pictures at most"));
    }
}
