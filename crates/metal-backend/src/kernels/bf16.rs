//! The type that stands for bf16 on a device without units for it.

use inference_core::LoadOptions;
use mlx_ffi::{Device, Dtype};

use crate::error::Result;

/// The first generation of Apple's GPUs with units for bf16, that of the M3.
const GENERATION: u32 = 15;

/// The type in which weights of bf16 are computed where the user names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bf16 {
    /// Their own.
    #[default]
    Itself,
    /// f16, which is as short. The GPUs of M1 and M2 have units for it, and compute bf16 by several
    /// instructions.
    AsF16,
}

impl Bf16 {
    /// The type on a device of this backend and architecture, such as `applegpu_g13g` for an M1. A
    /// device that tells no known one has units for bf16.
    pub fn on(backend: &str, architecture: Option<&str>) -> Bf16 {
        match architecture.filter(|_| backend == "metal").and_then(generation) {
            Some(generation) if generation < GENERATION => Bf16::AsF16,
            _ => Bf16::Itself,
        }
    }

    /// The type of a load on `device`. Several processes that compute one model keep its own: each
    /// reads a part, and all would have to find the range of f16 kept.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn of(device: Device, load: &LoadOptions) -> Result<Bf16> {
        if load.dtype.is_some() || load.ranks.is_some() || device == Device::Cpu {
            return Ok(Bf16::Itself);
        }
        let info = device.info()?;
        Ok(Bf16::on(info.backend, info.architecture.as_deref()))
    }

    /// The type that is computed for weights of `stored`.
    pub fn computed(self, stored: Dtype) -> Dtype {
        match (self, stored) {
            (Bf16::AsF16, Dtype::Bf16) => Dtype::F16,
            _ => stored,
        }
    }
}

/// The generation of Apple's GPUs in the name of an architecture: 14 of `applegpu_g14s`.
fn generation(architecture: &str) -> Option<u32> {
    let rest = architecture.strip_prefix("applegpu_g")?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use inference_core::{RankSplit, Ranks};

    use super::*;

    #[test]
    fn f16_stands_for_bf16_on_the_gpus_of_m1_and_m2_alone() {
        let macs = [
            ("applegpu_g13g", Bf16::AsF16),
            ("applegpu_g13s", Bf16::AsF16),
            ("applegpu_g13d", Bf16::AsF16),
            ("applegpu_g14g", Bf16::AsF16),
            ("applegpu_g14d", Bf16::AsF16),
            ("applegpu_g15s", Bf16::Itself),
            ("applegpu_g15d", Bf16::Itself),
            ("applegpu_g16s", Bf16::Itself),
            ("applegpu_g17s", Bf16::Itself),
            ("applegpu_x", Bf16::Itself),
            ("", Bf16::Itself),
        ];
        for (architecture, expected) in macs {
            assert_eq!(Bf16::on("metal", Some(architecture)), expected, "{architecture}");
            assert_eq!(Bf16::on("cuda", Some(architecture)), Bf16::Itself, "{architecture}");
        }
        assert_eq!(Bf16::on("metal", None), Bf16::Itself);
    }

    #[test]
    fn other_types_and_types_that_are_asked_for_stay() {
        for (stored, computed) in
            [(Dtype::Bf16, Dtype::F16), (Dtype::F16, Dtype::F16), (Dtype::F32, Dtype::F32)]
        {
            assert_eq!(Bf16::AsF16.computed(stored), computed);
            assert_eq!(Bf16::Itself.computed(stored), stored);
        }
        let dtype = Some(inference_core::Dtype::Bf16);
        let (addresses, split) = (Vec::new(), RankSplit::Tensors);
        let ranks = Some(Ranks { rank: 0, addresses, group: 0, split });
        for load in [
            LoadOptions { dtype, ..LoadOptions::default() },
            LoadOptions { ranks, ..LoadOptions::default() },
        ] {
            assert_eq!(Bf16::of(Device::Gpu, &load).expect("nothing is asked"), Bf16::Itself);
        }
    }
}
