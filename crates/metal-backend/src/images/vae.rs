//! From latents to pixels, whole or in tiles.

use inference_core::Picture;
use mlx_ffi::{Array, Dtype, Result, ops};

/// `[1, height, width, channels]`.
pub(super) type Latent = Array;

/// A decoder of latents into pixels.
pub(super) trait Vae {
    /// The latents as the network takes them, of those that denoising leaves, `[1, height, width,
    /// channels]`.
    ///
    /// # Errors
    /// Those of MLX.
    fn raw(&self, latents: &Latent) -> Result<Array>;

    /// Raw latents to colours from -1 to 1, `[1, 8 · height, 8 · width, 3]`.
    ///
    /// # Errors
    /// Those of MLX.
    fn decode(&self, raw: &Latent) -> Result<Array>;
}

/// Tiles of latents: they overlap, and colours go over from one to the next in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    /// Rows and columns of one.
    pub size: i32,
    /// From one to the next.
    pub stride: i32,
}

/// Pixels of a latent's side.
pub(super) const SCALE: i32 = 8;

/// The colours of latents, decoded in `tiles` where those are given.
///
/// # Errors
/// Those of MLX.
pub(super) fn decode(vae: &dyn Vae, latents: &Latent, tiles: Option<Tiles>) -> Result<Array> {
    let raw = vae.raw(latents)?;
    let [_, height, width, _] = raw.dims()?;
    match tiles {
        Some(tiles) if height > tiles.size || width > tiles.size => tiled(vae, &raw, tiles),
        _ => vae.decode(&raw),
    }
}

fn tiled(vae: &dyn Vae, raw: &Latent, Tiles { size, stride }: Tiles) -> Result<Array> {
    let [_, height, width, _] = raw.dims()?;
    let (blend, kept) = ((size - stride) * SCALE, stride * SCALE);
    let mut above: Vec<Array> = Vec::new();
    let mut rows = Vec::new();
    for top in (0..height).step_by(stride as usize) {
        let mut row: Vec<Array> = Vec::new();
        let mut parts = Vec::new();
        for left in (0..width).step_by(stride as usize) {
            let tile = ops::slice_axis(raw, 1, top, height.min(top + size))?;
            let tile = ops::slice_axis(&tile, 2, left, width.min(left + size))?;
            let mut tile = vae.decode(&tile)?;
            if let Some(before) = above.get(row.len()) {
                tile = blended(before, &tile, blend, 1)?;
            }
            if let Some(before) = row.last() {
                tile = blended(before, &tile, blend, 2)?;
            }
            // One at a time: that is what tiles are for.
            tile.eval()?;
            let [_, rows, columns, _] = tile.dims()?;
            let part = ops::slice_axis(&tile, 1, 0, rows.min(kept))?;
            parts.push(ops::slice_axis(&part, 2, 0, columns.min(kept))?);
            row.push(tile);
        }
        rows.push(ops::concatenate(&parts.iter().collect::<Vec<_>>(), 2)?);
        above = row;
    }
    ops::concatenate(&rows.iter().collect::<Vec<_>>(), 1)
}

/// `tile` whose first rows or columns go over from the last ones of the tile before it.
fn blended(before: &Array, tile: &Array, extent: i32, axis: i32) -> Result<Array> {
    let (last, size) = (before.shape()[axis as usize], tile.shape()[axis as usize]);
    let extent = extent.min(last).min(size);
    if extent <= 0 {
        return tile.share();
    }
    let part: Vec<f32> = (0..extent).map(|i| i as f32 / extent as f32).collect();
    let mut shape = [1; 4];
    shape[axis as usize] = extent;
    let part = ops::astype(&Array::from_f32(&part, &shape)?, tile.dtype())?;
    let (old, new) = (
        ops::slice_axis(before, axis, last - extent, last)?,
        ops::slice_axis(tile, axis, 0, extent)?,
    );
    let mixed = ops::add(&old, &ops::multiply(&part, &ops::subtract(&new, &old)?)?)?;
    ops::concatenate(&[&mixed, &ops::slice_axis(tile, axis, extent, size)?], axis)
}

/// Colours from -1 to 1 as bytes, rounded as numpy does.
///
/// # Errors
/// Errors from computing them; colours that are no numbers.
pub(super) fn picture(colours: &Array) -> crate::error::Result<Picture> {
    let [_, height, width, _] = colours.dims::<4>()?;
    let values = ops::astype(colours, Dtype::F32)?.to_vec_f32()?;
    if values.iter().any(|value| value.is_nan()) {
        return Err(crate::error::Error::model(
            "the picture is no numbers: the weights are damaged, or overflow the type that they are computed in (try dtype f32)",
        ));
    }
    let byte = |value: &f32| ((value / 2.0 + 0.5).clamp(0.0, 1.0) * 255.0).round_ties_even() as u8;
    let rgb = values.iter().map(byte).collect();
    Ok(Picture::new(width as usize, height as usize, rgb)?)
}
