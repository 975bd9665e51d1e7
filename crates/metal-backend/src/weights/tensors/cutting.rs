//! Parts of layers: what a rank reads where several compute a model together.

use std::rc::Rc;

use mlx_ffi::Quantization;
use mlx_ffi::distributed::Group;

use super::Weights;
use crate::layers::Together;
use crate::weights::Cut;

impl Weights {
    /// Lets each of the ranks of `group` read what it computes, where layers know how they are
    /// split.
    pub fn with_ranks(mut self, group: Option<Group>) -> Weights {
        let shared = Rc::get_mut(&mut self.shared);
        shared.expect("it is set before cursors are handed out").group = group;
        self
    }

    /// The ranks that compute the model together.
    pub fn ranks(&self) -> Option<&Group> {
        self.shared.group.as_ref()
    }

    /// The cursor below which modules, and tensors that are no module's, are cut: by the last part
    /// of their names.
    pub fn cut(&self, cuts: Vec<(&'static str, Cut)>) -> Weights {
        Weights { cuts: Rc::new(cuts), ..self.clone() }
    }

    /// Values that share a scale, in whole words, in the first matrix of `columns` below this
    /// cursor that is called one of `names`; 1 where it is not packed.
    pub fn group_below(&self, names: &[&str], columns: i32) -> i32 {
        if let Ok(Some(of_config)) = self.shared.config.quantization(&self.at(names[0]).prefix) {
            let Quantization { bits, group_size, .. } = of_config;
            // A group of 16 codes of three bits ends within a word.
            return if group_size * bits % 32 == 0 { group_size } else { 2 * group_size };
        }
        let prefix = self.prefix();
        let left = self.shared.left.borrow();
        let scales = left.iter().find(|(name, _)| {
            let module = name.strip_prefix(&prefix).and_then(|name| name.strip_suffix(".scales"));
            module.is_some_and(|module| names.contains(&last(module)))
        });
        let groups = scales.and_then(|(_, header)| header.shape.last().copied());
        groups.and_then(|groups| columns.checked_div(groups)).unwrap_or(1).max(1)
    }

    /// This rank's cut of the tensor `name`.
    pub(super) fn cut_of(&self, name: &str) -> Option<&Cut> {
        let module = match name {
            "weight" | "scales" | "biases" | "bias" => last(&self.prefix),
            _ => {
                let module = name.strip_suffix(".weight").or_else(|| name.strip_suffix(".bias"));
                last(module.unwrap_or(name))
            }
        };
        self.cuts.iter().find(|(known, _)| *known == module).map(|(_, cut)| cut)
    }

    /// The columns of the whole matrix under this cursor, of which this rank has `columns`.
    pub(super) fn uncut_columns(&self, columns: i32) -> i32 {
        self.cut_of("weight").filter(|cut| cut.leaves_terms()).map_or(columns, Cut::of)
    }

    /// How ranks combine the results of the module under this cursor.
    pub(super) fn together(&self) -> Together {
        match (self.ranks(), self.cut_of("weight")) {
            (Some(group), Some(cut)) if cut.leaves_terms() => Together::Sum(group.clone()),
            _ => Together::Nothing,
        }
    }
}

fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::files::ModelFiles;
    use crate::kernels::Kernels;
    use crate::weights::Checkpoint;

    fn weights(bits: i32, kernels: Kernels) -> Weights {
        let config = format!(r#"{{"quantization": {{"bits": {bits}, "group_size": 16}}}}"#);
        let files = ModelFiles::Random(config.as_str().into());
        let config = Config::parse("config.json", &config).expect("an object");
        let checkpoint = Checkpoint::open(&files).expect("no files are read");
        Weights::of(&checkpoint, &config, None, kernels, false)
    }

    #[test]
    fn columns_are_cut_where_words_end() {
        for (bits, group) in [(2, 16), (3, 32), (6, 16), (8, 16)] {
            let found = weights(bits, Kernels::CPU).group_below(&["o_proj"], 256);
            assert_eq!(found, group, "{bits}");
        }
    }

    #[test]
    fn groups_of_sixteen_are_refused_where_our_kernels_for_cpus_do_not_multiply() {
        weights(6, Kernels::CPU).linear("o_proj", 256, 32, false).expect("it is drawn");
        let refused = weights(6, Kernels::Mlx).linear("o_proj", 256, 32, false);
        let error = refused.expect_err("MLX has none").to_string();
        assert!(error.contains("`o_proj`") && error.contains("groups of 16"), "{error}");
    }
}
