//! Pictures as models take them: from the bytes of a file to RGB with 8 bits a channel, and from
//! there to the size and the numbers that a model was trained on.
//!
//! - [`Picture::decode`] reads PNG, JPEG, WebP and GIF. [`Limits`] are held before pixels are
//!   decoded.
//! - [`Picture::resized`] resizes as torchvision or as Pillow do, bit for bit.
//! - [`Sizing`] says to which size, for each family of models; [`Processor`] reads all of it from
//!   `preprocessor_config.json`, which the caller has read.
//! - [`Picture::to_png`] writes a picture with its texts.
//!
//! Pixels are those of Pillow (`Image.open`, `ImageOps.exif_transpose`, `convert("RGB")`), as in
//! transformers and diffusers:
//!
//! - Alpha is dropped, not blended. Grey is repeated, and CMYK is multiplied out.
//! - 16 bits a channel lose the lower 8, and grey of 16 bits is cut off at 255.
//! - An ICC profile is not applied, and a broken one is refused.
//! - The orientation of EXIF, or else of XMP, is applied.
//!
//! Of a GIF the first frame is taken. An animated PNG or WebP is refused by name.

#![forbid(unsafe_code)]

mod decode;
mod encode;
mod error;
mod format;
mod formats;
mod limits;
mod orientation;
mod picture;
mod processor;
mod profile;
mod rescale;
mod resize;
mod signature;
mod sizes;

pub use decode::Header;
pub use error::PictureError;
pub use format::Format;
pub use limits::Limits;
pub use picture::Picture;
pub use processor::{Processor, ProcessorError};
pub use rescale::Rescale;
pub use resize::{Arithmetic, Filter};
pub use sizes::{SizeError, Sizing};
