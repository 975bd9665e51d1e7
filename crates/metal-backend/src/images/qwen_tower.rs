//! The tower of Qwen 2.5-VL: patches attend inside of windows, and in some blocks to the whole
//! picture.

use std::collections::BTreeMap;

use mlx_ffi::{Array, Dtype, Indices, Result, ops};

use super::attend::{Angles, Sees, attend};
use crate::config::Config;
use crate::error::{Error, Result as Read};
use crate::kernels::{Activation, Columns, Kernels};
use crate::layers::{Linear, RmsNorm};
use crate::weights::Weights;

const EPS: f32 = 1e-6;
const THETA: f32 = 10_000.0;
/// Mean and deviation of the colours (CLIP's).
const MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const DEVIATION: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];
/// Frames of a patch; a picture is a frame that stands still.
const FRAMES: usize = 2;
/// Patches of a cell's side.
const MERGE: usize = 2;

/// The tower.
#[derive(Debug)]
pub(super) struct QwenTower {
    /// `[hidden, 3 · frames · patch · patch]`.
    patch_embed: Array,
    blocks: Vec<Block>,
    norm: RmsNorm,
    merge: [Linear; 2],
    heads: i32,
    hidden: i32,
    patch: usize,
    /// Cells of a window's side.
    window: usize,
    kernels: Kernels,
}

#[derive(Debug)]
struct Block {
    norms: [RmsNorm; 2],
    qkv: Linear,
    out: Linear,
    gate: Linear,
    up: Linear,
    down: Linear,
    sees_all: bool,
    kernels: Kernels,
}

/// Cells in the order in which windows have them.
struct Windows {
    /// The place of each cell in the raster.
    cells: Vec<u32>,
    /// Cells of a window, and how many windows of that size follow each other.
    sizes: Vec<(i32, i32)>,
}

/// The projection of patches, `[hidden, 3 · frames · patch · patch]`; MLX saves it with the colours
/// last.
fn patch_embed(w: &Weights, hidden: i32, patch: i32) -> Read<Array> {
    let frames = FRAMES as i32;
    // A tensor that was taken is no longer there.
    let is_last = w.has("kernels");
    let weight = match is_last {
        true => w.tensor("kernels", &[hidden, frames, patch, patch, 3])?,
        false => w.tensor("weight", &[hidden, 3, frames, patch, patch])?,
    };
    if weight.size() == 0 {
        return Ok(weight);
    }
    let weight = match is_last {
        true => ops::contiguous(&ops::transpose(&weight, &[0, 4, 1, 2, 3])?)?,
        false => weight,
    };
    Ok(ops::reshape(&weight, &[hidden, 3 * frames * patch * patch])?)
}

impl QwenTower {
    /// Takes the tower's tensors; its features have `text` values.
    ///
    /// # Errors
    /// A config that is not known; tensors that do not fit.
    pub fn load(config: &Config, w: &Weights, text: i32) -> Read<QwenTower> {
        let hidden = config.size("hidden_size")?;
        let heads = config.size("num_heads")?;
        let patch = config.opt_size("patch_size")?.unwrap_or(14);
        let inner = config.size("intermediate_size")?;
        for (key, expected) in [("spatial_merge_size", MERGE), ("temporal_patch_size", FRAMES)] {
            if config.opt_size(key)?.is_some_and(|size| size as usize != expected) {
                return Err(Error::model(format!("the tower's `{key}` is not {expected}")));
            }
        }
        if hidden % heads != 0 || hidden / heads % 4 != 0 {
            return Err(Error::model(format!(
                "{heads} heads do not divide {hidden} values by four"
            )));
        }
        let window = config.opt_size("window_size")?.unwrap_or(112) / patch / MERGE as i32;
        if window < 1 {
            return Err(Error::model("the tower's `window_size` is smaller than a cell"));
        }
        let full = config.opt_indices("fullatt_block_indexes")?.unwrap_or_default();
        let patch_embed = patch_embed(&w.at("patch_embed.proj"), hidden, patch)?;
        let blocks = (0..config.size("depth")?).map(|index| {
            let w = w.at(&format!("blocks.{index}"));
            let (a, m) = (w.at("attn"), w.at("mlp"));
            Ok(Block {
                norms: [w.rms_norm("norm1", hidden, EPS)?, w.rms_norm("norm2", hidden, EPS)?],
                qkv: a.linear("qkv", hidden, 3 * hidden, true)?,
                out: a.linear("proj", hidden, hidden, true)?,
                gate: m.linear("gate_proj", hidden, inner, true)?,
                up: m.linear("up_proj", hidden, inner, true)?,
                down: m.linear("down_proj", inner, hidden, true)?,
                sees_all: full.contains(&(index as u64)),
                kernels: w.kernels(),
            })
        });
        let cell = hidden * (MERGE * MERGE) as i32;
        Ok(QwenTower {
            patch_embed,
            blocks: blocks.collect::<Read<_>>()?,
            norm: w.rms_norm("merger.ln_q", hidden, EPS)?,
            merge: [
                w.linear("merger.mlp.0", cell, cell, true)?,
                w.linear("merger.mlp.2", cell, text, true)?,
            ],
            heads,
            hidden,
            patch: patch as usize,
            window: window as usize,
            kernels: w.kernels(),
        })
    }

