//! From a plan to a picture: the phases, one component after the other.

use std::time::{Duration, Instant};

use inference_core::{Error as Refusal, GeneratedImage, ImageEvent, ImageFacts, ImagePhase};
use mlx_ffi::{Array, Dtype, memory, ops, random};

use super::bill::{Bill, Tiling};
use super::denoise::{Conditions, Denoiser};
use super::edit::Edited;
use super::pipeline::{Encoder, Pipeline, Transformer};
use super::plan::{Noise, Plan};
use super::vae::{self, Vae};
use crate::error::Result;

/// Receives the events of a picture in the making, and may cancel it.
pub(super) trait Observer {
    fn is_cancelled(&self) -> bool;
    fn tell(&mut self, event: ImageEvent);
    /// The latents after a step, `[1, channels, height / 8, width / 8]`, where they are looked at.
    fn latents(&mut self, _step: usize, _latents: &dyn Fn() -> Result<Array>) -> Result<()> {
        Ok(())
    }
}

/// The result of all steps.
struct Denoised {
    /// `[1, height / 8, width / 8, channels]` F32.
    latents: Array,
    /// The median of the steps' times.
    step: Duration,
    /// The time of partial pictures.
    partials: Duration,
}

/// Makes pictures on the thread that owns it.
pub(super) struct Painter {
    pipeline: Pipeline,
    /// Bytes that arrays may take.
    limit: u64,
    /// Components stay after their phase.
    keeps: bool,
    encoder: Option<Encoder>,
    transformer: Option<Transformer>,
    vae: Option<Box<dyn Vae>>,
}

impl Painter {
    pub fn new(pipeline: Pipeline, limit: u64, keeps: bool) -> Painter {
        Painter { pipeline, limit, keeps, encoder: None, transformer: None, vae: None }
    }

    /// Makes the picture of `plan`.
    ///
    /// # Errors
    /// A picture that does not fit the memory; [`Refusal::Cancelled`]; errors of the computation.
    pub fn paint(&mut self, plan: &Plan, observer: &mut dyn Observer) -> Result<GeneratedImage> {
        let begun = Instant::now();
        memory::reset_peak()?;
        let tiling = self.admit(plan)?;
        let mut facts = ImageFacts {
            steps: plan.steps,
            guidance: plan.guidance,
            seed: match plan.noise {
                Noise::Seed(seed) => Some(seed),
                Noise::Given(_) => None,
            },
            prompt_tokens: plan.prompt.ids.len(),
            prompt_image_tokens: plan.edited.iter().map(Edited::seen_tokens).sum(),
            image_tokens: plan.tokens() as usize,
            ..ImageFacts::default()
        };
        let done = |since: Instant, loading: Duration| since.elapsed().saturating_sub(loading);

        observer.tell(ImageEvent::Phase(ImagePhase::Encode));
        let since = Instant::now();
        let loading = self.load_encoder()?;
        let prompts = self.encode(plan)?;
        self.free(|painter| painter.encoder = None)?;
        check(observer)?;
        let (given, more) = self.given(&plan.edited)?;
        let conditions = Conditions { prompts, given, grids: plan.grids() };
        let loading = loading + more;
        facts.encode_duration = done(since, loading);
        facts.load_duration += loading;
        check(observer)?;

        observer.tell(ImageEvent::Phase(ImagePhase::Denoise));
        let since = Instant::now();
        let mut loading = self.load_transformer()?;
        if plan.partials > 0 {
            loading += self.load_vae()?;
        }
        let denoised = self.denoise(plan, &conditions, tiling.on_the_way, observer)?;
        let Denoised { latents, step, partials } = denoised;
        facts.step_duration = step;
        drop(conditions);
        facts.denoise_duration = done(since, loading + partials);
        facts.load_duration += loading;
        self.free(|painter| painter.transformer = None)?;
        check(observer)?;

        observer.tell(ImageEvent::Phase(ImagePhase::Decode));
        let since = Instant::now();
        let loading = self.load_vae()?;
        let picture = self.decode(&latents, tiling.at_the_end)?;
        drop(latents);
        facts.decode_duration = partials + done(since, loading);
        facts.load_duration += loading;
        self.free(|painter| painter.vae = None)?;

        facts.peak_memory_bytes = memory::peak()? as u64;
        facts.total_duration = begun.elapsed();
        Ok(GeneratedImage { picture, facts })
    }

