//! How far positions rotate the values of a head.

use std::rc::Rc;

use mlx_ffi::cpu;

/// The rotation of each pair of a head's values, by position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rotation {
    /// Inverse frequencies: radians for each position, one for each pair.
    pub inv_freq: Rc<[f32]>,
    /// What positions are multiplied with.
    pub scale: f32,
    /// What the values are multiplied with as they are rotated.
    pub attention_factor: f32,
}

impl Rotation {
    /// Appends the cosines of all pairs' angles at a position, then their sines.
    pub fn push_cos_sin(&self, position: i32, to: &mut Vec<f32>) {
        let inv_freq = self.inv_freq.iter().copied();
        to.extend(cpu::turns(inv_freq, position, self.scale, self.attention_factor));
    }
}
