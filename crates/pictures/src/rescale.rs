//! From 8 bits to the numbers that a model takes.

/// How a level, 0 to 255, becomes a number: times a factor, less a mean, over a deviation.
#[derive(Debug, Clone, PartialEq)]
pub struct Rescale {
    /// `rescale_factor`, where `do_rescale` holds.
    pub factor: Option<f64>,
    /// `image_mean` and `image_std` of red, green and blue, where `do_normalize` holds.
    pub normalize: Option<([f32; 3], [f32; 3])>,
}

impl Rescale {
    /// The number of each level of each channel, `[3][256]`. The arithmetic is that of transformers
    /// with torchvision: the factor is put into mean and deviation first, all in f32.
    pub fn table(&self) -> [[f32; 256]; 3] {
        let factor = self.factor.unwrap_or(1.0);
        let inverse = (1.0 / factor) as f32;
        let of = |channel: usize, level: f32| match self.normalize {
            Some((mean, std)) => (level - mean[channel] * inverse) / (std[channel] * inverse),
            None => level * factor as f32,
        };
        std::array::from_fn(|channel| std::array::from_fn(|level| of(channel, level as f32)))
    }
}