    /// Features of a picture whose sides are multiples of a cell: `[cells, text]`, raster order.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(&self, picture: &pictures::Picture) -> Read<Array> {
        let cell = self.patch * MERGE;
        let (rows, columns) = (picture.height() as usize / cell, picture.width() as usize / cell);
        let windows = Windows::of(rows, columns, self.window);
        let (values, places) = self.patches(picture, &windows, columns);
        let count = places.len() as i32;
        let width = (3 * FRAMES * self.patch * self.patch) as i32;
        let x = Array::from_f32(&values, &[1, count, width])?;
        let x = ops::astype(&x, self.patch_embed.dtype())?;
        let mut x = self.kernels.dense(&x, &self.patch_embed)?;
        let angles = self.angles(&places)?;
        for block in &self.blocks {
            x = block.forward(&x, &angles, self.heads, &windows)?;
            x.eval()?;
        }
        let cells = count / (MERGE * MERGE) as i32;
        let x =
            ops::reshape(&self.norm.forward(&x)?, &[cells, self.hidden * (MERGE * MERGE) as i32])?;
        let x = self.merge[1].forward(&gelu(&self.merge[0].forward(&x)?)?)?;
        // Back to the raster.
        let mut place = vec![0u32; windows.cells.len()];
        for (at, cell) in (0..).zip(&windows.cells) {
            place[*cell as usize] = at;
        }
        let x = ops::take(&x, &Indices::from_u32(&place, &[cells])?, 0)?;
        x.eval()?;
        Ok(x)
    }

    /// The values of all patches in the order of windows, each as (colour, frame, row, column), and
    /// where each is in the picture.
    fn patches(
        &self,
        picture: &pictures::Picture,
        windows: &Windows,
        columns: usize,
    ) -> (Vec<f32>, Vec<[usize; 2]>) {
        let (patch, width, rgb) = (self.patch, picture.width() as usize, picture.rgb());
        let mut values = Vec::with_capacity(rgb.len() * FRAMES);
        let mut places = Vec::new();
        for &cell in &windows.cells {
            let (y, x) = (cell as usize / columns * MERGE, cell as usize % columns * MERGE);
            for (dy, dx) in (0..MERGE).flat_map(|dy| (0..MERGE).map(move |dx| (dy, dx))) {
                let (y, x) = (y + dy, x + dx);
                places.push([y, x]);
                for colour in 0..3 {
                    for _ in 0..FRAMES {
                        for row in y * patch..(y + 1) * patch {
                            let line = &rgb[(row * width + x * patch) * 3..][..patch * 3];
                            let level = |pixel: &[u8]| {
                                (f32::from(pixel[colour]) / 255.0 - MEAN[colour])
                                    / DEVIATION[colour]
                            };
                            values.extend(line.chunks_exact(3).map(level));
                        }
                    }
                }
            }
        }
        (values, places)
    }

    fn angles(&self, places: &[[usize; 2]]) -> Result<Angles> {
        let half = self.hidden / self.heads / 2;
        let rate = |i: i32| 1.0 / THETA.powf(2.0 * i as f32 / half as f32);
        let rates: Vec<f32> = (0..half / 2).map(rate).collect();
        let angles: Vec<f32> = places
            .iter()
            .flatten()
            .flat_map(|place| rates.iter().map(move |rate| *place as f32 * rate))
            .collect();
        Angles::new(&angles, half as usize)
    }
}

