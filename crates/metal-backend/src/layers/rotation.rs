//! How far positions rotate the values of a head.

use std::rc::Rc;

use mlx_ffi::cpu;

/// The rotation of each pair of a head's values, by position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rotation {
    /// Inverse frequencies: radians for each position, one for each pair.
    pub inv_freq: Rc<[f32]>,
    /// The factor of positions.
    pub scale: f32,
    /// The factor of the values as they are rotated.
    pub attention_factor: f32,
    /// Which of three positions turns each pair: time, row or column; `None`: there is one.
    pub axes: Option<Rc<[u8]>>,
}

impl Rotation {
    /// Appends the cosines of all pairs' angles at a position, then their sines.
    pub fn push_cos_sin(&self, position: i32, to: &mut Vec<f32>) {
        let inv_freq = self.inv_freq.iter().copied();
        to.extend(cpu::turns(inv_freq, position, self.scale, self.attention_factor));
    }

    /// Appends the same at the positions of three axes.
    pub fn push_axes(&self, positions: [i32; 3], to: &mut Vec<f32>) {
        let of_axis = |position: i32| -> Vec<f32> {
            let inv_freq = self.inv_freq.iter().copied();
            cpu::turns(inv_freq, position, self.scale, self.attention_factor).collect()
        };
        let all = positions.map(of_axis);
        let pairs = self.inv_freq.len();
        let axis = |pair: usize| self.axes.as_ref().map_or(0, |axes| usize::from(axes[pair]));
        to.extend((0..2 * pairs).map(|at| all[axis(at % pairs)][at]));
    }
}
