//! `ml speak`: text as a file of sound.

use std::io::{self, Write};
use std::time::Instant;

use inference_core::{
    CancelToken, Error, Samples, SpeakOptions, SpeechEvent, SpeechModel, SpeechText,
};

use crate::args::SpeakArgs;
use crate::failure::{Failure, Result};
use crate::files::{self, Access};
use crate::interrupt::{Interrupt, Then};
use crate::names;
use crate::output::{Spinner, dim_note, print_line};

/// The most bytes of sound in a WAV file, which counts them with 32 bits.
const MOST_SAMPLES: usize = (u32::MAX as usize - 44) / 2;

/// Says the text of `args`.
///
/// # Errors
/// Bad options, an unusable model, text that cannot be said, a file that cannot be written, an
/// interruption.
pub fn run(args: &SpeakArgs) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let cancel = CancelToken::new();
    let options = SpeakOptions {
        voice: args.voice.clone(),
        speed: args.speed,
        seed: args.seed,
        cancel: cancel.clone(),
    };
    options.validate()?;
    let missing =
        "no model is named: `--model MODEL`, or ML_SPEECH_MODEL; a folder of Kokoro-82M is one";
    let folder = names::folder_or_env(args.load.model.as_deref(), "ML_SPEECH_MODEL", missing)?;
    if args.voices {
        let info = metal_backend::describe_speech_model(&folder, &args.load.options())?;
        return print_line(info.voices.join("\n"));
    }
    let text = text(args)?;
    metal_backend::register()?;
    let model = {
        let _spinner = (!args.quiet).then(|| Spinner::new(format!("loading {}", folder.display())));
        inference_core::load_speech_model(&folder, &args.load.options())?
    };
    let watch = interrupt.watch(&cancel, Then::Leave);
    let started = Instant::now();
    let made = speak(model.as_ref(), &text, &options, args);
    let interrupted = watch.fired();
    drop(watch);
    let seconds = match made {
        Err(Failure::Model(Error::Cancelled)) if interrupted => return Err(Failure::Interrupted),
        // The text is no flag.
        Err(Failure::Model(Error::InvalidOption { option: "text", reason })) => {
            return Err(Failure::Usage(format!("the text: {reason}")));
        }
        made => made?,
    };
    if !args.quiet {
        let took = started.elapsed().as_secs_f64();
        let rate = seconds / took.max(1e-9);
        dim_note(format_args!("{seconds:.1} s of sound in {took:.1} s, {rate:.1} times real time"));
    }
    Ok(())
}

/// The text of the command line, or of stdin.
fn text(args: &SpeakArgs) -> Result<SpeechText> {
    let text = match args.text.as_deref() {
        None | Some("-") => files::read_stdin()?,
        Some(text) => text.to_owned(),
    };
    Ok(if args.phonemes { SpeechText::Phonemes(text) } else { SpeechText::Plain(text) })
}

/// Says `text`, and writes the file when all of it is there. Returns the seconds of the sound.
fn speak(
    model: &dyn SpeechModel,
    text: &SpeechText,
    options: &SpeakOptions,
    args: &SpeakArgs,
) -> Result<f64> {
    let spinner = (!args.quiet).then(|| Spinner::new("speaking".into()));
    let mut all = Samples { values: Vec::new(), rate: model.info().sample_rate };
    for event in model.speak(text, options)? {
        if let SpeechEvent::Piece(piece) = event? {
            all.values.extend(piece.sound.values);
        }
        if all.values.len() > MOST_SAMPLES {
            let reason = "the sound is longer than a WAV file can be: say a part of the text";
            return Err(Failure::Other(reason.into()));
        }
    }
    drop(spinner);
    let file = sound::wav(&all.values, all.rate);
    if files::is_stdin(&args.output) {
        let mut stdout = io::stdout().lock();
        stdout.write_all(&file).map_err(Failure::from_stdout)?;
        stdout.flush().map_err(Failure::from_stdout)?;
    } else {
        files::replace(&args.output, &file, Access::Shared)?;
    }
    Ok(all.seconds())
}