    /// The pipeline that makes its pictures.
    #[cfg(test)]
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Lets arrays take so many bytes.
    #[cfg(test)]
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Frees everything that an earlier picture left.
    pub fn clear(&mut self) {
        (self.encoder, self.transformer, self.vae) = (None, None, None);
    }

    /// Frees a component, unless components are kept.
    fn free(&mut self, forget: impl FnOnce(&mut Painter)) -> Result<()> {
        if !self.keeps {
            forget(self);
            memory::give_back()?;
        }
        Ok(())
    }

    /// Decides where the picture is decoded in tiles. Where kept components leave no room, frees
    /// them and keeps none from then on.
    ///
    /// # Errors
    /// A picture that does not fit the memory, with the numbers.
    fn admit(&mut self, plan: &Plan) -> Result<Tiling> {
        let sizes = self.pipeline.sizes;
        let held = [
            self.encoder.as_ref().map_or(0, |_| sizes.encoder),
            self.transformer.as_ref().map_or(0, |_| sizes.transformer),
            self.vae.as_ref().map_or(0, |_| sizes.vae),
        ];
        let others = (memory::active()? as u64).saturating_sub(held.iter().sum());
        let available = self.limit.saturating_sub(others);
        let bill = Bill::of(plan, sizes, self.pipeline.tiles()?);
        if self.keeps && bill.kept() > available {
            self.keeps = false;
            self.clear();
            memory::give_back()?;
        }
        bill.check(available)?;
        Ok(bill.tiling(available, self.keeps))
    }

    fn load_encoder(&mut self) -> Result<Duration> {
        let since = Instant::now();
        if self.encoder.is_none() {
            self.encoder = Some(self.pipeline.encoder(false)?.0);
        }
        Ok(since.elapsed())
    }

    fn load_transformer(&mut self) -> Result<Duration> {
        let since = Instant::now();
        if self.transformer.is_none() {
            self.transformer = Some(self.pipeline.transformer(false)?.0);
        }
        Ok(since.elapsed())
    }

    fn load_vae(&mut self) -> Result<Duration> {
        let since = Instant::now();
        if self.vae.is_none() {
            self.vae = Some(self.pipeline.vae(false)?.0);
        }
        Ok(since.elapsed())
    }

    /// The states of the prompt and of the negative one, `[1, ids, hidden]` each.
    fn encode(&self, plan: &Plan) -> Result<Vec<Array>> {
        let Some(encoder) = &self.encoder else { unreachable!("it was loaded") };
        let features = encoder.features(&plan.edited)?;
        let prompts = [Some(&plan.prompt), plan.negative.as_ref()].into_iter().flatten();
        let style = self.pipeline.style();
        prompts.map(|prompt| encoder.encode(prompt, &features, &plan.edited, style)).collect()
    }

    /// The latents of the pictures that are edited, as rows of patches, and how long reading the
    /// encoder took.
    fn given(&self, edited: &[Edited]) -> Result<(Option<Array>, Duration)> {
        if edited.is_empty() {
            return Ok((None, Duration::ZERO));
        }
        let since = Instant::now();
        let encoder = self.pipeline.vae_encoder(false)?.0;
        let loading = since.elapsed();
        let rows = edited.iter().map(|edited| {
            let picture = &edited.given;
            let level = |byte: &u8| f32::from(*byte) / 127.5 - 1.0;
            let colours: Vec<f32> = picture.rgb().iter().map(level).collect();
            let shape = [1, picture.height() as i32, picture.width() as i32, 3];
            let latents = encoder.encode(&Array::from_f32(&colours, &shape)?)?;
            let rows = super::denoise::packed(&ops::transpose(&latents, &[0, 3, 1, 2])?)?;
            rows.eval()?;
            Ok(rows)
        });
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let all = ops::concatenate(&rows.iter().collect::<Vec<_>>(), 1)?;
        all.eval()?;
        drop((encoder, rows));
        memory::give_back()?;
        Ok((Some(all), loading))
    }

