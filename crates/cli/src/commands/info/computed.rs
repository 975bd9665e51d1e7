//! The type in which a model is computed.

use inference_core::ModelInfo;

/// The type and the device, with the checkpoint's own type where another one stands for it.
pub fn computes_in(info: &ModelInfo) -> String {
    let computed = format!("{} on {}", info.dtype, info.device);
    match &info.in_place_of {
        None => computed,
        Some(own) => format!(
            "{computed}, which has no units for the checkpoint's {own}; a model that leaves the range of {} stays in \
             {own}, and `--dtype {own}` keeps it",
            info.dtype
        ),
    }
}

#[cfg(test)]
mod tests {
    use inference_core::ModelInfo;

    use super::computes_in;

    #[test]
    fn a_type_that_stands_for_another_one_is_told_with_the_way_back() {
        let own = ModelInfo { dtype: "f32".into(), device: "cpu".into(), ..ModelInfo::default() };
        assert_eq!(computes_in(&own), "f32 on cpu");
        let other = ModelInfo {
            dtype: "f16".into(),
            device: "metal".into(),
            in_place_of: Some("bf16".into()),
            ..ModelInfo::default()
        };
        let told = computes_in(&other);
        assert!(told.starts_with("f16 on metal, which has no units for"), "{told}");
        assert!(told.ends_with("`--dtype bf16` keeps it"), "{told}");
    }
}