impl Windows {
    /// The windows of so many rows and columns of cells, those of equal size beside each other.
    fn of(rows: usize, columns: usize, side: usize) -> Windows {
        let mut by_size: BTreeMap<usize, Vec<Vec<u32>>> = BTreeMap::new();
        for top in (0..rows).step_by(side) {
            for left in (0..columns).step_by(side) {
                let (bottom, right) = (rows.min(top + side), columns.min(left + side));
                let cells: Vec<u32> = (top..bottom)
                    .flat_map(|y| (left..right).map(move |x| (y * columns + x) as u32))
                    .collect();
                by_size.entry(cells.len()).or_default().push(cells);
            }
        }
        let sizes = by_size.iter().map(|(size, all)| (*size as i32, all.len() as i32)).collect();
        Windows { cells: by_size.into_values().flatten().flatten().collect(), sizes }
    }
}

impl Block {
    /// `[1, patches, hidden]` to the same.
    fn forward(&self, x: &Array, angles: &Angles, heads: i32, windows: &Windows) -> Result<Array> {
        let [_, count, hidden] = x.dims()?;
        let head_dim = hidden / heads;
        let qkv = self.qkv.forward(&self.norms[0].forward(x)?)?;
        let part = |i: i32| {
            let range = i * hidden..(i + 1) * hidden;
            self.kernels.heads(&Columns { of: qkv.share()?, range }, head_dim)
        };
        let (q, k) = (angles.rotate_halves(&part(0)?)?, angles.rotate_halves(&part(1)?)?);
        let v = part(2)?;
        let seen = if self.sees_all {
            attend(self.kernels, &q, &k, &v, Sees::All)?
        } else {
            let mut parts = Vec::new();
            let mut first = 0;
            for &(size, windows) in &windows.sizes {
                let size = size * (MERGE * MERGE) as i32;
                let last = first + size * windows;
                let cut = |x: &Array| {
                    let x = ops::slice_axis(x, 2, first, last)?;
                    let x = ops::reshape(&x, &[heads, windows, size, head_dim])?;
                    ops::swap_axes(&x, 0, 1)
                };
                let seen = attend(self.kernels, &cut(&q)?, &cut(&k)?, &cut(&v)?, Sees::All)?;
                parts.push(ops::reshape(&seen, &[1, size * windows, hidden])?);
                first = last;
            }
            debug_assert_eq!(first, count);
            ops::concatenate(&parts.iter().collect::<Vec<_>>(), 1)?
        };
        let x = self.kernels.sum(x, &self.out.forward(&seen)?)?;
        let normed = self.norms[1].forward(&x)?;
        let (gate, up) = (self.gate.forward(&normed)?, self.up.forward(&normed)?);
        let inner = self.kernels.gated(Activation::Silu, &Columns::all(gate), &Columns::all(up))?;
        self.kernels.sum(&x, &self.down.forward(&inner)?)
    }
}

/// The Gaussian error linear unit, by the error function.
fn gelu(x: &Array) -> Result<Array> {
    let scalar = |value: f32| Array::scalar(value, Dtype::F32);
    let wide = ops::astype(x, Dtype::F32)?;
    let erf = ops::erf(&ops::multiply(&wide, &scalar(std::f32::consts::FRAC_1_SQRT_2)?)?)?;
    let open = ops::multiply(&ops::add(&erf, &scalar(1.0)?)?, &scalar(0.5)?)?;
    ops::astype(&ops::multiply(&wide, &open)?, x.dtype())
}
