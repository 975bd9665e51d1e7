//! The config of a feature extractor.

use sound::{Floor, LogMel};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::ModelFiles;

/// The features that the files of a processor ask for; what they leave out is as in `way`.
///
/// # Errors
/// An option that would change the features and is not supported, with its file.
pub(super) fn read(files: &ModelFiles, way: LogMel) -> Result<LogMel> {
    const NAMES: [&str; 2] = ["processor_config.json", "preprocessor_config.json"];
    for name in NAMES {
        let Some(text) = files.text(name)? else { continue };
        let all = Config::parse(name, &text)?;
        let own = match all.object("feature_extractor")? {
            Some(own) => own,
            None if all.get("feature_size").is_some() => all,
            None => continue,
        };
        return with(way, &own).map_err(|error| Error::model(format!("{name}: {error}")));
    }
    Ok(way)
}

/// `way` with the values of `config`.
fn with(way: LogMel, config: &Config) -> Result<LogMel> {
    for (key, neutral) in [("dither", 0.0), ("input_scale_factor", 1.0), ("padding_value", 0.0)] {
        match config.opt_number(key)? {
            Some(found) if found != neutral => {
                return Err(Error::model(format!(
                    "`{key}` is {found}, expected {neutral}: nothing else is supported"
                )));
            }
            _ => {}
        }
    }
    let whole = |key: &str, found: f64| match (0.0..=384_000.0).contains(&found) {
        true if found.fract() == 0.0 => Ok(found as u32),
        _ => Err(Error::model(format!("`{key}` is {found}, expected a whole number of Hz"))),
    };
    let hertz = |key: &str, default: u32| {
        config.opt_number(key)?.map_or(Ok(default), |found| whole(key, found))
    };
    let rate = hertz("sampling_rate", way.rate)?;
    let samples = |key: &str, default: usize| -> Result<usize> {
        let found = config.opt_positive(key)?;
        Ok(found.map_or(default, |found| {
            (f64::from(rate) * found / 1_000.0).round_ties_even().min(65_537.0) as usize
        }))
    };
    let frame = samples("frame_length_ms", way.frame)?;
    let is_larger = config.opt_flag("fft_overdrive")?.unwrap_or(way.fft >= 2 * way.frame);
    let preemphasis = config.opt_number("preemphasis")?.unwrap_or(way.preemphasis.into()) as f32;
    if preemphasis > 0.0 && config.opt_flag("preemphasis_htk_flavor")? == Some(false) {
        return Err(Error::model(
            "`preemphasis_htk_flavor` is false, expected true: nothing else is supported",
        ));
    }
    let floor = config.opt_positive("mel_floor")?;
    let bins = |key| -> Result<Option<Vec<f32>>> {
        let found = config.opt_list_of_numbers(key)?;
        Ok(found.map(|found| found.into_iter().map(|value| value as f32).collect()))
    };
    let [lowest, highest] = way.frequencies;
    let way = LogMel {
        features: config.opt_size("feature_size")?.map_or(way.features, |size| size as usize),
        rate,
        frame,
        hop: samples("hop_length_ms", way.hop)?,
        fft: frame.next_power_of_two() << u32::from(is_larger),
        frequencies: [hertz("min_frequency", lowest)?, hertz("max_frequency", highest)?],
        preemphasis: preemphasis.max(0.0),
        floor: match (way.floor, floor) {
            (Floor::Added(usual), floor) => Floor::Added(floor.unwrap_or(usual)),
            (Floor::Least(usual), floor) => Floor::Least(floor.unwrap_or(usual)),
        },
        normalize: [bins("per_bin_mean")?, bins("per_bin_stddev")?],
        ..way
    };
    way.validate().map_err(|error| Error::model(error.to_string()))?;
    Ok(way)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> std::result::Result<LogMel, String> {
        let config = Config::parse("preprocessor_config.json", json).expect("it is JSON");
        with(LogMel::default(), &config).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_that_are_left_out_have_the_family_s_values() {
        assert_eq!(read("{}"), Ok(LogMel::default()));
        let found = read(
            r#"{"feature_size": 80, "frame_length_ms": 32.0, "hop_length_ms": 12.5,
                "fft_overdrive": true, "min_frequency": 125.0, "mel_floor": 1e-5, "preemphasis": 0.97}"#,
        );
        let found = found.expect("all of it is supported");
        assert_eq!((found.features, found.frame, found.hop, found.fft), (80, 512, 200, 1_024));
        assert_eq!((found.frequencies, found.floor), ([125, 8_000], Floor::Added(1e-5)));
    }

    #[test]
    fn what_would_change_features_is_refused_by_name() {
        for (json, told) in [
            (r#"{"dither": 0.1}"#, "`dither` is 0.1, expected 0"),
            (r#"{"input_scale_factor": 2}"#, "`input_scale_factor` is 2"),
            (r#"{"min_frequency": 0.5}"#, "`min_frequency` is 0.5, expected a whole number"),
            (
                r#"{"preemphasis": 0.9, "preemphasis_htk_flavor": false}"#,
                "`preemphasis_htk_flavor`",
            ),
            (r#"{"max_frequency": 9000}"#, "`max_frequency` 9000"),
            (r#"{"per_bin_mean": [1.0]}"#, "`per_bin_mean` is 1"),
            (r#"{"frame_length_ms": 100000}"#, "`fft_length`"),
        ] {
            let error = read(json).expect_err(json);
            assert!(error.contains(told), "{json}: {error}");
        }
    }
}
