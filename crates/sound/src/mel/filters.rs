//! Triangles on mel scales, as `mel_filter_bank` of transformers makes them.

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

/// The bands of a spectrum with so many bins, each with the same area, on Slaney's scale.
pub fn slaney(bands: usize, bins: usize, rate: u32) -> Vec<Band> {
    let highest = mel(HIGHEST);
    let edge = |at: usize| hertz(highest * at as f64 / (bands + 1) as f64);
    triangles([bands, bins], rate, edge, |low, high| 2.0 / (high - low))
}

/// The bands of a spectrum with so many bins between two frequencies, each with the same height, on
/// HTK's scale.
pub fn htk(bands: usize, bins: usize, rate: u32, [lowest, highest]: [u32; 2]) -> Vec<Band> {
    let mel = |hertz: u32| 2_595.0 * (1.0 + f64::from(hertz) / 700.0).log10();
    let (lowest, highest) = (mel(lowest), mel(highest));
    let edge = |at: usize| {
        let mels = lowest + (highest - lowest) * at as f64 / (bands + 1) as f64;
        700.0 * (10f64.powf(mels / 2_595.0) - 1.0)
    };
    triangles([bands, bins], rate, edge, |_, _| 1.0)
}

/// So many triangles over so many bins, from `edge` to `edge`, of the `height` that these have.
fn triangles(
    [bands, bins]: [usize; 2],
    rate: u32,
    edge: impl Fn(usize) -> f64,
    height: impl Fn(f64, f64) -> f64,
) -> Vec<Band> {
    let bin = |at: usize| f64::from(rate / 2) * at as f64 / (bins - 1) as f64;
    let band = |at: usize| {
        let (low, middle, high) = (edge(at), edge(at + 1), edge(at + 2));
        let weight = |at: usize| {
            let (up, down) = ((bin(at) - low) / (middle - low), (high - bin(at)) / (high - middle));
            (up.min(down).max(0.0) * height(low, high)) as f32
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
