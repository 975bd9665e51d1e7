//! A request with everything that it left open decided, before it enters the queue.

use inference_core::{Error, ImageModelInfo, ImageRequest, Latents, Result};

use super::edit::Edited;

/// A request with everything that it left open decided.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub width: i32,
    pub height: i32,
    pub steps: usize,
    pub guidance: f32,
    /// See [`ImageRequest::guidance_normalization`]; 0: none.
    pub normalization: f32,
    /// See [`ImageRequest::guidance_truncation`]; 1: none.
    pub truncation: f32,
    pub noise: Noise,
    pub prompt: Prompt,
    /// The prompt that guidance leads away from, where there is guidance.
    pub negative: Option<Prompt>,
    /// The pictures that are edited.
    pub edited: Vec<Edited>,
    /// How many pictures are told on the way.
    pub partials: usize,
}

/// The ids of a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Prompt {
    pub ids: Vec<u32>,
}

/// The noise that a picture begins with.
#[derive(Clone, Debug)]
pub(super) enum Noise {
    /// Drawn with this seed.
    Seed(u64),
    /// Given.
    Given(Latents),
}

impl Plan {
    /// The picture's rows and columns of patches, each of 16 × 16 pixels.
    pub fn grid(&self) -> [i32; 2] {
        [self.height / 16, self.width / 16]
    }

    /// Positions of the picture in the transformer.
    pub fn tokens(&self) -> i32 {
        self.grid().iter().product()
    }

    /// The number of the partial picture that is told after `step`, if one is. They divide the
    /// steps evenly, and the last step has none.
    pub fn partial(&self, step: usize) -> Option<usize> {
        let count = self.partials.min(self.steps.saturating_sub(1));
        (0..count).find(|index| step == (index + 1) * self.steps / (count + 1))
    }

    /// Rows and columns of the patches of all pictures, the one that is made first.
    pub fn grids(&self) -> Vec<[i32; 2]> {
        [self.grid()].into_iter().chain(self.edited.iter().map(|edited| edited.patches)).collect()
    }
}

/// The width and the height of what is asked for; `default` is what an unset one is.
///
/// # Errors
/// A side that the model does not make, with the nearest ones that it does.
pub(super) fn sides(
    request: &ImageRequest,
    default: [usize; 2],
    multiple: usize,
    most: usize,
) -> Result<[i32; 2]> {
    let side = |option: &'static str, given: Option<usize>, default: usize| {
        let side = given.unwrap_or(default);
        if side > 0 && side <= most && side.is_multiple_of(multiple) {
            return Ok(side as i32);
        }
        let below = (side.min(most) / multiple * multiple).max(multiple);
        let above = below + multiple;
        let nearest = match side {
            _ if side < below || side >= most => below.to_string(),
            _ => format!("{below} and {above}"),
        };
        let reason = format!(
            "{side} pixels; sides are multiples of {multiple} up to {most}, the nearest: {nearest}"
        );
        Err(Error::InvalidOption { option, reason })
    };
    Ok([side("width", request.width, default[0])?, side("height", request.height, default[1])?])
}

/// The noise that is asked for.
///
/// # Errors
/// Latents of another shape than the picture's.
pub(super) fn noise(
    request: &ImageRequest,
    info: &ImageModelInfo,
    [width, height]: [i32; 2],
) -> Result<Noise> {
    let Some(latents) = &request.latents else {
        return Ok(Noise::Seed(request.seed.unwrap_or(0)));
    };
    let expected = [1, info.latent_channels, height as usize / 8, width as usize / 8];
    if latents.shape != expected {
        let reason = format!(
            "shape {:?}, expected {expected:?} for {width} × {height} pixels",
            latents.shape
        );
        return Err(Error::InvalidOption { option: "latents", reason });
    }
    Ok(Noise::Given(latents.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_pictures_divide_the_steps_and_leave_the_last_one_out() {
        let steps_of = |partials, steps| -> Vec<usize> {
            let noise = Noise::Seed(0);
            let plan = Plan {
                width: 16,
                height: 16,
                steps,
                guidance: 0.0,
                normalization: 0.0,
                truncation: 1.0,
                noise,
                prompt: Prompt::default(),
                negative: None,
                edited: Vec::new(),
                partials,
            };
            let told: Vec<_> = (1..=steps).filter(|step| plan.partial(*step).is_some()).collect();
            let numbers: Vec<_> = told.iter().filter_map(|step| plan.partial(*step)).collect();
            assert_eq!(numbers, (0..told.len()).collect::<Vec<_>>());
            told
        };
        assert!(steps_of(0, 9).is_empty());
        assert_eq!(steps_of(1, 9), [4]);
        assert_eq!(steps_of(3, 9), [2, 4, 6]);
        assert_eq!(steps_of(3, 50), [12, 25, 37]);
        assert_eq!(steps_of(3, 3), [1, 2]);
        assert!(steps_of(3, 1).is_empty());
    }

    #[test]
    fn a_side_that_is_refused_has_the_nearest_good_ones_named() {
        let told = |width| {
            let request = ImageRequest { width: Some(width), ..Default::default() };
            match sides(&request, [1024; 2], 16, 8192) {
                Ok(sides) => format!("{sides:?}"),
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(told(512), "[512, 1024]");
        assert_eq!(told(8192), "[8192, 1024]");
        assert!(told(1000).ends_with("the nearest: 992 and 1008"), "{}", told(1000));
        assert!(told(1).ends_with("the nearest: 16"), "{}", told(1));
        assert!(told(0).ends_with("the nearest: 16"), "{}", told(0));
        assert!(told(9000).ends_with("the nearest: 8192"), "{}", told(9000));
        assert!(told(8191).ends_with("the nearest: 8176 and 8192"), "{}", told(8191));
    }
}
