//! The tables of architectures: names, tensors stored in another form, and own metadata.

mod building;
mod dense;
mod gemma;
mod gpt_oss;
mod latent;
mod lfm2;
mod llama;
mod mamba;
mod mixtures;
mod qwen;
mod sparse;

use super::metadata::Family;
use super::reader::{Header, Value, shown};
use crate::error::{Error, Result, nearest};

const FAMILIES: [&[Family]; 10] = [
    &llama::FAMILIES,
    &dense::FAMILIES,
    &qwen::FAMILIES,
    &gemma::FAMILIES,
    &gpt_oss::FAMILIES,
    &latent::FAMILIES,
    &lfm2::FAMILIES,
    &mamba::FAMILIES,
    &mixtures::FAMILIES,
    &sparse::FAMILIES,
];

/// The architecture of a file.
///
/// # Errors
/// One that is not known, by name.
pub(super) fn of(header: &Header) -> Result<&'static Family> {
    let name = match header.metadata.get("general.architecture") {
        Some(Value::Text(name)) => name.as_str(),
        _ => return Err(Error::model("has no `general.architecture`")),
    };
    let all = || FAMILIES.iter().copied().flatten();
    all().find(|family| family.name == name).ok_or_else(|| {
        let names: Vec<&str> = all().map(|family| family.name).collect();
        let name = shown(name);
        Error::model(format!(
            "has the architecture `{name}`; nearest of those that work in GGUF are {}; others work as folders of safetensors",
            nearest(&name, &names).join(", ")
        ))
    })
}
