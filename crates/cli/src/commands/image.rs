//! `ml image`: a picture from words.

mod progress;
mod report;

use std::path::Path;

use inference_core::{
    CancelToken, EncodedPicture, Error, GeneratedImage, ImageEvent, ImageModel, ImageRequest,
    Latents,
};
use safetensors::{Dtype, SafeTensors};

use crate::args::ImageArgs;
use crate::failure::{Failure, Result, reason};
use crate::files::{self, Access};
use crate::interrupt::{Interrupt, Then};
use crate::names;
use crate::output::{dim_note, print_json};
use progress::Progress;
use report::Report;

/// Larger files are no pictures and no noise.
const MAX_BYTES: u64 = 256 << 20;

/// Makes the picture that `args` ask for.
///
/// # Errors
/// Bad options, files that cannot be read or written, what the model refuses, an interruption.
pub fn run(args: &ImageArgs) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let cancel = CancelToken::new();
    let request = request(args, &cancel)?;
    // A size is left to the model, which names the nearest good ones.
    match request.validate() {
        Err(Error::InvalidOption { option: "width" | "height", .. }) | Ok(()) => {}
        Err(error) => return Err(error.into()),
    }
    check_output(&args.output)?;
    let missing = "no image model is named: `--model DIR`, or ML_IMAGE_MODEL; `ml pull Tongyi-MAI/Z-Image-Turbo` fetches one";
    let folder = names::folder_or_env(args.model.as_deref(), "ML_IMAGE_MODEL", missing)?;
    metal_backend::register()?;
    let model = inference_core::load_image_model(&folder, &args.load.options())?;

    let watch = interrupt.watch(&cancel, Then::Leave);
    let made = paint(model.as_ref(), &request, args);
    let interrupted = watch.fired();
    drop(watch);
    let image = match made {
        Err(Failure::Model(Error::Cancelled)) if interrupted => return Err(Failure::Interrupted),
        made => made?,
    };
    let name = args.model.as_deref().unwrap_or(&folder).display().to_string();
    let report = Report::new(&name, model.info(), &request, &image, &args.output);
    files::replace(&args.output, &report.png(&image.picture)?, Access::Shared)?;
    if args.json {
        return print_json(&report);
    }
    if !args.quiet {
        dim_note(report.line());
    }
    Ok(())
}

/// That a picture could be written in the end: the work takes minutes.
fn check_output(path: &Path) -> Result<()> {
    let shown = path.display();
    let bad = |reason: String| Err(Failure::Other(format!("{shown}: {reason}")));
    match path.metadata() {
        Ok(data) if data.is_dir() => return bad("is a folder".into()),
        _ => {}
    }
    const OTHERS: [&str; 7] = ["jpg", "jpeg", "webp", "gif", "bmp", "tif", "tiff"];
    let end = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    if OTHERS.contains(&end.as_str()) {
        let named = path.with_extension("png");
        return bad(format!("a PNG is written; say `--output {}`", named.display()));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.map(Path::metadata) {
        Some(Err(error)) => bad(reason(&error)),
        Some(Ok(data)) if !data.is_dir() => bad("its folder is none".into()),
        _ => Ok(()),
    }
}

fn request(args: &ImageArgs, cancel: &CancelToken) -> Result<ImageRequest> {
    let prompt = match args.prompt.as_str() {
        "-" => files::read(Path::new("-"))?.trim_end_matches('\n').to_owned(),
        prompt => prompt.to_owned(),
    };
    let images = args.images.iter().map(|path| {
        Ok(EncodedPicture::new(
            files::read_bytes_up_to(MAX_BYTES, path)?,
            path.display().to_string(),
        ))
    });
    let latents = args.latents.as_deref().map(latents).transpose()?;
    // Drawn here, so that the report can tell it.
    let seed = args.seed.or_else(|| latents.is_none().then(drawn));
    Ok(ImageRequest {
        prompt,
        negative_prompt: args.negative_prompt.clone(),
        width: args.width,
        height: args.height,
        steps: args.steps,
        guidance: args.guidance,
        guidance_normalization: args.guidance_normalization,
        guidance_truncation: args.guidance_truncation,
        seed,
        images: images.collect::<Result<_>>()?,
        latents,
        partial_images: 0,
        cancel: cancel.clone(),
    })
}

/// A seed that nobody chose, short enough to be typed.
fn drawn() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() % (1 << 32)
}

/// The tensor `latents` of a safetensors file: four dimensions of F32 or BF16.
fn latents(path: &Path) -> Result<Latents> {
    let bad = |reason: String| Failure::Other(format!("{}: {reason}", path.display()));
    let bytes = files::read_bytes_up_to(MAX_BYTES, path)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| bad(error.to_string()))?;
    let tensor = tensors.tensor("latents").map_err(|_| bad("has no tensor `latents`".into()))?;
    let shape: [usize; 4] = tensor
        .shape()
        .try_into()
        .map_err(|_| bad(format!("`latents` has shape {:?}, expected four", tensor.shape())))?;
    let data = tensor.data();
    let values = match tensor.dtype() {
        Dtype::F32 => data
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect(),
        Dtype::BF16 => data
            .chunks_exact(2)
            .map(|bytes| f32::from_le_bytes([0, 0, bytes[0], bytes[1]]))
            .collect(),
        other => {
            return Err(bad(format!("`latents` has the type {other:?}, expected F32 or BF16")));
        }
    };
    Ok(Latents { shape, values })
}

fn paint(
    model: &dyn ImageModel,
    request: &ImageRequest,
    args: &ImageArgs,
) -> Result<GeneratedImage> {
    let generation = model.generate(request).map_err(|error| match error {
        Error::Unsupported { what, reason } if what == "images" => {
            Failure::Usage(format!("--input-image is not supported: {reason}"))
        }
        error => error.into(),
    })?;
    let mut progress = (!args.quiet).then(Progress::default);
    for event in generation {
        match event? {
            ImageEvent::Done(image) => return Ok(*image),
            event => {
                if let Some(progress) = &mut progress {
                    progress.show(&event);
                }
            }
        }
    }
    Err(Error::Closed.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use safetensors::tensor::TensorView;

    use super::latents;

    #[test]
    fn latents_are_read_from_a_safetensors_file_or_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("noise.safetensors");
        let write = |name: &str, dtype, shape: Vec<usize>, bytes: &[u8]| {
            let view = TensorView::new(dtype, shape, bytes).unwrap();
            fs::write(&path, safetensors::serialize([(name, view)], None).unwrap()).unwrap();
            latents(&path).map_err(|failure| failure.to_string())
        };
        let bytes: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let read = write("latents", safetensors::Dtype::F32, vec![1, 1, 1, 2], &bytes).unwrap();
        assert_eq!((read.shape, read.values), ([1, 1, 1, 2], vec![1.5, -2.0]));
        let half = [0xc0, 0x3f, 0x00, 0xc0];
        let read = write("latents", safetensors::Dtype::BF16, vec![1, 1, 1, 2], &half).unwrap();
        assert_eq!(read.values, [1.5, -2.0]);
        let told = write("noise", safetensors::Dtype::F32, vec![1, 1, 1, 2], &bytes).unwrap_err();
        assert!(told.contains("noise.safetensors") && told.contains("`latents`"), "{told}");
        let told = write("latents", safetensors::Dtype::F32, vec![2], &bytes).unwrap_err();
        assert!(told.contains("[2]"), "{told}");
        fs::write(&path, "nonsense").unwrap();
        assert!(latents(&path).unwrap_err().to_string().contains("noise.safetensors"));
    }
}
