//! Triangles on Slaney's mel scale, as `mel_filter_bank` of transformers makes them.

/// The highest frequency, in Hz.
const HIGHEST: f64 = 8_000.0;

/// From here on the scale is logarithmic: in Hz, and in mels.
const BREAK: (f64, f64) = (1_000.0, 15.0);

/// A triangle, of which only the bins inside are kept.
#[derive(Debug, Clone)]
pub struct Band {
    begin: usize,
    weights: Vec<f32>,
}

impl Band {
    /// The weighted sum of a spectrum's bins.
    pub fn sum(&self, power: &[f32]) -> f32 {
        let inside = &power[self.begin..self.begin + self.weights.len()];
        inside.iter().zip(&self.weights).map(|(power, weight)| power * weight).sum()
    }
}

/// The bands of a spectrum with so many bins, each with the same area.
pub fn slaney(bands: usize, bins: usize, rate: u32) -> Vec<Band> {
    let highest = mel(HIGHEST);
    let edge = |at: usize| hertz(highest * at as f64 / (bands + 1) as f64);
    let bin = |at: usize| f64::from(rate / 2) * at as f64 / (bins - 1) as f64;
    let band = |at: usize| {
        let (low, middle, high) = (edge(at), edge(at + 1), edge(at + 2));
        let weight = |at: usize| {
            let (up, down) = ((bin(at) - low) / (middle - low), (high - bin(at)) / (high - middle));
            (up.min(down).max(0.0) * 2.0 / (high - low)) as f32
        };
        let begin = (0..bins).find(|at| weight(*at) > 0.0).unwrap_or(0);
        let weights = (begin..bins).map(weight).take_while(|weight| *weight > 0.0).collect();
        Band { begin, weights }
    };
    (0..bands).map(band).collect()
}

fn step() -> f64 {
    27.0 / 6.4f64.ln()
}

fn mel(hertz: f64) -> f64 {
    if hertz < BREAK.0 { 3.0 * hertz / 200.0 } else { BREAK.1 + (hertz / BREAK.0).ln() * step() }
}

fn hertz(mel: f64) -> f64 {
    if mel < BREAK.1 { 200.0 * mel / 3.0 } else { BREAK.0 * ((mel - BREAK.1) / step()).exp() }
}
