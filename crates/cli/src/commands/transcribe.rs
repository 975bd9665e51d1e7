//! `ml transcribe`: the text of speech.

mod written;

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::Instant;

use inference_core::{
    CancelToken, Error, Fallback, Samples, SpeechTask, Timestamps, TranscribeOptions, Transcript,
    Transcription, TranscriptionEvent, TranscriptionModel,
};
use sound::{Limits, Sound};

use crate::args::{Form, TranscribeArgs, TranscriptionLoadArgs};
use crate::failure::{Failure, Result};
use crate::files::{self, Access};
use crate::interrupt::{Interrupt, Then};
use crate::names;
use crate::output::{Progress, Spinner, counted, dim_note, note, print};

/// Files that are read and heard at the same time where nothing is said.
const TOGETHER_ON_CPU: usize = 4;
const TOGETHER_ON_GPU: usize = 16;

/// Transcribes the files that `args` name, in their order.
///
/// # Errors
/// Bad options, an unusable model, a file that is no sound, an interruption.
pub fn run(args: &TranscribeArgs) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let cancel = CancelToken::new();
    let options = options(args, &cancel);
    options.validate()?;
    if let Some(folder) = &args.output {
        written::check_names(&args.files, args.form())?;
        files::make_folder(folder)?;
    }
    let model = load(&args.load, args.quiet)?;
    let watch = interrupt.watch(&cancel, Then::Leave);
    let started = Instant::now();
    let made = transcribe(model.as_ref(), &options, args);
    let interrupted = watch.fired();
    drop(watch);
    let seconds = match made {
        Err(Failure::Model(Error::Cancelled)) if interrupted => return Err(Failure::Interrupted),
        made => made?,
    };
    if !args.quiet {
        let took = started.elapsed().as_secs_f64();
        let count = counted(args.files.len(), "file");
        let rate = seconds / took.max(1e-9);
        dim_note(format_args!(
            "{count}, {seconds:.1} s of sound in {took:.1} s, {rate:.1} times real time"
        ));
    }
    Ok(())
}

/// The options that `args` state.
fn options(args: &TranscribeArgs, cancel: &CancelToken) -> TranscribeOptions {
    let shown = match args.form() {
        Form::Text => Timestamps::None,
        Form::Json | Form::Srt | Form::Vtt => Timestamps::Segments,
    };
    TranscribeOptions {
        language: args.language.clone(),
        task: if args.translate { SpeechTask::Translate } else { SpeechTask::Transcribe },
        prompt: args.prompt.clone(),
        timestamps: args.timestamps.unwrap_or(shown),
        temperature: args.temperature,
        seed: args.seed,
        max_tokens: args.max_tokens,
        condition_on_previous: args.condition_on_previous.then_some(true),
        fallback: args.fallback.then(Fallback::default),
        cancel: cancel.clone(),
    }
}

/// The model that `args` name.
///
/// # Errors
/// No model at all; a name that is not fetched; the backend's.
fn load(args: &TranscriptionLoadArgs, quiet: bool) -> Result<Box<dyn TranscriptionModel>> {
    let missing = "no model is named: `--model MODEL`, or ML_TRANSCRIPTION_MODEL; `ml pull openai/whisper-large-v3-turbo` fetches one";
    let folder = names::folder_or_env(args.model.as_deref(), "ML_TRANSCRIPTION_MODEL", missing)?;
    metal_backend::register()?;
    let _spinner = (!quiet).then(|| Spinner::new(format!("loading {}", folder.display())));
    Ok(inference_core::load_transcription_model(&folder, &args.options())?)
}

/// A file that is heard.
struct Hearing<'a> {
    file: &'a Path,
    seconds: f64,
    events: Transcription,
}

/// Transcribes the files side by side, and writes their texts in their order. Returns the seconds
/// of all sound.
fn transcribe(
    model: &dyn TranscriptionModel,
    options: &TranscribeOptions,
    args: &TranscribeArgs,
) -> Result<f64> {
    let together = args.load.parallel.unwrap_or(match model.info().device.as_str() {
        "cpu" => TOGETHER_ON_CPU,
        _ => TOGETHER_ON_GPU,
    });
    thread::scope(|scope| {
        let mut files = args.files.iter();
        let mut heard = VecDeque::new();
        let mut seconds = 0.0;
        loop {
            while heard.len() < together
                && let Some(file) = files.next()
            {
                // Reading and features take a part of a second, which a GPU would wait for.
                heard.push_back(scope.spawn(move || begin(model, options, file)));
            }
            let Some(first) = heard.pop_front() else { return Ok(seconds) };
            let first = first.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            seconds += first.seconds;
            finish(first, args)?;
        }
    })
}

/// Reads a file and begins to transcribe it.
fn begin<'a>(
    model: &dyn TranscriptionModel,
    options: &TranscribeOptions,
    file: &'a Path,
) -> Result<Hearing<'a>> {
    let limits = Limits::default();
    let bytes = files::read_sound(limits.bytes, file)?;
    let about =
        |error: &dyn std::fmt::Display| Failure::Other(format!("{}: {error}", file.display()));
    let rate = model.info().sample_rate;
    let sound = Sound::decode(&bytes, rate, &limits).map_err(|error| about(&error))?;
    let samples = Samples { values: sound.samples, rate };
    let seconds = samples.seconds();
    let events = model.transcribe(samples, options)?;
    Ok(Hearing { file, seconds, events })
}

/// Writes the text of a file as it is heard.
fn finish(hearing: Hearing<'_>, args: &TranscribeArgs) -> Result<()> {
    let Hearing { file, seconds, events } = hearing;
    let streams = args.form() == Form::Text && args.output.is_none();
    // The bar takes the line that it is on.
    let by_lines = io::stdout().is_terminal();
    let progress = (!args.quiet).then(|| Progress::of_seconds(file.display().to_string(), seconds));
    if args.files.len() > 1 && args.output.is_none() && !args.quiet {
        note(format_args!("{}:", file.display()));
    }
    let mut transcript = None;
    let mut has_text = false;
    for event in events {
        match event? {
            TranscriptionEvent::Language(code, probability) if !args.quiet => {
                let show =
                    || dim_note(format_args!("language: {code} ({:.0} %)", probability * 100.0));
                progress.as_ref().map_or_else(show, |progress| progress.suspend(show));
            }
            TranscriptionEvent::Segment(segment) if streams => {
                let text = match (by_lines, has_text) {
                    (true, _) => format!("{}\n", segment.text.trim()),
                    (false, true) => segment.text,
                    (false, false) => segment.text.trim_start().to_owned(),
                };
                let write = || print(&text);
                progress.as_ref().map_or_else(write, |progress| progress.suspend(write))?;
                has_text |= !text.is_empty();
            }
            TranscriptionEvent::Heard(done) => {
                progress.iter().for_each(|progress| progress.at_second(done));
            }
            TranscriptionEvent::Done(done) => transcript = Some(*done),
            _ => {}
        }
    }
    drop(progress);
    let transcript: Transcript = transcript.ok_or(Failure::Model(Error::Closed))?;
    if streams {
        return if by_lines { Ok(()) } else { print("\n") };
    }
    let text = written::text(&transcript, file, args.form())?;
    match &args.output {
        None => print(&text),
        Some(folder) => {
            let path = folder.join(written::name(file, args.form()));
            files::replace(&path, text.as_bytes(), Access::Shared)
        }
    }
}
