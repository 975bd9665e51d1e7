//! Telling how many bytes of weights are read.

use inference_core::LoadProgress;

use super::Weights;

impl Weights {
    /// Tells `progress` of what is read, where somebody looks at it and something is read.
    pub fn with_progress(mut self, progress: Option<LoadProgress>) -> Weights {
        let reads = !self.describes();
        let shared = std::rc::Rc::get_mut(&mut self.shared);
        shared.expect("it is set before cursors are handed out").progress =
            progress.filter(|_| reads);
        self
    }

    /// So many bytes are taken, the last of which was read just now.
    pub(super) fn tell(&self, bytes: u64) {
        if let Some(progress) = &self.shared.progress {
            progress.reached(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::files::ModelFiles;
    use crate::kernels::Kernels;
    use crate::weights::Checkpoint;

    #[test]
    fn each_tensor_is_told_once_it_is_read_and_a_description_tells_nothing() {
        let files = ModelFiles::Random("{}".into());
        let checkpoint = Checkpoint::open(&files).expect("no files are read");
        let config = Config::parse("config.json", "{}").expect("an object");
        for only_describe in [false, true] {
            let progress = LoadProgress::new();
            let w = Weights::of(&checkpoint, &config, None, Kernels::Mlx, only_describe);
            let w = w.with_progress(Some(progress.clone()));
            progress.begin(1000);
            let read = || progress.weights().expect("it has begun").read;
            let mut seen = vec![read()];
            // Each value takes two bytes.
            for (name, size) in [("a", 100), ("b", 150), ("c", 250)] {
                w.tensor(name, &[size]).expect("drawn");
                seen.push(read());
            }
            assert_eq!(seen, if only_describe { [0; 4] } else { [0, 200, 500, 1000] });
        }
    }
}