    /// All steps; partial pictures are decoded in tiles where `in_tiles` says so.
    fn denoise(
        &self,
        plan: &Plan,
        conditions: &Conditions,
        in_tiles: bool,
        observer: &mut dyn Observer,
    ) -> Result<Denoised> {
        let Some(transformer) = &self.transformer else { unreachable!("it was loaded") };
        let sigmas = self.pipeline.schedule.sigmas(plan.steps, plan.tokens() as usize);
        let denoiser = Denoiser::new(transformer, plan, conditions)?;
        let channels = self.pipeline.latent_channels()?;
        let mut patches = denoiser.patches(&noise(plan, channels)?)?;
        let mut times = Vec::with_capacity(plan.steps);
        let mut partials = Duration::ZERO;
        for (step, pair) in sigmas.windows(2).enumerate() {
            check(observer)?;
            let since = Instant::now();
            let &[sigma, next] = pair else { unreachable!("windows of two") };
            let velocity = denoiser.velocity(&patches, sigma)?;
            let moved = |sigma: f32| -> Result<Array> {
                let change = Array::scalar(sigma, Dtype::F32)?;
                let moved = ops::add(&patches, &ops::multiply(&velocity, &change)?)?;
                moved.eval()?;
                Ok(moved)
            };
            let after = moved(next - sigma)?;
            times.push(since.elapsed());
            if let Some(index) = plan.partial(step + 1) {
                let since = Instant::now();
                // All the rest of the way at once.
                let latents = denoiser.latents(&moved(-sigma)?, channels)?;
                let picture = Box::new(self.decode(&latents, in_tiles)?);
                drop(latents);
                memory::give_back()?;
                observer.tell(ImageEvent::Partial { index, picture });
                partials += since.elapsed();
            }
            patches = after;
            let latents =
                || Ok(ops::transpose(&denoiser.latents(&patches, channels)?, &[0, 3, 1, 2])?);
            observer.latents(step + 1, &latents)?;
            observer.tell(ImageEvent::Step { step: step + 1, steps: plan.steps });
        }
        let latents = denoiser.latents(&patches, channels)?;
        latents.eval()?;
        times.sort_unstable();
        let step = times.get(times.len() / 2).copied().unwrap_or_default();
        Ok(Denoised { latents, step, partials })
    }

    fn decode(&self, latents: &Array, is_tiled: bool) -> Result<inference_core::Picture> {
        let Some(vae) = &self.vae else { unreachable!("it was loaded") };
        let tiles = is_tiled.then(|| self.pipeline.tiles()).transpose()?;
        vae::picture(&vae::decode(vae.as_ref(), latents, tiles)?)
    }
}

/// # Errors
/// [`Refusal::Cancelled`] where nobody wants the picture any more.
fn check(observer: &dyn Observer) -> Result<()> {
    if observer.is_cancelled() { Err(Refusal::Cancelled.into()) } else { Ok(()) }
}

/// The first noise, `[1, channels, height / 8, width / 8]` F32. Of a seed it is what MLX draws with
/// the key of that seed, normally distributed.
fn noise(plan: &Plan, channels: i32) -> Result<Array> {
    let shape = [1, channels, plan.height / vae::SCALE, plan.width / vae::SCALE];
    Ok(match &plan.noise {
        Noise::Seed(seed) => random::normal(&shape, Dtype::F32, &random::key(*seed)?)?,
        Noise::Given(latents) => Array::from_f32(&latents.values, &shape)?,
    })
}
