//! The options of `cargo xtask dist`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use mlx_build::Variant;
use mlx_build::build_script::variant_from_env;
use mlx_build::location::cache_of_workspace;

use crate::repository::root;

/// The options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// The folder for archives.
    pub out: PathBuf,
    /// Which build of MLX is packed.
    pub variant: Variant,
    /// The address that archives will be downloaded from; an installer for it is written.
    pub downloads: Option<String>,
    /// The archive is tried.
    pub checks: bool,
}

impl Options {
    /// Reads them.
    pub fn parse(args: &[String]) -> Result<Options> {
        let mut options = Options {
            out: cache_of_workspace(root())?.with_file_name("dist"),
            variant: variant_from_env(std::env::consts::OS)?,
            downloads: None,
            checks: false,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = |what| args.next().with_context(|| format!("{arg} needs {what}"));
            match arg.as_str() {
                "--out" => options.out = value("a folder")?.into(),
                "--variant" => options.variant = value("a name")?.parse()?,
                "--downloads" => {
                    options.downloads = Some(value("a URL")?.trim_end_matches('/').to_owned());
                }
                "--check" => options.checks = true,
                other => bail!("unknown argument `{other}` of dist"),
            }
        }
        if options.checks && options.variant == Variant::Cuda {
            bail!("--check runs the program, which needs NVIDIA's libraries with --variant cuda");
        }
        Ok(options)
    }

    /// The archive's name, without its end.
    pub fn name(&self, version: &str, triple: &str) -> String {
        let variant = match self.variant {
            Variant::Cuda => "-cuda",
            _ => "",
        };
        format!("ml-{version}-{triple}{variant}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        Options::parse(&args)
    }

    #[test]
    fn names_tell_the_version_the_machine_and_what_is_not_usual() {
        let usual = parse(&[]).unwrap();
        assert_eq!(
            usual.name("1.2.3", "x86_64-unknown-linux-gnu"),
            "ml-1.2.3-x86_64-unknown-linux-gnu"
        );
        let cuda = parse(&["--variant", "cuda", "--out", "x"]).unwrap();
        assert_eq!(cuda.out, PathBuf::from("x"));
        assert!(cuda.name("1", "t").ends_with("-cuda"));
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (args, name) in [
            (&["--bogus"][..], "--bogus"),
            (&["--out"], "--out needs"),
            (&["--variant", "gpu"], "`gpu`"),
            (&["--check", "--variant", "cuda"], "NVIDIA"),
        ] {
            let text = parse(args).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
        }
    }
}
